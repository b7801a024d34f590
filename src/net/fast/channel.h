// FastChannel is the client's end of grpc++: one connection from one lane here to one lane of a
// server.
//
// Uses: net. Threads: lane-local.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/backoff.h"
#include "net/fast/lend.h"
#include "net/fast/shared.h"
#include "net/fast/socket.h"
#include "net/fast/stream.h"
#include "net/loop_lane.h"
#include "net/transport.h"
#include "wire/hello.h"

namespace starling {

class FastChannel final : public Channel, public Watcher {
 public:
  FastChannel(const Target& target, std::shared_ptr<Lane> lane, LoopLane& loop, ChannelSink& sink,
              std::shared_ptr<FastShared> shared);
  ~FastChannel() override;

  void start(CallId id, Method method, Message message, Deadline deadline) override;
  void cancel(CallId id) override;
  Status trouble() const override;

  void on_events(uint32_t events) override;
  bool poll() override;

 private:
  enum class State {
    kIdle,        // nobody asked for a connection
    kResolving,   // the host's name is being looked up
    kConnecting,  // the system connects
    kHello,       // waiting for the server's hello
    kReady,
    kDraining,  // the server takes nothing new; what is in flight is still answered
    kWaiting,   // for the next attempt
  };
  struct Waiting {
    CallId id;
    Method method;
    Message message;
    Deadline deadline;
  };

  // Connecting (channel_connect.cc).
  void connect();
  void resolve_name();
  void on_resolved(const StatusOr<std::vector<SocketAddress>>& addresses);
  void use_addresses(const std::vector<SocketAddress>& addresses);
  void try_next_candidate();
  void on_connected();
  Status check_unix_peer();
  void read_hello();
  Status check_hello(const ServerHello& hello);
  void on_ready(const ServerHello& hello);
  void attempt_failed(const Status& why);
  // The server does not want us: a retry would not help, so everybody hears it now.
  void refused(const Status& why);
  void drop_socket();

  // Frames (channel.cc).
  void send(Waiting call);
  void send_waiting();
  void write(EncodedFrame frame, uint64_t id = 0);
  void write_control(FrameKind kind, uint64_t request_id);
  bool read_frames();
  void on_frame(Frame& frame);
  void on_reply(Frame& frame);
  StatusOr<Message> take_reply(Frame& frame);
  void on_goaway(uint32_t code);
  void finish(CallId id, StatusOr<Message> result);
  void finish_later(CallId id, const Status& status);
  void lost(const Status& why);
  void update_interest();
  void watch_silence();
  void check_silence();
  bool bytes_moved();
  // Runs the task on the lane, unless the channel has gone by then.
  void post(Function<void(FastChannel&)> task);

  // Set once.
  const Target target_;
  const std::string name_;
  const std::shared_ptr<Lane> lane_;
  LoopLane& loop_;
  ChannelSink& sink_;
  const std::shared_ptr<FastShared> shared_;
  const std::shared_ptr<FastChannel*> self_;  // null when the channel has gone

  // The connection at hand.
  State state_ = State::kIdle;
  Socket socket_;
  uint32_t interest_ = 0;
  std::unique_ptr<FrameReader> reader_;
  FrameWriter writer_;
  FrameReader::Admit admit_;
  pid_t peer_pid_ = 0;   // of a server on this host, as the kernel says
  bool broken_ = false;  // a write failed; the end is posted

  // Connecting.
  std::vector<SocketAddress> candidates_;
  size_t candidate_ = 0;
  std::array<std::byte, ClientHello::kBytes> client_hello_{};
  std::array<std::byte, ServerHello::kBytes> server_hello_{};
  size_t hello_have_ = 0;
  Status trouble_;
  Backoff backoff_;
  TimerId timer_{};  // of the attempt, or until the next one
  LookUp look_up_;

  // Calls.
  std::deque<Waiting> waiting_;  // not written; bounded by the client's limit on calls in flight
  std::map<CallId, bool> in_flight_;  // written; true while a lent reply is asked for again

  // Silence.
  TimerId silence_timer_{};
  TimePoint last_check_;
  TimePoint ping_sent_;
  bool heard_ = false;
  bool pinged_ = false;
  uint64_t received_before_ = 0;
  uint64_t sent_before_ = 0;
  bool blocked_before_ = false;  // something waited for the socket
};

}  // namespace starling
