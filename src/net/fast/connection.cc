#include "net/fast/connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace starling {
namespace {

// Frames handled before other connections of the lane get their turn.
constexpr int kFramesPerTurn = 64;
// A frame that stops half way is given up after this many ping_timeouts: long, since a caller that
// turns its lane itself may compute for a while in the middle of a write.
constexpr int kMidwayTimeouts = 20;

}  // namespace

// Brings an answer from any thread back to the connection's lane.
class ServerConnection::Sink final : public ReplySink {
 public:
  Sink(std::shared_ptr<ServerConnection> connection, uint64_t request_id, Ticket ticket)
      : connection_(std::move(connection)), request_id_(request_id), ticket_(std::move(ticket)) {}

  void finish(const Status& status, Message message) override {
    LoopLane& loop = connection_->loop();
    if (loop.here())
      return connection_->reply(request_id_, status, std::move(message), std::move(ticket_));
    loop.post([connection = connection_, id = request_id_, status, message = std::move(message),
               ticket = std::move(ticket_)]() mutable {
      connection->reply(id, status, std::move(message), std::move(ticket));
    });
  }

 private:
  const std::shared_ptr<ServerConnection> connection_;
  const uint64_t request_id_;
  Ticket ticket_;
};

ServerConnection::ServerConnection(std::shared_ptr<FastShared> shared,
                                   std::shared_ptr<Intake> intake, Setup setup)
    : shared_(std::move(shared)),
      intake_(std::move(intake)),
      lane_(setup.lane),
      loop_(static_cast<LoopLane*>(intake_->lane(setup.lane).get())),
      peer_(std::make_shared<const Peer>(std::move(setup.peer))),
      pull_(setup.pull),
      socket_(std::move(setup.socket)),
      out_(shared_->counters, socket_.fd()),
      reader_(FrameKind::kRequest, shared_->limits, shared_->pool, shared_->counters),
      admit_([this](const FrameHeader& header) { return admit(header); }) {}

ServerConnection::~ServerConnection() = default;

void ServerConnection::open(Function<void(ServerConnection*)> on_close) {
  on_close_ = std::move(on_close);
  interest_ = EPOLLIN | EPOLLRDHUP;
  if (const Status status = loop_->watch(socket_.fd(), interest_, this); !status.ok()) {
    out_.close();
    socket_.close();
    shared_->log.error("connection_refused",
                       {{"peer", peer_->address}, {"reason", message_of(status)}});
    return on_close_(this);
  }
  intake_->peer(lane_, *peer_, true);
}

void ServerConnection::go_away() {
  if (socket_) write({.head = encode_control({.kind = FrameKind::kGoaway})}, Ticket());
}

void ServerConnection::close(std::string_view why) {
  if (!socket_) return;
  const auto self = shared_from_this();
  shared_->log.debug("connection_closed", {{"peer", peer_->address}, {"reason", why}});
  loop_->unwatch(socket_.fd(), this);
  loop_->cancel(std::exchange(pause_timer_, TimerId{}));
  out_.close();
  socket_.close();
  for (const auto& [id, weak] : in_flight_) {
    if (const auto sink = weak.lock()) sink->cancelled.store(true, std::memory_order_relaxed);
  }
  in_flight_.clear();
  lends_.clear();
  arriving_ = Ticket();
  intake_->peer(lane_, *peer_, false);
  on_close_(this);
}

void ServerConnection::retry() {
  if (!socket_ || !held_back_) return;
  held_back_ = false;
  read_frames();
}

void ServerConnection::on_events(uint32_t events) {
  const auto self = shared_from_this();
  if (events & EPOLLOUT) {
    if (const Status status = out_.flush(); !status.ok()) return close(message_of(status));
  }
  if (events & EPOLLIN) {
    read_frames();
  } else if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) {
    return close("the peer has gone");
  }
  if (socket_) update_interest();
}

bool ServerConnection::poll() {
  const auto self = shared_from_this();
  return socket_ && read_frames();
}

bool ServerConnection::may_read() const {
  const NetOptions& options = shared_->options;
  return !held_back_ &&
         meter_->requests.load(std::memory_order_relaxed) < options.connection_requests_max &&
         meter_->bytes.load(std::memory_order_relaxed) < options.connection_bytes_max;
}

