// What a fuzz target gives to whoever drives it: driver.cc, or libFuzzer by way of corpus.cc.
//
// An input that is stored begins with a byte that picks the decoder; what follows is the decoder's.
// Uses: std. Threads: one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct FuzzDecoder {
  const char* name;
  // Aborts when a property does not hold. The bytes end where their memory ends.
  void (*check)(std::span<const std::byte> bytes);
  // Valid inputs of every sort; at least one.
  std::vector<std::string> seeds;
};

// An input as text.
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The target's own: its decoders, of which every one gets as many inputs as the others.
std::vector<FuzzDecoder> fuzz_decoders();
