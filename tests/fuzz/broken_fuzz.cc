// Decoders that crash, one in each way, so that driver_test.py sees their input kept.
#include <cstdlib>
#include <cstring>

#include "base/sanitized.h"
#include "fuzz/fuzz.h"

namespace {

bool is_fatal(std::span<const std::byte> bytes) {
  return bytes.size() > 4 && std::memcmp(bytes.data(), "fatal", 5) == 0;
}

void abort_at(std::span<const std::byte> bytes) {
  if (is_fatal(bytes)) std::abort();
}

void write_nowhere(std::span<const std::byte> bytes) {
  volatile char* volatile nowhere = nullptr;
  if (is_fatal(bytes)) *nowhere = 'x';
}

void read_behind(std::span<const std::byte> bytes) {
  const std::byte* volatile first = bytes.data();
  volatile std::byte sink{};
  if (is_fatal(bytes)) sink = first[bytes.size()];
  static_cast<void>(sink);
}

// Each level has a page of its own on the stack.
size_t descend(std::span<const std::byte> bytes, size_t level) {
  volatile char page[4096];
  page[level % sizeof(page)] = static_cast<char>(level);
  if (!is_fatal(bytes)) return level;
  return descend(bytes, level + 1) + static_cast<size_t>(page[level % sizeof(page)]);
}

void recurse(std::span<const std::byte> bytes) {
  volatile size_t levels = descend(bytes, 0);
  static_cast<void>(levels);
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  const std::vector<std::string> seeds = {"fine", "fatal"};
  return {{"abort", abort_at, seeds},
          {"write_nowhere", write_nowhere, seeds},
          {"read_behind", read_behind, seeds},
          {"recurse", recurse, seeds}};
}