bool ServerConnection::read_frames() {
  bool worked = false;
  reading_ = true;
  for (int i = 0; i < kFramesPerTurn && socket_ && may_read(); ++i) {
    const FrameReader::Result result = reader_.read(socket_.fd(), admit_);
    if (result == FrameReader::Result::kEmpty) break;
    if (result == FrameReader::Result::kHeldBack) {
      held_back_ = true;
      break;
    }
    worked = true;
    if (result == FrameReader::Result::kClosed) {
      close("the peer has gone");
    } else if (result == FrameReader::Result::kBroken) {
      shared_->log.warning("bad_frame",
                           {{"peer", peer_->address}, {"reason", message_of(reader_.why())}});
      // Best effort: the code tells a peer of another make why it is cut off.
      (void)out_.write(
          {.head = encode_control({.kind = FrameKind::kGoaway,
                                   .status = static_cast<uint32_t>(reader_.why().code())})},
          Ticket());
      close(message_of(reader_.why()));
    } else {
      loop_->set_hot(this);
      on_frame(reader_.frame());
      reader_.frame().body = Buffer();  // an idle connection holds no memory
      if (broken_) close("a write failed");
      if (!reader_.more_likely()) break;
    }
  }
  reading_ = false;
  if (socket_) update_interest();
  run_arrived();
  return worked;
}

void ServerConnection::read_later() {
  if (std::exchange(read_posted_, true)) return;
  loop_->post([self = shared_from_this()] {
    self->read_posted_ = false;
    if (self->socket_) self->read_frames();
  });
}

// After everything that has come was read: a cancel that stands behind its request still stops it.
void ServerConnection::run_arrived() {
  while (!arrived_.empty()) {
    // Out of the queue first: the handler may turn the lane again.
    Arrived next = std::move(arrived_.front());
    arrived_.pop_front();
    if (next.reply.cancelled()) {
      next.reply.fail(cancelled("the caller gave up before it was run"));
    } else {
      intake_->accept(std::move(next.request), std::move(next.reply));
    }
  }
}

bool ServerConnection::admit(const FrameHeader& header) {
  if (header.kind != FrameKind::kRequest) return true;
  const size_t bytes = kFrameHeaderBytes + header.meta_bytes + header.payload_bytes;
  arriving_ = intake_->admit(bytes, meter_);
  if (!arriving_) {
    intake_->wait_for_room();
    arriving_ = intake_->admit(bytes, meter_);
  }
  return static_cast<bool>(arriving_);
}

void ServerConnection::on_frame(Frame& frame) {
  const uint64_t id = frame.header.request_id;
  switch (frame.header.kind) {
    case FrameKind::kRequest:
      return on_request(frame);
    case FrameKind::kPing:
      // What waits for the socket says that we live as well as a pong does, and a peer that asks
      // and never reads must not fill this process.
      if (out_.waits()) return;
      return write({.head = encode_control({.kind = FrameKind::kPong, .request_id = id})},
                   Ticket());
    case FrameKind::kCancel:
      if (auto it = in_flight_.find(id); it != in_flight_.end()) {
        if (const auto sink = it->second.lock())
          sink->cancelled.store(true, std::memory_order_relaxed);
      }
      return;
    case FrameKind::kRelease:
      lends_.release(id);
      return;
    case FrameKind::kResend:
      return on_resend(id);
    case FrameKind::kPong:
    case FrameKind::kGoaway:
      return;  // a client has no reason to send these; they change nothing
    case FrameKind::kReply:
      return;  // never comes out of a server's reader
  }
}

void ServerConnection::on_request(Frame& frame) {
  const FrameHeader& header = frame.header;
  if (in_flight_.contains(header.request_id) || lends_.contains(header.request_id)) {
    return refuse_repeated(header.request_id, std::move(arriving_));
  }
  auto sink = std::make_shared<Sink>(shared_from_this(), header.request_id, std::move(arriving_));
  Reply reply(sink);
  if (find_method(header.method) == nullptr)
    return reply.fail(wrong_service(header.method, intake_->role()));
  in_flight_.emplace(header.request_id, sink);
  StatusOr<Message> message = decode_message(header, frame.meta(), frame.payload());
  if (!message.ok()) return reply.fail(message.status());
  Deadline deadline;
  if (header.deadline_us > 0) {
    constexpr uint64_t kForeverUs = uint64_t{1} << 50;
    deadline =
        Deadline::in(loop_->clock(),
                     microseconds(static_cast<int64_t>(std::min(header.deadline_us, kForeverUs))));
  }
  arrived_.push_back({{.method = static_cast<Method>(header.method),
                       .lane = lane_,
                       .message = *std::move(message),
                       .deadline = deadline,
                       .peer = peer_},
                      std::move(reply)});
}

// Not by a Reply: its end would be taken for the end of the request that has the id.
void ServerConnection::refuse_repeated(uint64_t request_id, Ticket ticket) {
  send(request_id, invalid_argument("request id {} is in flight already", request_id), Message(),
       std::move(ticket), /*may_lend=*/false);
}

