// Whole rows and whole buckets: set, export, import, drop. docs/format/table.md describes the
// bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "table/table.h"

namespace starling {

namespace {

constexpr uint32_t kImageMagic = 0x31544253;  // "SBT1"

struct ImageHeader {
  uint32_t magic;
  uint16_t bucket;
  uint8_t storage;     // DType
  uint8_t statistics;  // bits: 1 click, 2 last step, 4 touches, 8 second
  uint32_t dim;
  uint32_t state_floats;
  uint64_t rows;
  uint64_t admission_bytes;
};
static_assert(sizeof(ImageHeader) == 32);

uint8_t statistics_bits(const RowLayout& layout) {
  return static_cast<uint8_t>((layout.click != 0 ? 1 : 0) | (layout.last_step != 0 ? 2 : 0) |
                              (layout.touches != 0 ? 4 : 0) | (layout.second != 0 ? 8 : 0));
}

// Bytes of a row in an image: the key, the weights, the state, the statistics, without padding
// between.
size_t image_row_bytes(const RowLayout& layout) {
  return sizeof(uint64_t) + layout.weight_bytes + layout.state_floats * sizeof(float) +
         (layout.payload_end - layout.statistics);
}

// The runs of bytes of a row, one after the other in an image; what touches is one run.
class ImageParts {
 public:
  explicit ImageParts(const RowLayout& layout) {
    add(0, sizeof(uint64_t));
    add(kWeightsOffset, layout.weight_bytes);
    add(layout.state, layout.state_floats * sizeof(float));
    add(layout.statistics, layout.payload_end - layout.statistics);
  }
  // Where the next row's bytes go.
  std::byte* write(const std::byte* row, std::byte* image) const {
    for (size_t p = 0; p < count_; ++p) {
      std::memcpy(image, row + parts_[p].offset, parts_[p].bytes);
      image += parts_[p].bytes;
    }
    return image;
  }
  // Where the next row's bytes are.
  const std::byte* read(const std::byte* image, std::byte* row) const {
    for (size_t p = 0; p < count_; ++p) {
      std::memcpy(row + parts_[p].offset, image, parts_[p].bytes);
      image += parts_[p].bytes;
    }
    return image;
  }

 private:
  struct Part {
    size_t offset;
    size_t bytes;
  };
  void add(size_t offset, size_t bytes) {
    if (bytes == 0) return;
    if (count_ > 0 && parts_[count_ - 1].offset + parts_[count_ - 1].bytes == offset) {
      parts_[count_ - 1].bytes += bytes;
    } else {
      parts_[count_++] = {offset, bytes};
    }
  }

  std::array<Part, 4> parts_;
  size_t count_ = 0;
};

using KeyedRow = std::pair<Key, const std::byte*>;

// By key, a byte of it at a time from the lowest; bytes that all keys share are left out.
void sort_by_key(std::vector<KeyedRow>& rows) {
  constexpr size_t kBytes = sizeof(Key);
  constexpr size_t kFew = 256;  // not worth the counting
  if (rows.size() < kFew) return std::sort(rows.begin(), rows.end());
  std::array<std::array<uint32_t, 256>, kBytes> counts{};
  for (const KeyedRow& row : rows) {
    for (size_t b = 0; b < kBytes; ++b) ++counts[b][value(row.first) >> (8 * b) & 0xff];
  }
  std::vector<KeyedRow> other(rows.size());
  for (size_t b = 0; b < kBytes; ++b) {
    const auto byte_of = [b](const KeyedRow& row) { return value(row.first) >> (8 * b) & 0xff; };
    if (counts[b][byte_of(rows[0])] == rows.size()) continue;
    std::exclusive_scan(counts[b].begin(), counts[b].end(), counts[b].begin(), uint32_t{0});
    for (const KeyedRow& row : rows) other[counts[b][byte_of(row)]++] = row;
    rows.swap(other);
  }
}

// The bytes of docs/format/table.md.
void make_image(const RowLayout& layout, uint32_t bucket, std::vector<KeyedRow> rows,
                std::span<const std::byte> admission, std::vector<std::byte>& image) {
  sort_by_key(rows);
  const ImageHeader header{kImageMagic,
                           static_cast<uint16_t>(bucket),
                           static_cast<uint8_t>(layout.storage),
                           statistics_bits(layout),
                           static_cast<uint32_t>(layout.dim),
                           static_cast<uint32_t>(layout.state_floats),
                           rows.size(),
                           admission.size()};
  image.resize(sizeof header + rows.size() * image_row_bytes(layout) + admission.size());
  std::memcpy(image.data(), &header, sizeof header);
  std::byte* to = image.data() + sizeof header;
  const ImageParts parts(layout);
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(rows[i + kAhead].second);
    to = parts.write(rows[i].second, to);
  }
  std::copy(admission.begin(), admission.end(), to);
}

}  // namespace

