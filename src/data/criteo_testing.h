// Lines as Criteo's click logs have them, made up: for tests and benchmarks.
//
// Uses: base. Threads: any; pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "base/rng.h"
#include "base/status.h"

namespace starling::data_testing {

// Appends `lines` lines, the same for the same seed. Integers are mostly small, some negative, some
// missing; categories are 8 hex digits from 26 vocabularies of up to a million, the frequent ones
// drawn often, some missing: about 180 bytes a line.
inline void append_criteo(uint64_t seed, uint64_t lines, std::string& out) {
  Rng rng(seed, 1, 1);
  for (uint64_t line = 0; line < lines; ++line) {
    out += rng.below(4) == 0 ? '1' : '0';
    for (int i = 0; i < 13; ++i) {
      out += '\t';
      const uint64_t draw = rng.next_u64();
      if (draw % 8 == 0) continue;
      if (draw % 101 == 1 && i == 1) out += '-';
      const double u = static_cast<double>(draw >> 11) * 0x1p-53;
      out += std::to_string(static_cast<uint64_t>(std::exp(u * u * (i % 3 == 0 ? 11 : 6)) - 1));
    }
    for (uint64_t i = 0; i < 26; ++i) {
      out += '\t';
      const uint64_t draw = rng.next_u64();
      if (i % 5 == 4 && draw % 4 == 0) continue;
      const double u = static_cast<double>(draw >> 11) * 0x1p-53;
      // Half of the draws fall on a thousandth of the words.
      const double words = i % 3 == 0 ? 1e6 : i % 3 == 1 ? 1e4 : 100;
      const auto word = static_cast<uint64_t>(words * std::pow(u, 10));
      out += fmt::format("{:08x}", static_cast<uint32_t>(mix64(i << 32 | word)));
    }
    out += '\n';
  }
}

}  // namespace starling::data_testing
