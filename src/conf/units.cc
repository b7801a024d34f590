#include "conf/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <span>

namespace starling {
namespace {

struct Suffix {
  std::string_view name;
  int64_t size;  // in bytes or microseconds
};

constexpr int64_t kKibi = 1024;
constexpr std::array<Suffix, 9> kByteSuffixes = {{{"B", 1},
                                                  {"KB", 1'000},
                                                  {"MB", 1'000'000},
                                                  {"GB", 1'000'000'000},
                                                  {"TB", 1'000'000'000'000},
                                                  {"KiB", kKibi},
                                                  {"MiB", kKibi* kKibi},
                                                  {"GiB", kKibi* kKibi* kKibi},
                                                  {"TiB", kKibi* kKibi* kKibi* kKibi}}};
constexpr std::array<Suffix, 6> kTimeSuffixes = {{{"us", 1},
                                                  {"ms", 1'000},
                                                  {"s", 1'000'000},
                                                  {"min", 60'000'000},
                                                  {"h", 3'600'000'000},
                                                  {"d", 86'400'000'000}}};

std::span<const Suffix> suffixes_of(Unit unit) {
  if (unit == Unit::kNone) return {};
  if (unit == Unit::kBytes) return kByteSuffixes;
  return kTimeSuffixes;
}

Suffix suffix_of(Unit unit) {
  switch (unit) {
    case Unit::kNone:
      return {"", 1};
    case Unit::kBytes:
      return kByteSuffixes[0];
    default:
      return kTimeSuffixes[static_cast<size_t>(unit) - static_cast<size_t>(Unit::kMicroseconds)];
  }
}

// Where the number ends and the unit begins. An exponent (1e6) belongs to the number.
size_t number_length(std::string_view text) {
  double ignored = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ignored);
  return error == std::errc::invalid_argument ? 0 : static_cast<size_t>(end - text.data());
}

std::optional<int64_t> whole_of(double value) {
  // Beyond 2^53 a double no longer holds every whole number.
  if (value != std::floor(value) || std::abs(value) > 9007199254740992.0) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace

std::optional<int64_t> parse_whole(std::string_view text, Unit unit) {
  const size_t length = number_length(text);
  if (length == 0 || std::isalpha(static_cast<unsigned char>(text[length - 1])) != 0)
    return std::nullopt;
  const std::string_view number = text.substr(0, length);
  const std::string_view name = text.substr(length);
  int64_t size = 1;
  if (!name.empty()) {
    size = 0;
    for (const Suffix& suffix : suffixes_of(unit)) {
      if (suffix.name == name) size = suffix.size;
    }
    if (size == 0) return std::nullopt;
  }
  const int64_t own = name.empty() ? 1 : suffix_of(unit).size;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error == std::errc() && end == number.data() + number.size()) {
    const int64_t common = std::gcd(size, own);
    int64_t scaled = 0;
    if (__builtin_mul_overflow(value, size / common, &scaled) || scaled % (own / common) != 0) {
      return std::nullopt;
    }
    return scaled / (own / common);
  }
  const std::optional<double> real = parse_real(number);
  if (!real || !std::isfinite(*real)) return std::nullopt;
  return whole_of(*real * static_cast<double>(size) / static_cast<double>(own));
}

std::optional<double> parse_real(std::string_view text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<bool> parse_truth(std::string_view text) {
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view word : {"true", "yes", "on", "1"}) {
    if (lower == word) return true;
  }
  for (const std::string_view word : {"false", "no", "off", "0"}) {
    if (lower == word) return false;
  }
  return std::nullopt;
}

std::string format_whole(int64_t value, Unit unit) {
  if (value == kInfinite) return "inf";
  if (unit == Unit::kNone || value == 0) return fmt::format("{}", value);
  if (unit != Unit::kBytes) return fmt::format("{}{}", value, suffix_of(unit).name);
  Suffix best = kByteSuffixes[0];
  for (const Suffix& suffix : kByteSuffixes) {
    const bool binary = suffix.name.size() == 3;
    if ((binary || suffix.size == 1) && value % suffix.size == 0) best = suffix;
  }
  return fmt::format("{}{}", value / best.size, best.name);
}

std::string format_real(double value) { return fmt::format("{}", value); }

}  // namespace starling
