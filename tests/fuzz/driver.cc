// Feeds a fuzz target seeded mutations of its corpus, where libFuzzer is not there to do it. The
// same runs and seed give the same inputs, on any machine.
//
//   x_fuzz [--runs N] [--seed S]    N mutations (default 1,000,000; 50,000 under sanitizers)
//   x_fuzz FILE...                  only these inputs, for a finding of libFuzzer
//
// When a target aborts, the input is in crash-<target>-<number> in the working folder.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/sanitized.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// The corpus: valid inputs of every sort. The target's own.
std::vector<std::string> fuzz_seeds();

namespace {

constexpr uint64_t kRunsDefault = starling::kSanitized ? 50'000 : 1'000'000;
constexpr size_t kInputBytesMax = 1 << 16;

// splitmix64: small, and the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(next() % bound); }

 private:
  uint64_t state_;
};

// Numbers at which length checks go wrong.
constexpr uint64_t kEdges[] = {
    0,          1,          2,          7,          8,          63,
    64,         127,        128,        255,        256,        4095,
    4096,       4097,       65535,      65536,      0x7fffffff, 0x80000000,
    0xffffffff, 1ULL << 32, 1ULL << 62, 1ULL << 63, UINT64_MAX, UINT64_MAX - 7};

void overwrite(std::string& input, size_t at, uint64_t value, size_t width) {
  for (size_t i = 0; i < width && at + i < input.size(); ++i) {
    input[at + i] = static_cast<char>(value >> (8 * i));
  }
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  bytes += static_cast<char>(value);
  return bytes;
}

void mutate(std::string& input, const std::vector<std::string>& seeds, Random& random) {
  const size_t at = random.below(input.size() + 1);
  const uint64_t edge = kEdges[random.below(std::size(kEdges))];
  switch (random.below(9)) {
    case 0:  // flip a bit
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random.below(8)));
      break;
    case 1:  // another byte
      if (at < input.size()) input[at] = static_cast<char>(random.next());
      break;
    case 2:  // an edge number, 1 to 8 bytes wide
      overwrite(input, at, edge + random.below(3) - 1, size_t{1} << random.below(4));
      break;
    case 3:  // an edge number as varint, in place of one byte
      input.replace(at, at < input.size() ? 1 : 0, varint(edge));
      break;
    case 4:  // cut the tail
      input.resize(at);
      break;
    case 5:  // take a piece out
      input.erase(at, 1 + random.below(16));
      break;
    case 6:  // repeat a piece
      input.insert(at, input.substr(random.below(input.size() + 1), random.below(64)));
      break;
    case 7:  // random bytes
      for (size_t n = 1 + random.below(8); n > 0; --n) {
        input.insert(at, 1, static_cast<char>(random.next()));
      }
      break;
    default: {  // go on as another seed does
      const std::string& other = seeds[random.below(seeds.size())];
      input = input.substr(0, at) + other.substr(random.below(other.size() + 1));
    }
  }
  if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
}

// What the target is looking at, for the signal handler.
const char* current_data = nullptr;
size_t current_size = 0;
uint64_t current_number = 0;
const char* program = "";

// Only calls that a signal handler may make.
void keep_input(int signal_number) {
  char name[256];
  std::snprintf(name, sizeof(name), "crash-%s-%llu", program,
                static_cast<unsigned long long>(current_number));
  if (std::FILE* file = std::fopen(name, "wb")) {
    std::fwrite(current_data, 1, current_size, file);
    std::fclose(file);
  }
  std::fprintf(stderr, "input %llu kept in %s\n", static_cast<unsigned long long>(current_number),
               name);
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void run(const std::string& input) {
  // A copy of exactly this size, so that a sanitizer sees a read behind its end.
  std::vector<uint8_t> bytes(input.begin(), input.end());
  current_data = reinterpret_cast<const char*>(bytes.data());
  current_size = bytes.size();
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ++current_number;
}

int run_files(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "%s: cannot be read\n", file.c_str());
      return 1;
    }
    run(std::string(std::istreambuf_iterator<char>(in), {}));
  }
  return 0;
}

int run_mutations(uint64_t runs, uint64_t seed) {
  const std::vector<std::string> seeds = fuzz_seeds();
  if (seeds.empty()) {
    std::fprintf(stderr, "%s has no seeds\n", program);
    return 1;
  }
  for (const std::string& input : seeds) run(input);
  for (uint64_t i = 0; i < runs; ++i) {
    Random random(seed * 0x9e3779b97f4a7c15 + i);
    std::string input = seeds[i % seeds.size()];
    for (size_t n = 1 + random.below(4); n > 0; --n) mutate(input, seeds, random);
    run(input);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* slash = std::strrchr(argv[0], '/');
  program = slash == nullptr ? argv[0] : slash + 1;
  uint64_t runs = kRunsDefault;
  uint64_t seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if ((arg == "--runs" || arg == "--seed") && i + 1 < argc) {
      (arg == "--runs" ? runs : seed) = std::strtoull(argv[++i], nullptr, 10);
    } else if (arg.starts_with("-")) {
      std::fprintf(stderr, "usage: %s [--runs N] [--seed S] | FILE...\n", program);
      return 2;
    } else {
      files.emplace_back(arg);
    }
  }
  std::signal(SIGABRT, keep_input);
  std::signal(SIGSEGV, keep_input);
  const int result = files.empty() ? run_mutations(runs, seed) : run_files(files);
  if (result == 0) std::printf("%llu inputs\n", static_cast<unsigned long long>(current_number));
  return result;
}
