#include "wire/fields.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"

namespace starling::wire_internal {
namespace {

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLength = 2,
  kGroupStart = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

constexpr uint32_t kTensorsField = v1::TensorMessage::kTensorsFieldNumber;
constexpr uint32_t kTensorsTag = kTensorsField << 3 | kLength;
constexpr uint32_t kDTypeTag = v1::Tensor::kDtypeFieldNumber << 3 | kVarint;
constexpr uint32_t kShapeTag = v1::Tensor::kShapeFieldNumber << 3 | kVarint;
constexpr uint32_t kShapePackedTag = v1::Tensor::kShapeFieldNumber << 3 | kLength;
constexpr uint32_t kDataTag = v1::Tensor::kDataFieldNumber << 3 | kLength;
constexpr int kGroupDepthMax = 32;

size_t varint_bytes(uint64_t value) {
  return (static_cast<size_t>(64 - __builtin_clzll(value | 1)) + 6) / 7;
}

std::byte* write_varint(uint64_t value, std::byte* out) {
  while (value >= 0x80) {
    *out++ = static_cast<std::byte>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::byte>(value);
  return out;
}

size_t shape_bytes(const Tensor& tensor) {
  size_t bytes = 0;
  for (const int64_t extent : tensor.shape()) bytes += varint_bytes(static_cast<uint64_t>(extent));
  return bytes;
}

// The length of the entry's content, data included.
size_t tensor_content_bytes(const Tensor& tensor, bool with_data) {
  size_t bytes = tensor.dtype() == DType::kInvalid ? 0 : 2;
  if (const size_t shape = shape_bytes(tensor); shape != 0)
    bytes += 1 + varint_bytes(shape) + shape;
  if (with_data && tensor.bytes() != 0) bytes += 1 + varint_bytes(tensor.bytes()) + tensor.bytes();
  return bytes;
}

bool read_tag(SliceReader& reader, uint64_t end, uint32_t* tag) {
  uint64_t value = 0;
  if (!reader.read_varint(end, &value) || value > UINT32_MAX || value >> 3 == 0) return false;
  *tag = static_cast<uint32_t>(value);
  return true;
}

// Steps over the value that follows `tag`. Groups are not ours, but a stranger's unknown field may
// be one.
bool skip_value(SliceReader& reader, uint64_t end, uint32_t tag) {
  std::vector<uint32_t> open;  // fields of the groups we are in
  for (;;) {
    uint64_t value = 0;
    switch (tag & 7) {
      case kVarint:
        if (!reader.read_varint(end, &value)) return false;
        break;
      case kFixed64:
        if (!reader.skip(end, 8)) return false;
        break;
      case kLength:
        if (!reader.read_varint(end, &value) || !reader.skip(end, value)) return false;
        break;
      case kFixed32:
        if (!reader.skip(end, 4)) return false;
        break;
      case kGroupStart:
        if (open.size() == kGroupDepthMax) return false;
        open.push_back(tag >> 3);
        break;
      case kGroupEnd:
        if (open.empty() || open.back() != tag >> 3) return false;
        open.pop_back();
        break;
      default:
        return false;
    }
    if (open.empty()) return true;
    if (!read_tag(reader, end, &tag)) return false;
  }
}

bool add_extent(uint64_t extent, TensorField* field) {
  // One more than is legal is kept, so that tensor_bytes() can say what is wrong.
  if (field->shape.size() > kTensorRankMax) return false;
  field->shape.push_back(static_cast<int64_t>(extent));
  return true;
}

bool read_packed_shape(SliceReader& reader, uint64_t end, TensorField* field) {
  uint64_t length = 0;
  if (!reader.read_varint(end, &length) || length > end - reader.position()) return false;
  const uint64_t shape_end = reader.position() + length;
  if (field->shape.empty()) field->shape.reserve(std::min<uint64_t>(length, kTensorRankMax));
  while (reader.position() < shape_end) {
    uint64_t extent = 0;
    if (!reader.read_varint(shape_end, &extent) || !add_extent(extent, field)) return false;
  }
  return true;
}

// As protobuf merges: the last type and the last data count, extents are appended, unknown fields
// are dropped.
bool read_tensor(SliceReader& reader, uint64_t end, TensorField* field) {
  while (reader.position() < end) {
    uint32_t tag = 0;
    uint64_t value = 0;
    if (!read_tag(reader, end, &tag)) return false;
    switch (tag) {
      case kDTypeTag:
        if (!reader.read_varint(end, &value)) return false;
        field->dtype = value < kDTypes ? static_cast<DType>(value) : DType::kInvalid;
        break;
      case kShapeTag:
        if (!reader.read_varint(end, &value) || !add_extent(value, field)) return false;
        break;
      case kShapePackedTag:
        if (!read_packed_shape(reader, end, field)) return false;
        break;
      case kDataTag:
        if (!reader.read_varint(end, &field->data_bytes)) return false;
        field->data = reader.mark();
        if (!reader.skip(end, field->data_bytes)) return false;
        break;
      default:
        if (!skip_value(reader, end, tag)) return false;
    }
  }
  return true;
}

void add_rest(Mark mark, uint64_t begin, uint64_t end, absl::InlinedVector<Range, 2>* rest) {
  if (!rest->empty() && rest->back().end == begin) {
    rest->back().end = end;
  } else {
    rest->push_back({mark, begin, end});
  }
}

}  // namespace

SliceReader::SliceReader(Slices slices) : slices_(slices) {
  for (const auto& slice : slices) size_ += slice.size();
  advance(0);
}

// Leaves the mark inside a slice that has bytes, or behind the last.
void SliceReader::advance(size_t bytes) {
  position_ += bytes;
  mark_.offset += bytes;
  while (mark_.slice < slices_.size() && mark_.offset >= slices_[mark_.slice].size()) {
    mark_.offset -= slices_[mark_.slice].size();
    ++mark_.slice;
  }
}

bool SliceReader::read_varint(uint64_t end, uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (position_ >= end) return false;
    const auto byte = static_cast<uint64_t>(slices_[mark_.slice][mark_.offset]);
    advance(1);
    result |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      if (shift == 63 && byte > 1) return false;
      *value = result;
      return true;
    }
  }
  return false;
}

