// The vector loops of parsing, compiled for every vector target and chosen at run time. Every
// target gives the same results to the bit.
//
// Uses: base. Threads: any; all are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "data/tail.h"

namespace starling {

// Appends where in `bytes` (below 4 GiB) the first and the second character stand, ascending.
void find_both(std::string_view bytes, char first, char second, Tail<uint32_t>& first_at,
               Tail<uint32_t>& second_at);

// sign(x) * ln(1 + |x|), the `log` transform. Frozen: models depend on it.
double log_of(double x);

// Rows of stride numbers: those whose column is set in `logged` (stride bytes, 0 or 1) become their
// log_of(), and every NaN becomes 0.
void log_columns(std::span<float> rows, std::span<const uint8_t> logged);

}  // namespace starling