bool Table::passes(const RowFilter& filter, const std::byte* row) const {
  if (filter.since != 0 && stamp_of(row) + stamp_base_ <= filter.since) return false;
  if (filter.save == SaveFilter::kAll) return true;
  return save_takes(options_.statistics, filter.save, layout_.read_statistics(row));
}

void BucketRows::make_image(std::vector<std::byte>& image) const {
  std::vector<KeyedRow> list;
  list.reserve(size());
  for (size_t at = 0; at < rows.size(); at += layout.stride) {
    list.emplace_back(key_of(rows.data() + at), rows.data() + at);
  }
  starling::make_image(layout, value(bucket), std::move(list), admission, image);
}

std::vector<std::byte> Table::export_bucket(BucketId bucket, const RowFilter& filter) const {
  std::vector<const std::byte*> rows;
  rows.reserve(rows_in(bucket));
  index_->for_each(value(bucket), [&](RowNumber row) {
    __builtin_prefetch(slabs_->at(row));
    rows.push_back(slabs_->at(row));
  });
  std::erase_if(rows, [&](const std::byte* row) { return !passes(filter, row); });
  std::vector<KeyedRow> list;
  list.reserve(rows.size());
  for (const std::byte* row : rows) list.emplace_back(key_of(row), row);
  std::vector<std::byte> admission;
  admission_->save(value(bucket), admission);
  std::vector<std::byte> image;
  make_image(layout_, value(bucket), std::move(list), admission, image);
  return image;
}

Status Table::check_image(std::span<const std::byte> image) const {
  ImageHeader header;
  if (image.size() < sizeof header) {
    return data_loss("table '{}': a bucket image of {} bytes has no header", options_.name,
                     image.size());
  }
  std::memcpy(&header, image.data(), sizeof header);
  if (header.magic != kImageMagic || header.bucket >= kBuckets) {
    return data_loss("table '{}': not a bucket image", options_.name);
  }
  if (header.dim != layout_.dim || header.state_floats != layout_.state_floats ||
      header.storage != static_cast<uint8_t>(layout_.storage) ||
      header.statistics != statistics_bits(layout_)) {
    return data_loss(
        "table '{}': an image of dim {} with {} state floats, storage {}, statistics {}, is of "
        "another table",
        options_.name, header.dim, header.state_floats, header.storage, header.statistics);
  }
  const size_t row_bytes = image_row_bytes(layout_);
  const size_t body = image.size() - sizeof header;
  if (header.rows > body / row_bytes || header.admission_bytes != body - header.rows * row_bytes) {
    return data_loss("table '{}': {} rows and {} bytes of admission state do not fill {} bytes",
                     options_.name, header.rows, header.admission_bytes, body);
  }
  const std::byte* at = image.data() + sizeof header;
  for (uint64_t i = 0; i < header.rows; ++i, at += row_bytes) {
    const Key key = key_of(at);
    if (!options_.placement.holds(key) || bucket_of(key, mixed_hash(key)) != header.bucket) {
      return data_loss("table '{}': key {} is not of bucket {}", options_.name, value(key),
                       header.bucket);
    }
    if (i > 0 && !(key_of(at - row_bytes) < key)) {
      return data_loss("table '{}': bucket {}: rows are not sorted by key", options_.name,
                       header.bucket);
    }
  }
  return {};
}