bool SliceReader::skip(uint64_t end, uint64_t bytes) {
  if (position_ > end || bytes > end - position_) return false;
  advance(bytes);
  return true;
}

void copy_out(Slices slices, Mark mark, uint64_t bytes, std::byte* out) {
  while (bytes > 0) {
    STARLING_CHECK(mark.slice < slices.size(), "copy beyond the last slice");
    const auto& slice = slices[mark.slice];
    const size_t here = std::min<uint64_t>(bytes, slice.size() - mark.offset);
    std::memcpy(out, slice.data() + mark.offset, here);
    out += here;
    bytes -= here;
    mark = {mark.slice + 1, 0};
  }
}

Status split_fields(Slices slices, uint32_t tensors_max, MessageFields* fields) {
  SliceReader reader(slices);
  const uint64_t end = reader.size();
  while (reader.position() < end) {
    const Mark mark = reader.mark();
    const uint64_t begin = reader.position();
    uint32_t tag = 0;
    if (!read_tag(reader, end, &tag)) {
      return invalid_argument("message is broken at byte {} of {}: no field tag", begin, end);
    }
    if (tag != kTensorsTag) {
      if (!skip_value(reader, end, tag)) {
        return invalid_argument("message is broken at byte {} of {}: field {}", begin, end,
                                tag >> 3);
      }
      add_rest(mark, begin, reader.position(), &fields->rest);
      continue;
    }
    const size_t index = fields->tensors.size();
    if (index >= tensors_max) {
      return resource_exhausted("message has more than {} tensors", tensors_max);
    }
    uint64_t length = 0;
    TensorField& field = fields->tensors.emplace_back();
    if (!reader.read_varint(end, &length) || length > end - reader.position() ||
        !read_tensor(reader, reader.position() + length, &field)) {
      return invalid_argument("message is broken at byte {} of {}: tensor {}", begin, end, index);
    }
    StatusOr<size_t> bytes = tensor_bytes(field.dtype, field.shape);
    if (!bytes.ok()) return with_context(bytes.status(), fmt::format("tensor {}", index));
    field.bytes = *bytes;
  }
  return absl::OkStatus();
}

Status parse_rest(Slices slices, const MessageFields& fields, uint64_t bytes_max,
                  v1::TensorMessage* out) {
  uint64_t bytes = 0;
  for (const Range& range : fields.rest) bytes += range.end - range.begin;
  if (bytes > bytes_max || bytes > INT32_MAX) {
    return resource_exhausted("message has {} bytes beside its tensors, the limit is {}", bytes,
                              bytes_max);
  }
  if (bytes == 0) {
    out->Clear();
    return absl::OkStatus();
  }
  const std::byte* data = nullptr;
  std::string joined;
  const Mark first = fields.rest.front().mark;
  if (fields.rest.size() == 1 && slices[first.slice].size() - first.offset >= bytes) {
    data = slices[first.slice].data() + first.offset;
  } else {
    joined.resize(bytes);
    auto* at = reinterpret_cast<std::byte*>(joined.data());
    data = at;
    for (const Range& range : fields.rest) {
      copy_out(slices, range.mark, range.end - range.begin, at);
      at += range.end - range.begin;
    }
  }
  if (!out->ParseFromArray(data, static_cast<int>(bytes))) {
    return invalid_argument("message of {} bytes is no TensorMessage", bytes);
  }
  return absl::OkStatus();
}

size_t tensor_head_bytes(const Tensor& tensor, bool with_data) {
  const size_t content = tensor_content_bytes(tensor, with_data);
  return varint_bytes(kTensorsTag) + varint_bytes(content) + content -
         (with_data ? tensor.bytes() : 0);
}

std::byte* write_tensor_head(const Tensor& tensor, bool with_data, std::byte* out) {
  out = write_varint(kTensorsTag, out);
  out = write_varint(tensor_content_bytes(tensor, with_data), out);
  if (tensor.dtype() != DType::kInvalid) {
    out = write_varint(kDTypeTag, out);
    out = write_varint(static_cast<uint64_t>(tensor.dtype()), out);
  }
  if (const size_t shape = shape_bytes(tensor); shape != 0) {
    out = write_varint(kShapePackedTag, out);
    out = write_varint(shape, out);
    for (const int64_t extent : tensor.shape()) {
      out = write_varint(static_cast<uint64_t>(extent), out);
    }
  }
  if (with_data && tensor.bytes() != 0) {
    out = write_varint(kDataTag, out);
    out = write_varint(tensor.bytes(), out);
  }
  return out;
}

size_t meta_bytes(const v1::TensorMessage& meta) {
  STARLING_CHECK(meta.tensors().empty(), "a message keeps its tensors beside meta");
  return meta.ByteSizeLong();
}

std::string unknown_fields(const v1::TensorMessage& meta) {
  std::string bytes;
  const auto& fields = meta.GetReflection()->GetUnknownFields(meta);
  if (!fields.empty()) {
    STARLING_CHECK(fields.SerializeToString(&bytes), "unknown fields must serialize");
  }
  return bytes;
}

void write_meta(const v1::TensorMessage& meta, std::byte* out) {
  meta.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out));
}

}  // namespace starling::wire_internal
