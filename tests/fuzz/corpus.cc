// Gives libFuzzer the seeds of a target: written into its corpus folder when that is empty.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

std::vector<std::string> fuzz_seeds();

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::filesystem::path folder = (*argv)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    if (!std::filesystem::is_empty(folder)) break;
    int number = 0;
    for (const std::string& seed : fuzz_seeds()) {
      std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
    }
    break;
  }
  return 0;
}