std::byte* Table::row_to_set(Key key) {
  const uint64_t hash = mixed_hash(key);
  const uint32_t bucket = bucket_of(key, hash);
  RowNumber row = index_->find(bucket, hash, key);
  if (row == kNoRow) {
    if (options_.eviction.by_capacity()) make_room(bucket);
    row = create(key, hash, bucket);
  } else {
    if (snapshot_ != nullptr) preserve(bucket, row);
    set_stamp(slabs_->at(row), stamp());
  }
  return slabs_->at(row);
}

Status Table::import_bucket(std::span<const std::byte> image) {
  STARLING_RETURN_IF_ERROR(check_image(image));
  ImageHeader header;
  std::memcpy(&header, image.data(), sizeof header);
  STARLING_RETURN_IF_ERROR(slabs_->reserve(header.rows));
  if (snapshot_ != nullptr) preserve_admission(header.bucket);
  STARLING_RETURN_IF_ERROR(
      admission_->restore(header.bucket, image.last(static_cast<size_t>(header.admission_bytes))));
  begin_operation();
  const bool is_new =
      rows_in(BucketId{header.bucket}) == 0 && snapshot_ == nullptr && victims_.empty();
  if (is_new) index_->reserve(header.bucket, static_cast<uint32_t>(header.rows));
  const ImageParts parts(layout_);
  const std::byte* from = image.data() + sizeof header;
  for (uint64_t i = 0; i < header.rows; ++i) {
    std::byte* row = is_new ? new_row(header.bucket, key_of(from)) : row_to_set(key_of(from));
    from = parts.read(from, row);
    offer_victim(header.bucket, row);
  }
  if (is_new) {
    live_rows_ += header.rows;
    ++generation_;
  }
  return {};
}

// A row of a key that has none, all of which the caller writes: no first values, no search.
std::byte* Table::new_row(uint32_t bucket, Key key) {
  const RowNumber row = slabs_->take();
  std::byte* data = slabs_->at(row);
  std::memcpy(data, &key, sizeof key);
  set_stamp(data, stamp());
  index_->insert(bucket, mixed_hash(key), row);
  return data;
}

Status Table::set(std::span<const Key> keys, const RowBatch& values) {
  STARLING_RETURN_IF_ERROR(check_keys(keys));
  const size_t n = keys.size();
  const size_t dim = layout_.dim;
  const size_t state_floats = layout_.state_floats;
  if (values.weights.size() != n * dim || values.state.size() != n * state_floats ||
      values.statistics.size() != n) {
    return invalid_argument(
        "table '{}': set of {} keys with {} weights, {} state floats, {} statistics", options_.name,
        n, values.weights.size(), values.state.size(), values.statistics.size());
  }
  STARLING_RETURN_IF_ERROR(slabs_->reserve(n));
  begin_operation();
  for (size_t i = 0; i < n; ++i) {
    std::byte* row = row_to_set(keys[i]);
    write_weights(row, {values.weights.data() + i * dim, dim});
    std::copy_n(values.state.begin() + static_cast<ptrdiff_t>(i * state_floats), state_floats,
                layout_.state_of(row));
    layout_.write_statistics(row, values.statistics[i]);
    offer_victim(bucket_of(keys[i], mixed_hash(keys[i])), row);
  }
  return {};
}

std::vector<Key> Table::keys_in(BucketId bucket) const {
  std::vector<Key> keys;
  keys.reserve(rows_in(bucket));
  index_->for_each(value(bucket), [&](RowNumber row) { keys.push_back(key_of(slabs_->at(row))); });
  std::sort(keys.begin(), keys.end());
  return keys;
}

void Table::empty_bucket(uint32_t bucket) {
  if (snapshot_ != nullptr) preserve_admission(bucket);
  std::vector<RowNumber> rows;
  rows.reserve(index_->rows_in(bucket));
  index_->for_each(bucket, [&](RowNumber row) { rows.push_back(row); });
  for (const RowNumber row : rows) {
    forget(key_of(slabs_->at(row)));
    discard(bucket, row);
  }
  index_->drop(bucket);
  admission_->drop(bucket);
  if (!victims_.empty()) victims_[bucket].clear();
}

void Table::drop_bucket(BucketId bucket) {
  begin_operation();
  counts_.erased += rows_in(bucket);
  empty_bucket(value(bucket));
}

}  // namespace starling
