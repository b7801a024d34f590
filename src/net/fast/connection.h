// ServerConnection is the server's end of one grpc++ connection, living on the lane that its hello
// named.
//
// Uses: net. Threads: lane-local, but for show_life() and the sinks, which post.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <deque>
#include <memory>
#include <string>

#include "net/fast/lend.h"
#include "net/fast/outlet.h"
#include "net/fast/shared.h"
#include "net/fast/socket.h"
#include "net/fast/stream.h"
#include "net/intake.h"
#include "net/loop_lane.h"

namespace starling {

class ServerConnection final : public Watcher,
                               public std::enable_shared_from_this<ServerConnection> {
 public:
  struct Setup {
    Socket socket;
    LaneId lane{0};
    Peer peer;
    bool pull = false;  // the probe worked: large replies are lent
  };
  ServerConnection(std::shared_ptr<FastShared> shared, std::shared_ptr<Intake> intake, Setup setup);
  ~ServerConnection() override;

  // Starts to serve. `on_close` is called once, on the lane, when the connection has ended.
  void open(Function<void(ServerConnection*)> on_close);
  // Tells the peer to send nothing more.
  void go_away();
  void close(std::string_view why);
  // There may be room again for a message that was held back.
  void retry();
  bool held_back() const { return held_back_; }
  size_t held_bytes() const { return meter_->bytes.load(std::memory_order_relaxed); }
  // Lets the peer hear that this process lives, while the lane has no time to. Any thread.
  void show_life() { out_.show_life(); }

  void on_events(uint32_t events) override;
  bool poll() override;

 private:
  class Sink;
  bool read_frames();
  void read_later();
  bool may_read() const;
  bool admit(const FrameHeader& header);
  void on_frame(Frame& frame);
  void on_request(Frame& frame);
  void refuse_repeated(uint64_t request_id, Ticket ticket);
  void run_arrived();
  void watch_pause();
  void check_pause();
  void on_resend(uint64_t request_id);
  void reply(uint64_t request_id, const Status& status, Message message, Ticket ticket);
  void send(uint64_t request_id, const Status& status, Message message, Ticket ticket,
            bool may_lend);
  void write(EncodedFrame frame, Ticket ticket);
  void update_interest();
  LoopLane& loop() { return *loop_; }

  // Set once.
  const std::shared_ptr<FastShared> shared_;
  const std::shared_ptr<Intake> intake_;
  const LaneId lane_;
  LoopLane* const loop_;  // the intake keeps it
  const std::shared_ptr<const Peer> peer_;
  const bool pull_;
  Function<void(ServerConnection*)> on_close_;

  // The lane's thread only.
  Socket socket_;
  Outlet out_;  // any thread
  FrameReader reader_;
  LendTable lends_;
  FrameReader::Admit admit_;
  absl::flat_hash_map<uint64_t, std::weak_ptr<ReplySink>> in_flight_;
  Ticket arriving_;  // of the request whose body is being read
  struct Arrived {
    Request request;
    Reply reply;
  };
  std::deque<Arrived> arrived_;  // read and not run; at most kFramesPerTurn
  // Requests in flight, unread replies and lent ones.
  const std::shared_ptr<Meter> meter_ = std::make_shared<Meter>();
  uint32_t interest_ = 0;
  bool held_back_ = false;  // a header waits for room
  bool reading_ = false;
  bool read_posted_ = false;
  bool broken_ = false;  // a write failed; closed at the next turn

  // While reading is paused, or a frame has come in part.
  TimerId pause_timer_{};
  uint64_t received_before_ = 0;
  TimePoint moved_at_;
};

}  // namespace starling