void ServerConnection::on_resend(uint64_t request_id) {
  std::optional<LendTable::Taken> taken = lends_.take(request_id);
  if (!taken) {
    // The answer to an open request is still to come. A peer that asks and never reads must not
    // fill this process.
    if (in_flight_.contains(request_id) || out_.waits()) return;
    return send(request_id, failed_precondition("request {} has no lent reply", request_id),
                Message(), Ticket(), /*may_lend=*/false);
  }
  shared_->counters.resends.add();
  send(request_id, absl::OkStatus(), std::move(taken->message), std::move(taken->ticket),
       /*may_lend=*/false);
}

void ServerConnection::reply(uint64_t request_id, const Status& status, Message message,
                             Ticket ticket) {
  in_flight_.erase(request_id);
  if (!socket_) return;
  send(request_id, status, std::move(message), std::move(ticket), /*may_lend=*/true);
  if (socket_) update_interest();
}

void ServerConnection::send(uint64_t request_id, const Status& status, Message message,
                            Ticket ticket, bool may_lend) {
  FrameHeader header{.kind = FrameKind::kReply, .request_id = request_id, .lane = value(lane_)};
  if (!status.ok()) {
    message = status_reply(status);
    header.status = static_cast<uint32_t>(status.code());
  }
  const uint64_t bytes = payload_bytes(message.tensors);
  if (ticket) ticket.grow(bytes);
  if (may_lend && pull_ && bytes >= shared_->options.lend_bytes_min &&
      message.tensors.size() <= kLendPiecesMax && ticket.lend()) {
    Message kept = message;  // shares the tensors
    const LendBlock lend = lends_.lend(request_id, std::move(kept), std::move(ticket));
    StatusOr<Buffer> frame = encode_lent_frame(header, message, lend, shared_->limits);
    if (frame.ok()) return write({.head = *std::move(frame)}, Ticket());
    ticket = std::move(lends_.take(request_id)->ticket);
  }
  StatusOr<EncodedFrame> frame = encode_frame(header, message, shared_->limits);
  if (!frame.ok()) {
    // What the handler answered cannot be sent (too large, too many tensors): the caller must hear
    // why.
    const Status why = with_context(frame.status(), "reply cannot be sent");
    header.status = static_cast<uint32_t>(why.code());
    frame = encode_frame(header, status_reply(why), shared_->limits);
  }
  if (bytes <= kInlinePayloadBytes) shared_->counters.copied_bytes.add(bytes);
  write(*std::move(frame), std::move(ticket));
}

// Writes at once where nothing waits before it. A failed write closes later: the caller may be in
// the middle of a frame.
void ServerConnection::write(EncodedFrame frame, Ticket ticket) {
  if (!out_.write(std::move(frame), std::move(ticket)).ok()) {
    if (std::exchange(broken_, true)) return;
    loop_->post([self = shared_from_this()] { self->close("a write failed"); });
  } else if (out_.waits()) {
    update_interest();
  }
}

void ServerConnection::update_interest() {
  uint32_t wanted = EPOLLRDHUP;
  if (may_read()) {
    wanted |= EPOLLIN;
    // The socket does not tell of what has been read from it already.
    if (!reading_ && reader_.holds_more()) read_later();
  }
  if (out_.waits()) wanted |= EPOLLOUT;
  if (wanted != std::exchange(interest_, wanted)) loop_->change(socket_.fd(), wanted, this);
  if (pause_timer_ == TimerId{} && (!may_read() || reader_.midway())) watch_pause();
}

void ServerConnection::watch_pause() {
  moved_at_ = loop_->clock().now();
  received_before_ = reader_.received();
  pause_timer_ =
      loop_->call_at(moved_at_ + shared_->options.ping_every / 2, [this] { check_pause(); });
}

// A peer that is held back cannot be heard when it pings, so it is told now and then that we live;
// one that falls silent in the middle of a frame is given up.
void ServerConnection::check_pause() {
  pause_timer_ = TimerId{};
  const auto self = shared_from_this();
  const TimePoint now = loop_->clock().now();
  const bool paused = !may_read();
  if (!paused && !reader_.midway()) return;
  if (paused) {
    out_.show_life();
  } else if (reader_.received() == received_before_) {
    if (now - moved_at_ >= kMidwayTimeouts * shared_->options.ping_timeout)
      return close("half a frame, then silence");
  }
  if (paused || reader_.received() != std::exchange(received_before_, reader_.received()))
    moved_at_ = now;
  pause_timer_ = loop_->call_at(now + shared_->options.ping_every / 2, [this] { check_pause(); });
}

}  // namespace starling
