// Feeds every decoder of a fuzz target seeded mutations of its seeds, where libFuzzer is not there
// to do it. The same runs and seed give the same inputs, on any machine.
//
//   x_fuzz [--runs N] [--seed S] [--decoder NAME]
//       N mutations for each decoder, or for one (default 1,000,000; 20,000 under sanitizers)
//   x_fuzz FILE...
//       only these inputs: what was kept here, or a finding of libFuzzer
//
// When a decoder crashes, the input is in crash-<target>-<decoder>-<number> in the working folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "fuzz/fuzz.h"

// What a sanitizer finds ends in SIGABRT, so that the input is kept.
// NOLINTBEGIN(bugprone-reserved-identifier): names that the sanitizers ask for
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }
// NOLINTEND(bugprone-reserved-identifier)

namespace {

constexpr uint64_t kRunsDefault = starling::kSanitized ? 20'000 : 1'000'000;
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

// The first `kMutationsInPlace` of them keep the length.
constexpr size_t kMutationsInPlace = 3;
constexpr size_t kMutations = 9;

void mutate(std::string& input, size_t kinds, const std::vector<std::string>& seeds,
            Random& random) {
  const size_t at = random.below(input.size() + 1);
  const uint64_t edge = kEdges[random.below(std::size(kEdges))];
  switch (random.below(kinds)) {
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

// What the signal handler needs of the input that runs.
struct Current {
  char which = 0;
  const char* data = nullptr;
  size_t size = 0;
  uint64_t number = 0;
  std::array<char, 256> name{};  // of the file, up to the number
  size_t name_size = 0;
};
Current current;
constexpr std::array<int, 5> kSignals = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
std::array<struct sigaction, kSignals.size()> before;

void write_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t wrote = ::write(fd, bytes, size);
    if (wrote <= 0) return;
    bytes += wrote;
    size -= static_cast<size_t>(wrote);
  }
}

// Only calls that a signal handler may make: open, write, close, sigaction.
void keep_input(int signal_number) {
  std::array<char, 20> digits;
  size_t first = digits.size();
  uint64_t rest = current.number;
  do {
    digits[--first] = static_cast<char>('0' + rest % 10);
  } while ((rest /= 10) > 0);
  for (size_t i = first; i < digits.size(); ++i) {
    current.name[current.name_size++] = digits[i];
  }
  const int file = ::open(current.name.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0) {
    write_all(file, &current.which, 1);
    write_all(file, current.data, current.size);
    ::close(file);
  }
  constexpr std::string_view kKept = "the input is kept in ";
  write_all(STDERR_FILENO, kKept.data(), kKept.size());
  write_all(STDERR_FILENO, current.name.data(), current.name_size);
  write_all(STDERR_FILENO, "\n", 1);
  // What crashed does so again when this returns, and whoever was here before sees it: a sanitizer
  // that reports, or the default that ends the program.
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signal_number) ::sigaction(signal_number, &before[i], nullptr);
  }
}

void catch_crashes() {
  // A stack of its own: the decoder may have used up the other one.
  static std::array<char, 1 << 16> stack;
  stack_t other{};
  other.ss_sp = stack.data();
  other.ss_size = stack.size();
  ::sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = keep_input;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before[i]);
}

void begin(std::string_view program, const FuzzDecoder& decoder, char which) {
  current.which = which;
  current.number = 0;
  // Room for the number and the zero behind it.
  const int size = std::snprintf(current.name.data(), current.name.size() - 24, "crash-%.*s-%s-",
                                 static_cast<int>(program.size()), program.data(), decoder.name);
  current.name_size = std::min(static_cast<size_t>(size), current.name.size() - 25);
  std::fill(current.name.begin() + static_cast<ptrdiff_t>(current.name_size), current.name.end(),
            '\0');
}

void run(const FuzzDecoder& decoder, std::string_view input) {
  // A copy of exactly this size, so that a sanitizer sees a read behind its end.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  current.data = reinterpret_cast<const char*>(bytes.data());
  current.size = bytes.size();
  decoder.check(std::as_bytes(std::span(bytes)));
  ++current.number;
}

int run_file(std::string_view program, const std::vector<FuzzDecoder>& decoders,
             const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string input(std::istreambuf_iterator<char>(in), {});
  if (input.empty()) {
    std::fprintf(stderr, "%s: empty, or cannot be read\n", path.c_str());
    return 1;
  }
  const size_t which = static_cast<uint8_t>(input[0]) % decoders.size();
  begin(program, decoders[which], static_cast<char>(which));
  run(decoders[which], std::string_view(input).substr(1));
  return 0;
}

int run_mutations(const FuzzDecoder& decoder, uint64_t runs, uint64_t seed) {
  if (decoder.seeds.empty()) {
    std::fprintf(stderr, "%s has no seeds\n", decoder.name);
    return 1;
  }
  for (const std::string& input : decoder.seeds) run(decoder, input);
  for (uint64_t i = 0; i < runs; ++i) {
    Random random(seed * 0x9e3779b97f4a7c15 + i);
    std::string input = decoder.seeds[i % decoder.seeds.size()];
    // Half of the inputs keep their length, so that what lies behind lengths inside is reached too.
    const size_t kinds = random.below(2) == 0 ? kMutationsInPlace : kMutations;
    for (size_t n = 1 + random.below(4); n > 0; --n) mutate(input, kinds, decoder.seeds, random);
    run(decoder, input);
  }
  std::printf("%s: %llu inputs\n", decoder.name, static_cast<unsigned long long>(current.number));
  return 0;
}

struct Asked {
  uint64_t runs = kRunsDefault;
  uint64_t seed = 1;
  std::string decoder;  // empty: all
  std::vector<std::string> files;
};

bool read_arguments(int argc, char** argv, Asked* out) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (!arg.starts_with("-")) {
      out->files.emplace_back(arg);
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (arg == "--decoder") {
      out->decoder = value;
    } else if (arg == "--runs" || arg == "--seed") {
      (arg == "--runs" ? out->runs : out->seed) = std::strtoull(value, nullptr, 10);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const char* slash = std::strrchr(argv[0], '/');
  const std::string_view program = slash == nullptr ? argv[0] : slash + 1;
  const std::vector<FuzzDecoder> decoders = fuzz_decoders();
  Asked asked;
  if (!read_arguments(argc, argv, &asked)) {
    std::fprintf(stderr, "usage: %s [--runs N] [--seed S] [--decoder NAME] | FILE...\n", argv[0]);
    return 2;
  }
  catch_crashes();
  for (const std::string& file : asked.files) {
    if (const int result = run_file(program, decoders, file); result != 0) return result;
  }
  if (!asked.files.empty()) return 0;
  size_t ran = 0;
  for (size_t which = 0; which < decoders.size(); ++which) {
    if (!asked.decoder.empty() && asked.decoder != decoders[which].name) continue;
    begin(program, decoders[which], static_cast<char>(which));
    if (run_mutations(decoders[which], asked.runs, asked.seed) != 0) return 1;
    ++ran;
  }
  if (ran == 0) std::fprintf(stderr, "%s has no decoder '%s'\n", argv[0], asked.decoder.c_str());
  return ran == 0 ? 1 : 0;
}
