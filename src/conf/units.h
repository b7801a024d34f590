// Numbers as people write them: 512, 2GiB, 500ms, inf, true.
//
// Uses: std. Threads: any; free functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace starling {

// What a whole number counts. A number without a unit is in the unit of its key (lease_ms: 500);
// with one it is converted (lease_ms: 2s), and has to come out whole.
enum class Unit { kNone, kBytes, kMicroseconds, kMilliseconds, kSeconds, kMinutes, kHours, kDays };

// What `inf` reads as, where a key takes it.
inline constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max();

// Nothing when `text` is not a whole number of `unit`, or does not fit.
// Bytes take B, KB MB GB TB (powers of 1000) and KiB MiB GiB TiB (of 1024); times take us ms s min
// h d.
std::optional<int64_t> parse_whole(std::string_view text, Unit unit);

// Nothing for anything but a finite decimal number, or `inf` and `-inf`.
std::optional<double> parse_real(std::string_view text);

// true false yes no on off 1 0, in any case.
std::optional<bool> parse_truth(std::string_view text);

// 2147483648 bytes as 2GiB, 500 ms as 500ms: what parse_whole reads back as the same number.
std::string format_whole(int64_t value, Unit unit);

// The fewest digits that read back as the same number.
std::string format_real(double value);

}  // namespace starling
