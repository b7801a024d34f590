// Statuses between gRPC's and ours, and the channel that all gRPC callers of the benchmark use.
//
// Uses: base, gRPC. Threads: free functions over values.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace starling::bench {

inline grpc::Status to_grpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(message_of(status))};
}

inline Status from_grpc(const grpc::Status& status) {
  return Status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

inline std::shared_ptr<grpc::Channel> unlimited_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace starling::bench
