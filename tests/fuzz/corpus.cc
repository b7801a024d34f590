// Gives libFuzzer the decoders of a target, and their seeds: written into its corpus folder when
// that is empty.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::filesystem::path folder = (*argv)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    if (!std::filesystem::is_empty(folder)) break;
    int number = 0;
    char which = 0;
    for (const FuzzDecoder& decoder : fuzz_decoders()) {
      for (const std::string& seed : decoder.seeds) {
        std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary)
            << which << seed;
      }
      ++which;
    }
    break;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<FuzzDecoder> decoders = fuzz_decoders();
  if (size == 0) return 0;
  // Apart, so that what a decoder reads is aligned as memory that was allocated is.
  const std::vector<uint8_t> rest(data + 1, data + size);
  decoders[data[0] % decoders.size()].check(std::as_bytes(std::span(rest)));
  return 0;
}
