// The protobuf encoding of a TensorMessage, taken apart by hand where generated code would copy:
// tensors are found in place, everything else goes to the generated parser. Both codecs (frame.h,
// proto_codec.h) stand on this one.
//
// Uses: base, message.h. Threads: free functions and values. Private to the room.
#pragma once

#include <absl/container/inlined_vector.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "wire/message.h"

namespace starling::wire_internal {

using Slices = std::span<const std::span<const std::byte>>;

// A place in a run of slices: byte `offset` of slice `slice`.
struct Mark {
  size_t slice = 0;
  size_t offset = 0;
};

// Reads forward through slices as if they were one run of bytes.
class SliceReader {
 public:
  explicit SliceReader(Slices slices);

  uint64_t position() const { return position_; }
  uint64_t size() const { return size_; }
  Mark mark() const { return mark_; }

  // False, and nothing can be said about the position, when it would pass `end`, which is at most
  // size().
  bool read_varint(uint64_t end, uint64_t* value);
  bool skip(uint64_t end, uint64_t bytes);

 private:
  void advance(size_t bytes);

  Slices slices_;
  Mark mark_;
  uint64_t position_ = 0;
  uint64_t size_ = 0;
};

// Copies `bytes` from `mark` on, which must be there.
void copy_out(Slices slices, Mark mark, uint64_t bytes, std::byte* out);

struct TensorField {
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;       // as type and shape say
  uint64_t data_bytes = 0;  // what lies in the field itself
  Mark data;
};

struct Range {
  Mark mark;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Most messages have few tensors, and all else lies together: neither takes memory of its own then.
struct MessageFields {
  absl::InlinedVector<TensorField, 4> tensors;
  absl::InlinedVector<Range, 2> rest;  // all that is not a tensor, in order; neighbours are joined
};

// InvalidArgument: broken encoding, an unknown type, an illegal shape. ResourceExhausted: too many
// tensors.
Status split_fields(Slices slices, uint32_t tensors_max, MessageFields* fields);

// Parses the rest. ResourceExhausted above `bytes_max`, InvalidArgument when the generated parser
// refuses it.
Status parse_rest(Slices slices, const MessageFields& fields, uint64_t bytes_max,
                  v1::TensorMessage* out);

// The bytes of one `tensors` entry before its data: tag, length, type, shape and (with data) the
// data's tag and length.
size_t tensor_head_bytes(const Tensor& tensor, bool with_data);
std::byte* write_tensor_head(const Tensor& tensor, bool with_data, std::byte* out);

// The bytes that generated code writes for meta, which has no tensors in it.
size_t meta_bytes(const v1::TensorMessage& meta);
// Writes them; meta_bytes() of the same, unchanged message came before.
void write_meta(const v1::TensorMessage& meta, std::byte* out);
// The fields of meta itself that this build does not know. Generated code writes them behind all
// others.
std::string unknown_fields(const v1::TensorMessage& meta);

}  // namespace starling::wire_internal
