// The settings of gRPC that follow from NetOptions.
//
// Uses: net, gRPC. Threads: free functions.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "net/options.h"

namespace starling {

void tune_server(const NetOptions& options, grpc::ServerBuilder& builder);
grpc::ChannelArguments client_arguments(const NetOptions& options);

}  // namespace starling
