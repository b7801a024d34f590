#include "table/admission.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "table/hash.h"

namespace starling {

namespace {

template <class T>
void append(std::vector<std::byte>& out, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

template <class T>
T take(std::span<const std::byte>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

// For kinds that remember nothing.
class Stateless : public Admission {
 public:
  bool has_state() const override { return false; }
  void save(uint32_t, std::vector<std::byte>&) const override {}
  Status restore(uint32_t bucket, std::span<const std::byte> bytes) override {
    if (bytes.empty()) return {};
    return data_loss("bucket {}: {} bytes of admission state, none belong to this table", bucket,
                     bytes.size());
  }
  void drop(uint32_t) override {}
  size_t bytes() const override { return 0; }
};

class Always final : public Stateless {
 public:
  bool admit(const AdmissionEvent&) override { return true; }
};

// Draws per (seed, table, key, step), so the answer does not depend on who else was drawn for.
class Probability final : public Stateless {
 public:
  Probability(double probability, uint64_t seed, uint64_t stream)
      : probability_(probability), seed_(seed), stream_(stream) {}

  bool admit(const AdmissionEvent& event) override {
    Rng rng(mix64(seed_) ^ event.step, mix64(stream_), value(event.key));
    return rng.uniform() < probability_;
  }

 private:
  const double probability_;
  const uint64_t seed_;
  const uint64_t stream_;
};

// Exact counts (or scores) of a bounded number of keys per bucket, sorted by key.
class Candidates final : public Admission {
 public:
  Candidates(uint32_t count, double score, uint64_t candidates_max)
      : count_(count),
        score_(score),
        bucket_max_(static_cast<size_t>((candidates_max + kBuckets - 1) / kBuckets)) {}

  bool admit(const AdmissionEvent& event) override {
    std::vector<Entry>& list = buckets_[event.bucket];
    auto at = std::lower_bound(list.begin(), list.end(), event.key, before);
    const bool known = at != list.end() && at->key == event.key;
    Entry entry = known ? *at : Entry{event.key, 0, 0, 0};
    entry.count += 1;
    entry.score += event.score;
    entry.last_step = std::max(entry.last_step, event.step);
    if (count_ != 0 ? entry.count >= count_ : entry.score >= score_) {
      if (known) list.erase(at);
      return true;
    }
    if (known) {
      *at = entry;
    } else {
      list.insert(at, entry);
      if (list.size() > bucket_max_) list.erase(std::min_element(list.begin(), list.end(), older));
    }
    return false;
  }

  bool has_state() const override { return true; }

  void save(uint32_t bucket, std::vector<std::byte>& out) const override {
    for (const Entry& entry : buckets_[bucket]) {
      append(out, value(entry.key));
      append(out, entry.last_step);
      append(out, entry.score);
      append(out, entry.count);
    }
  }

  Status restore(uint32_t bucket, std::span<const std::byte> bytes) override {
    constexpr size_t kEntryBytes = 28;
    if (bytes.size() % kEntryBytes != 0 || bytes.size() / kEntryBytes > bucket_max_) {
      return data_loss("bucket {}: {} bytes are no list of at most {} candidates", bucket,
                       bytes.size(), bucket_max_);
    }
    std::vector<Entry> list;
    list.reserve(bytes.size() / kEntryBytes);
    while (!bytes.empty()) {
      Entry entry{};
      entry.key = Key{take<uint64_t>(bytes)};
      entry.last_step = take<uint64_t>(bytes);
      entry.score = take<double>(bytes);
      entry.count = take<uint32_t>(bytes);
      if (!list.empty() && !(list.back().key < entry.key)) {
        return data_loss("bucket {}: candidates are not sorted by key", bucket);
      }
      list.push_back(entry);
    }
    buckets_[bucket] = std::move(list);
    return {};
  }

  void drop(uint32_t bucket) override { std::vector<Entry>().swap(buckets_[bucket]); }

  size_t bytes() const override {
    size_t bytes = sizeof buckets_;
    for (const auto& list : buckets_) bytes += list.capacity() * sizeof(Entry);
    return bytes;
  }

 private:
  struct Entry {
    Key key;
    uint64_t last_step;
    double score;
    uint32_t count;
  };
  static bool before(const Entry& entry, Key key) { return entry.key < key; }
  static bool older(const Entry& a, const Entry& b) {
    return std::pair(a.last_step, a.key) < std::pair(b.last_step, b.key);
  }

  const uint32_t count_;  // 0: by score
  const double score_;
  const size_t bucket_max_;
  std::array<std::vector<Entry>, kBuckets> buckets_;
};

// A counting Bloom filter per bucket. A key that is admitted takes its own counts out again, so it
// starts as new when it comes back and the filter only holds keys that wait.
class Bloom final : public Admission {
 public:
  explicit Bloom(const AdmissionOptions& options)
      : count_(options.count),
        counters_(static_cast<uint32_t>(counters(options))),
        hashes_(std::max(
            1u, static_cast<uint32_t>(std::lround(counters_ / keys(options) * std::log(2.0))))) {}

  // That a bucket's filter needs; make_bloom() refuses more than a uint32_t counts.
  static double counters(const AdmissionOptions& options) {
    const double ln2 = std::log(2.0);
    return std::ceil(-keys(options) * std::log(options.false_positive_rate) / (ln2 * ln2));
  }

  bool admit(const AdmissionEvent& event) override {
    std::vector<uint8_t>& filter = buckets_[event.bucket];
    if (filter.empty()) filter.resize(counters_);
    uint8_t least = kFull;
    for_counters(event.key, [&](uint32_t at) {
      if (filter[at] != kFull) ++filter[at];
      least = std::min(least, filter[at]);
    });
    if (least < count_) return false;
    for_counters(event.key, [&](uint32_t at) {
      if (filter[at] != kFull)
        filter[at] = static_cast<uint8_t>(filter[at] - std::min<uint32_t>(filter[at], count_));
    });
    return true;
  }

  bool has_state() const override { return true; }

  void save(uint32_t bucket, std::vector<std::byte>& out) const override {
    const auto* bytes = reinterpret_cast<const std::byte*>(buckets_[bucket].data());
    out.insert(out.end(), bytes, bytes + buckets_[bucket].size());
  }

  Status restore(uint32_t bucket, std::span<const std::byte> bytes) override {
    if (!bytes.empty() && bytes.size() != counters_) {
      return data_loss("bucket {}: a Bloom filter of {} counters, this table's has {}", bucket,
                       bytes.size(), counters_);
    }
    const auto* counters = reinterpret_cast<const uint8_t*>(bytes.data());
    buckets_[bucket].assign(counters, counters + bytes.size());
    return {};
  }

  void drop(uint32_t bucket) override { std::vector<uint8_t>().swap(buckets_[bucket]); }

  size_t bytes() const override {
    size_t bytes = sizeof buckets_;
    for (const auto& filter : buckets_) bytes += filter.capacity();
    return bytes;
  }

 private:
  static constexpr uint8_t kFull = 255;

  // Buckets are not equally full: three deviations more than the mean.
  static double keys(const AdmissionOptions& options) {
    const double mean = static_cast<double>(options.expected_keys) / kBuckets;
    return std::max(1.0, mean + 3 * std::sqrt(mean));
  }

  // Each counter once, by double hashing; two hashes that meet count once.
  template <class Visit>
  void for_counters(Key key, Visit visit) const {
    const uint64_t first = mix64(~mixed_hash(key));
    const uint64_t step = mix64(first) | 1;
    std::array<uint32_t, 64> seen;
    uint32_t count = 0;
    for (uint32_t i = 0; i < std::min<uint32_t>(hashes_, seen.size()); ++i) {
      const uint32_t at = slot_bits((first + i * step) >> 32, counters_);
      if (std::find(seen.begin(), seen.begin() + count, at) != seen.begin() + count) continue;
      seen[count++] = at;
      visit(at);
    }
  }

  const uint32_t count_;
  const uint32_t counters_;
  const uint32_t hashes_;
  std::array<std::vector<uint8_t>, kBuckets> buckets_;
};

struct Making {
  const AdmissionOptions& options;
  uint64_t seed;
  uint64_t stream;
  std::string_view what;
};
using Made = StatusOr<std::unique_ptr<Admission>>;

Made make_always(const Making&) { return std::make_unique<Always>(); }

Status check_candidates(const Making& m) {
  const uint64_t most = m.options.candidates_max;
  if (most >= 1 && most <= uint64_t{1} << 40) return {};
  return invalid_argument("{}.candidates_max is {}, it must lie in [1, 2^40]", m.what, most);
}

Made make_count(const Making& m) {
  STARLING_RETURN_IF_ERROR(check_candidates(m));
  return std::make_unique<Candidates>(m.options.count, 0, m.options.candidates_max);
}

Made make_bloom(const Making& m) {
  if (m.options.expected_keys == 0 || m.options.expected_keys > uint64_t{1} << 40) {
    return invalid_argument("{}.keys is {}, it must lie in [1, 2^40]", m.what,
                            m.options.expected_keys);
  }
  if (!(m.options.false_positive_rate >= 1e-9 && m.options.false_positive_rate <= 0.5)) {
    return invalid_argument("{}.error_rate is {}, it must lie in [1e-9, 0.5]", m.what,
                            m.options.false_positive_rate);
  }
  if (m.options.count > 254) {
    return invalid_argument("{}.count is {}, a Bloom filter counts to 254", m.what,
                            m.options.count);
  }
  if (const double counters = Bloom::counters(m.options); counters > UINT32_MAX) {
    return invalid_argument("{}: {} keys at a rate of {} need {} counters in a bucket, at most {}",
                            m.what, m.options.expected_keys, m.options.false_positive_rate,
                            counters, UINT32_MAX);
  }
  return std::make_unique<Bloom>(m.options);
}

Made make_probability(const Making& m) {
  if (!(m.options.probability >= 0 && m.options.probability <= 1)) {
    return invalid_argument("{}.probability is {}, it must lie in [0, 1]", m.what,
                            m.options.probability);
  }
  return std::make_unique<Probability>(m.options.probability, m.seed, m.stream);
}

Made make_score(const Making& m) {
  if (!(m.options.score > 0 && m.options.score <= 1e30)) {
    return invalid_argument("{}.threshold is {}, it must lie in (0, 1e30]", m.what,
                            m.options.score);
  }
  STARLING_RETURN_IF_ERROR(check_candidates(m));
  return std::make_unique<Candidates>(0, m.options.score, m.options.candidates_max);
}

// The list. A new kind is a class and a line here.
constexpr struct {
  std::string_view kind;
  Made (*make)(const Making& making);
} kKinds[] = {{"always", make_always},
              {"count", make_count},
              {"bloom", make_bloom},
              {"probability", make_probability},
              {"score", make_score}};

}  // namespace

StatusOr<std::unique_ptr<Admission>> make_admission(const AdmissionOptions& options, uint64_t seed,
                                                    uint64_t stream, std::string_view what) {
  if (options.count == 0) return invalid_argument("{}.count is 0, it must be >= 1", what);
  for (const auto& entry : kKinds) {
    if (entry.kind == options.kind) return entry.make({options, seed, stream, what});
  }
  return invalid_argument("{}: no admission is called '{}'", what, options.kind);
}

}  // namespace starling
