#include "data/ctr_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/rng.h"

namespace starling {
namespace {

// Streams of the seed.
constexpr uint64_t kSampleStream = 0x5a3b1e;
constexpr uint64_t kWeightStream = 0x3e1647;
constexpr uint64_t kFactorStream = 0xfac704;
constexpr uint64_t kHashStream = 0x4a54;

constexpr double kBias = -1.6;
constexpr double kWeightScale = 0.32;
constexpr double kFactorScale = 0.7;
constexpr double kNumberScale = 0.12;
// Fields that interact with the one behind them.
constexpr uint32_t kPairs = 6;

uint64_t place(uint32_t category, int64_t id) {
  return (uint64_t{category} << 48) ^ static_cast<uint64_t>(id);
}

}  // namespace

CtrModel::CtrModel(const CtrOptions& options) : options_(options) {
  // Sizes grow by one factor from field to field, as real ones do, to the wanted sum.
  constexpr double kGrowth = 1.5;
  double parts = 0;
  for (uint32_t f = 0; f < kCategories; ++f) parts += std::pow(kGrowth, f);
  for (uint32_t f = 0; f < kCategories; ++f) {
    const double share = std::pow(kGrowth, f) / parts * static_cast<double>(options_.keys);
    ids_[f] = std::max<uint64_t>(4, static_cast<uint64_t>(share));
  }
}

double CtrModel::weight(uint32_t category, int64_t id) const {
  return kWeightScale * Rng(options_.seed, kWeightStream, place(category, id)).normal();
}

std::array<double, 2> CtrModel::factor(uint32_t category, int64_t id) const {
  Rng rng(options_.seed, kFactorStream, place(category, id));
  const double first = rng.normal();
  return {kFactorScale * first, kFactorScale * rng.normal()};
}

CtrSample CtrModel::sample(uint64_t number) const {
  Rng rng(options_.seed, kSampleStream, number);
  CtrSample out;
  double logit = kBias;
  for (uint32_t i = 0; i < kNumbers; ++i) {
    const double drawn = std::exp(1.0 + 1.2 * rng.normal());
    const bool is_missing = rng.uniform() < options_.missing_rate;
    out.numbers[i] = is_missing ? -1 : static_cast<int64_t>(drawn);
    const double sign = i % 3 == 0 ? -1 : 1;
    if (!is_missing) {
      logit += sign * kNumberScale * (std::log1p(static_cast<double>(out.numbers[i])) - 1.3);
    }
  }
  for (uint32_t f = 0; f < kCategories; ++f) {
    // Frequencies fall as 1 / (id + 1).
    const double spread = std::log(static_cast<double>(ids_[f]) + 1);
    const auto id = static_cast<int64_t>(std::exp(rng.uniform() * spread)) - 1;
    const bool is_missing = rng.uniform() < options_.missing_rate;
    out.categories[f] = is_missing ? -1 : std::min<int64_t>(id, static_cast<int64_t>(ids_[f]) - 1);
    if (!is_missing) logit += weight(f, out.categories[f]);
  }
  for (uint32_t pair = 0; pair < kPairs; ++pair) {
    const uint32_t a = 2 * pair, b = 2 * pair + 1;
    if (out.categories[a] < 0 || out.categories[b] < 0) continue;
    const auto x = factor(a, out.categories[a]), y = factor(b, out.categories[b]);
    logit += x[0] * y[0] + x[1] * y[1];
  }
  out.rate = 1 / (1 + std::exp(-logit));
  out.clicked = rng.uniform() < out.rate;
  return out;
}

void CtrModel::append_criteo(const CtrSample& sample, std::string& out) const {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "{}", sample.clicked ? 1 : 0);
  for (const int64_t number : sample.numbers) {
    if (number < 0) {
      out += '\t';
    } else {
      fmt::format_to(to, "\t{}", number);
    }
  }
  for (uint32_t f = 0; f < kCategories; ++f) {
    out += '\t';
    if (sample.categories[f] < 0) continue;
    const uint64_t hash = mix64(options_.seed ^ kHashStream ^ place(f, sample.categories[f]));
    fmt::format_to(to, "{:08x}", static_cast<uint32_t>(hash >> 32));
  }
  out += '\n';
}

void CtrModel::append_multislot(const CtrSample& sample, std::string& out) const {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "1 {}", sample.clicked ? 1 : 0);
  for (const int64_t number : sample.numbers) {
    fmt::format_to(to, " 1 {}", std::max<int64_t>(number, 0));
  }
  for (uint32_t f = 0; f < kCategories; ++f) {
    const int64_t id = sample.categories[f];
    const int64_t keys = id < 0 ? 0 : f < kCategories - 4 ? 1 : 1 + id % 3;
    fmt::format_to(to, " {}", keys);
    for (int64_t k = 0; k < keys; ++k) {
      fmt::format_to(to, " {}", mix64(options_.seed ^ kHashStream ^ place(f, id + k)));
    }
  }
  out += '\n';
}

}  // namespace starling
