#include "net/grpc/tuning.h"

#include <grpcpp/resource_quota.h>

#include <algorithm>

#include "net/grpc/convert.h"

namespace starling {
namespace {

// Large enough to spare headers, small enough for the reader to work while the rest is on its way.
constexpr int kFrameBytes = 64 << 10;
// gRPC reads into blocks of up to 4 MB, which the allocator maps, and faults in, anew each time.
constexpr int kReadBytesMax = 64 << 10;
// What a sender may send before it hears from the reader. Fixed: gRPC's own estimate starts small
// and is taken from the wire's delay, while ours is a wire with almost none.
constexpr int kWindowBytes = 16 << 20;

// Calls `set(name, value)` for what clients and servers have in common.
template <typename Set>
void tune_both(const NetOptions& options, Set set) {
  const int message_bytes = clamp_int(options.message_bytes_max);
  set(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, message_bytes);
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, message_bytes);
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytesMax);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, whole_ms(options.ping_every));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, whole_ms(options.ping_timeout));
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

void tune_server(const NetOptions& options, grpc::ServerBuilder& builder) {
  tune_both(options, [&](const char* name, int value) { builder.AddChannelArgument(name, value); });
  builder.SetMaxReceiveMessageSize(clamp_int(options.message_bytes_max));
  builder.SetMaxSendMessageSize(clamp_int(options.message_bytes_max));
  builder.SetResourceQuota(
      grpc::ResourceQuota("starling").Resize(options.server_bytes_max + options.message_bytes_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             clamp_int(options.connection_requests_max));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             whole_ms(options.handshake_timeout));
  // Clients may ping as often as they like, also while they have nothing to ask.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1);
}

grpc::ChannelArguments client_arguments(const NetOptions& options) {
  grpc::ChannelArguments arguments;
  tune_both(options, [&](const char* name, int value) { arguments.SetInt(name, value); });
  // Without a policy, which nobody sets, gRPC starts only those calls anew that never left this
  // process or that the server has said it did not look at: a call made in the instant in which the
  // connection breaks waits for the next one, as it must. What a server may have run is never sent
  // twice.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 1);
  // Each lane has a connection of its own: nothing shared, no lane behind another's large message.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, whole_ms(options.backoff_min));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, whole_ms(options.backoff_max));
  // By its name a pause, in fact the time that an attempt to connect is given.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, whole_ms(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  // Peers are inside of the cluster: a proxy of the environment must not see them.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  if (!options.tls.server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls.server_name);
  }
  return arguments;
}

}  // namespace starling
