// How texts and numbers become keys: XXH3 with the field's seed.
//
// Frozen: keys are stored in tables (transform_test.cc). Uses: xxhash. Threads: any; all are pure.
#pragma once

#include <cstdint>
#include <string_view>

// Most keys are short; a call into the library would cost as much as the hash.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace starling {

inline uint64_t hash_text(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

inline uint64_t hash_number(uint64_t number, uint64_t seed) {
  return XXH3_64bits_withSeed(&number, sizeof(number), seed);
}

}  // namespace starling
