// CtrModel makes click logs from a hidden model: lines like Criteo's whose true click rates are
// known, so that what a trained model reaches can be compared with the best that any could.
//
// A sample depends on (seed, number) alone. 26 categorical fields have ids of Zipf frequency and
// hidden weights, some pairs of fields interact, 13 numbers add their logarithms.
// Uses: base. Threads: any; after making it nothing changes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace starling {

struct CtrOptions {
  uint64_t seed = 42;
  uint64_t keys = 2'000'000;   // ids of all categorical fields together
  double missing_rate = 0.03;  // of values that are not there
};

struct CtrSample {
  std::array<int64_t, 13> numbers{};     // negative: missing
  std::array<int64_t, 26> categories{};  // negative: missing
  double rate = 0;                       // the true chance of a click
  bool clicked = false;
};

class CtrModel {
 public:
  static constexpr uint32_t kNumbers = 13;
  static constexpr uint32_t kCategories = 26;

  explicit CtrModel(const CtrOptions& options);

  CtrSample sample(uint64_t number) const;
  // Label, 13 numbers and 26 categories of 8 hexadecimal digits, with tabs between them and a
  // newline behind.
  void append_criteo(const CtrSample& sample, std::string& out) const;
  // One slot per field: `1 label`, `1 number`, `n key ...`; the last four categories have up to
  // three keys, neighbours of the first.
  void append_multislot(const CtrSample& sample, std::string& out) const;
  uint64_t ids(uint32_t category) const { return ids_[category]; }

 private:
  double weight(uint32_t category, int64_t id) const;
  std::array<double, 2> factor(uint32_t category, int64_t id) const;

  const CtrOptions options_;
  std::array<uint64_t, kCategories> ids_{};
};

}  // namespace starling
