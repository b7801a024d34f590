#include "data/shuffle.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "base/rng.h"

namespace starling {
namespace {

constexpr uint64_t kStream = 0x73687566666c65;  // apart from every other use of the seed

// Which keys and numbers of a sample move together.
struct Moved {
  bool keys = false;
  uint32_t field = 0;                // of keys
  uint32_t number = 0, numbers = 0;  // where they stand and how many
  std::vector<uint32_t> from;        // (samples)
};

StatusOr<Moved> find_field(const SampleSchema& schema, const std::string& name) {
  Moved moved;
  for (uint32_t i = 0; i < schema.keys.size(); ++i) {
    if (schema.keys[i].name != name) continue;
    moved.keys = true;
    moved.field = i;
    return moved;
  }
  const auto first = std::find(schema.dense.begin(), schema.dense.end(), name);
  if (first == schema.dense.end())
    return invalid_argument("slots_shuffle: no field of keys or dense numbers named {}", name);
  moved.number = static_cast<uint32_t>(first - schema.dense.begin());
  moved.numbers = static_cast<uint32_t>(std::count(first, schema.dense.end(), name));
  return moved;
}

// Blocks of a bounded number of samples.
class BlockList {
 public:
  BlockList(std::shared_ptr<const SampleSchema> schema, uint32_t block_samples)
      : schema_(std::move(schema)), block_samples_(std::max(block_samples, 1U)) {}

  SampleBlock& next() {
    if (blocks_.empty() || blocks_.back().samples() >= block_samples_ ||
        blocks_.back().keys() > kBlockKeysMax) {
      if (!blocks_.empty()) blocks_.back().compact();
      blocks_.emplace_back(schema_);
    }
    return blocks_.back();
  }
  std::vector<SampleBlock> take() {
    if (!blocks_.empty()) blocks_.back().compact();
    return std::move(blocks_);
  }

 private:
  std::shared_ptr<const SampleSchema> schema_;
  uint32_t block_samples_;
  std::vector<SampleBlock> blocks_;
};

void copy_moved(std::span<const SampleRef> samples, size_t at, std::span<const Moved> moved,
                SampleBlock& out) {
  const SampleRef& own = samples[at];
  float* numbers = out.begin();
  const auto own_numbers = own.block->numbers(own.sample);
  std::copy(own_numbers.begin(), own_numbers.end(), numbers);
  std::vector<std::pair<uint32_t, Key>> keys;
  own.block->for_each_key(own.sample, [&](uint32_t field, Key key) {
    const bool moves = std::any_of(moved.begin(), moved.end(),
                                   [&](const Moved& m) { return m.keys && m.field == field; });
    if (!moves) keys.emplace_back(field, key);
  });
  for (const Moved& m : moved) {
    const SampleRef& other = samples[m.from[at]];
    if (m.keys) {
      other.block->for_each_key(other.sample, [&](uint32_t field, Key key) {
        if (field == m.field) keys.emplace_back(field, key);
      });
    } else {
      std::copy_n(other.block->numbers(other.sample).data() + m.number, m.numbers,
                  numbers + m.number);
    }
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [field, key] : keys) out.add_key(field, key);
  out.end(own.block->id(own.sample), own.block->group(own.sample));
}

void copy_merged(std::span<const SampleRef> samples, std::span<const uint32_t> members,
                 SampleBlock& out) {
  const SampleRef& first = samples[members[0]];
  const auto numbers = first.block->numbers(first.sample);
  std::copy(numbers.begin(), numbers.end(), out.begin());
  std::vector<std::pair<uint32_t, Key>> keys;
  for (const uint32_t member : members) {
    const SampleRef& ref = samples[member];
    ref.block->for_each_key(ref.sample,
                            [&](uint32_t field, Key key) { keys.emplace_back(field, key); });
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  uint32_t field = 0, of_field = 0;
  for (const auto& [of, key] : keys) {
    of_field = of == field ? of_field + 1 : 1;
    field = of;
    if (of_field <= out.schema().keys[field].keys_max) out.add_key(field, key);
  }
  out.end(first.block->id(first.sample), first.block->group(first.sample));
}

}  // namespace

std::vector<uint32_t> permutation(const ShufflePlace& place, uint32_t n) {
  const uint64_t stream = mix64(kStream ^ (uint64_t{place.epoch} << 32 | place.item));
  Rng rng(place.seed, stream, place.block);
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  for (uint32_t left = n; left > 1; --left)
    std::swap(order[left - 1], order[static_cast<size_t>(rng.below(left))]);
  return order;
}

StatusOr<std::vector<SampleBlock>> slots_shuffle(std::span<const SampleRef> samples,
                                                 const std::vector<std::string>& fields,
                                                 const ShufflePlace& place,
                                                 uint32_t block_samples) {
  if (samples.empty()) return std::vector<SampleBlock>();
  const auto& schema = samples[0].block->shared_schema();
  std::vector<Moved> moved;
  for (const std::string& name : fields) {
    STARLING_ASSIGN_OR_RETURN(Moved found, find_field(*schema, name));
    ShufflePlace own = place;
    own.seed = mix64(place.seed ^ mix64(moved.size() + 1));
    found.from = permutation(own, static_cast<uint32_t>(samples.size()));
    moved.push_back(std::move(found));
  }
  BlockList out(schema, block_samples);
  for (size_t i = 0; i < samples.size(); ++i) copy_moved(samples, i, moved, out.next());
  return out.take();
}

StatusOr<std::vector<SampleBlock>> merge_by_id(std::span<const SampleRef> samples,
                                               uint32_t block_samples) {
  if (samples.empty()) return std::vector<SampleBlock>();
  const auto& schema = samples[0].block->shared_schema();
  if (!schema->has_id) return invalid_argument("merge by id: the dataset has no field of kind id");
  std::unordered_map<std::string_view, size_t> place_of;
  std::vector<std::vector<uint32_t>> members;
  for (uint32_t i = 0; i < samples.size(); ++i) {
    const std::string_view id = samples[i].block->id(samples[i].sample);
    const auto [it, is_new] = place_of.emplace(id, members.size());
    if (is_new || id.empty()) {
      members.push_back({i});
    } else {
      members[it->second].push_back(i);
    }
  }
  BlockList out(schema, block_samples);
  for (const std::vector<uint32_t>& group : members) copy_merged(samples, group, out.next());
  return out.take();
}

}  // namespace starling
