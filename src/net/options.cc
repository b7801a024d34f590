#include "net/options.h"

namespace starling {
namespace {

template <typename T>
Status in_range(std::string_view name, T value, T low, T high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return invalid_argument("net.{} = {} is outside of {} .. {}", name, value, low, high);
}

// Told in milliseconds, under the name that the job file has.
Status in_range_ms(std::string_view name, Duration value, Duration low, Duration high) {
  if (value >= low && value <= high) return absl::OkStatus();
  const auto in_ms = [](Duration time) { return static_cast<double>(time.count()) / 1e6; };
  return invalid_argument("net.{}_ms = {:g} is outside of {:g} .. {:.0f}", name, in_ms(value),
                          in_ms(low), in_ms(high));
}

}  // namespace

Status validate(const NetOptions& o) {
  STARLING_RETURN_IF_ERROR(in_range<int64_t>("spin_us", o.spin / microseconds(1), 0, 10'000));
  STARLING_RETURN_IF_ERROR(in_range("first_core", o.first_core, -1, 4095));
  STARLING_RETURN_IF_ERROR(
      in_range_ms("connect_timeout", o.connect_timeout, milliseconds(10), seconds(600)));
  STARLING_RETURN_IF_ERROR(
      in_range_ms("handshake_timeout", o.handshake_timeout, milliseconds(10), seconds(600)));
  STARLING_RETURN_IF_ERROR(in_range_ms("backoff_min", o.backoff_min, milliseconds(1), seconds(60)));
  STARLING_RETURN_IF_ERROR(in_range_ms("backoff_max", o.backoff_max, o.backoff_min, seconds(600)));
  STARLING_RETURN_IF_ERROR(in_range_ms("ping_every", o.ping_every, milliseconds(10), seconds(600)));
  STARLING_RETURN_IF_ERROR(
      in_range_ms("ping_timeout", o.ping_timeout, milliseconds(10), seconds(600)));
  STARLING_RETURN_IF_ERROR(
      in_range<size_t>("message_bytes_max", o.message_bytes_max, 4096, size_t{2} << 30));
  STARLING_RETURN_IF_ERROR(
      in_range<uint32_t>("connection_requests_max", o.connection_requests_max, 1, 1 << 20));
  STARLING_RETURN_IF_ERROR(
      in_range<size_t>("connection_bytes_max", o.connection_bytes_max, 4096, size_t{1} << 40));
  STARLING_RETURN_IF_ERROR(
      in_range<uint32_t>("client_channels_max", o.client_channels_max, 1, 1 << 20));
  STARLING_RETURN_IF_ERROR(
      in_range<size_t>("client_bytes_max", o.client_bytes_max, 4096, size_t{1} << 44));
  STARLING_RETURN_IF_ERROR(
      in_range<uint32_t>("server_requests_max", o.server_requests_max, 1, 1 << 30));
  STARLING_RETURN_IF_ERROR(
      in_range<size_t>("server_bytes_max", o.server_bytes_max, 4096, size_t{1} << 44));
  STARLING_RETURN_IF_ERROR(in_range<uint32_t>("handshakes_max", o.handshakes_max, 1, 1 << 20));
  STARLING_RETURN_IF_ERROR(in_range<uint32_t>("pool_threads", o.pool_threads, 1, 1024));
  STARLING_RETURN_IF_ERROR(in_range<uint32_t>("pool_queue_max", o.pool_queue_max, 1, 1 << 24));
  STARLING_RETURN_IF_ERROR(
      in_range<size_t>("lend_bytes_min", o.lend_bytes_min, 4096, size_t{1} << 40));
  if (o.tls.cert_file.empty() != o.tls.key_file.empty()) {
    return invalid_argument(
        "net.tls.cert_file and net.tls.key_file are given together or not at all");
  }
  return absl::OkStatus();
}

}  // namespace starling
