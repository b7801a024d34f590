// GrpcChannel is the client side of `grpc`: one lane's connection to one lane of one server.
//
// Uses: net, gRPC. Threads: as Channel; replies are decoded on the polling threads of its
// GrpcClients.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <map>
#include <memory>

#include "base/buffer.h"
#include "base/gate.h"
#include "net/backoff.h"
#include "net/grpc/poller.h"
#include "net/options.h"
#include "net/transport.h"

namespace starling {

// What the channels of a process share: options, credentials, and the queue on which calls end.
class GrpcClients {
 public:
  // Codes as client_credentials(). The pool outlives it.
  static StatusOr<std::shared_ptr<GrpcClients>> start(const NetOptions& options, BufferPool& pool);
  // Waits for the calls that were cancelled when their channels went.
  ~GrpcClients();

 private:
  friend class GrpcChannel;
  GrpcClients(const NetOptions& options, BufferPool& pool,
              std::shared_ptr<grpc::ChannelCredentials> credentials);

  const NetOptions options_;
  BufferPool& pool_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  grpc::CompletionQueue queue_;
  Poller poller_;
  Gate calls_;
};

class GrpcChannel final : public Channel {
 public:
  GrpcChannel(const Target& target, std::shared_ptr<Lane> lane, ChannelSink& sink,
              std::shared_ptr<GrpcClients> clients);
  ~GrpcChannel() override;

  void start(CallId id, Method method, Message message, Deadline deadline) override;
  void cancel(CallId id) override;
  Status trouble() const override;

 private:
  class Call;
  struct Handle;
  void finished(CallId id, StatusOr<Message> result);
  void fail_later(CallId id, Status status);
  // While calls wait for a connection: tries again by our own back-off, and asks why it failed.
  void watch_connection();
  void look_at_connection();

  const Target target_;
  const std::shared_ptr<Lane> lane_;
  ChannelSink& sink_;
  const std::shared_ptr<GrpcClients> clients_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  const std::shared_ptr<Handle> handle_;
  std::map<CallId, std::shared_ptr<Call>> calls_;
  std::shared_ptr<Call> probe_;
  std::string last_error_;
  Backoff backoff_;
  TimerId timer_{};
};

}  // namespace starling
