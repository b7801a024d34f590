#include "net/grpc/convert.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <climits>
#include <span>
#include <string>
#include <vector>

#include "wire/proto_codec.h"

namespace starling {
namespace {

// Below it a copy costs less than a reference-counted slice.
constexpr size_t kSliceBytesMin = 512;
constexpr size_t kStatusBytesMax = 2048;

grpc::Slice to_slice(const Buffer& piece) {
  if (piece.size() < kSliceBytesMin) return {piece.data(), piece.size()};
  auto* owner = new Buffer(piece);
  return {owner->mutable_data(), owner->size(), [](void* p) { delete static_cast<Buffer*>(p); },
          owner};
}

}  // namespace

grpc::ByteBuffer to_body(const Message& message) {
  std::vector<grpc::Slice> slices;
  const std::vector<Buffer> pieces = encode_proto(message);
  slices.reserve(pieces.size());
  for (const Buffer& piece : pieces) slices.push_back(to_slice(piece));
  // An empty message is a body of no bytes, but a body all the same.
  if (slices.empty()) slices.emplace_back();
  return {slices.data(), slices.size()};
}

StatusOr<Message> from_body(const grpc::ByteBuffer& body, const NetOptions& options,
                            BufferPool& pool) {
  std::vector<grpc::Slice> slices;
  if (!body.Dump(&slices).ok()) return internal_error("gRPC gave a body that cannot be read");
  std::vector<std::span<const std::byte>> spans;
  spans.reserve(slices.size());
  for (const grpc::Slice& slice : slices) {
    spans.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  return decode_proto(spans, &pool, {.payload_bytes_max = options.message_bytes_max});
}

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.raw_code()),
          std::string(message_of(status).substr(0, kStatusBytesMax))};
}

Status from_grpc(const grpc::Status& status) {
  return Status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

gpr_timespec to_grpc(Deadline deadline, TimePoint now) {
  if (deadline.is_never()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(deadline.left(now).count(), GPR_TIMESPAN));
}

Deadline from_grpc(gpr_timespec deadline, TimePoint now) {
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return Deadline::never();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  // Beyond a century nobody can tell the difference, and nanoseconds overflow.
  constexpr int64_t kSecondsMax = int64_t{100} * 365 * 24 * 3600;
  if (left.tv_sec >= kSecondsMax) return Deadline::never();
  return Deadline(now + seconds(std::max<int64_t>(left.tv_sec, -kSecondsMax)) +
                  nanoseconds(left.tv_nsec));
}

int clamp_int(uint64_t value) { return static_cast<int>(std::min<uint64_t>(value, INT_MAX)); }

int whole_ms(Duration duration) {
  return clamp_int(static_cast<uint64_t>(std::chrono::ceil<milliseconds>(duration).count()));
}

}  // namespace starling
