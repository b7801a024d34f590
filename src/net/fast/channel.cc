#include "net/fast/channel.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace starling {
namespace {

constexpr int kFramesPerTurn = 64;

// A lane that slept or worked through its own check has not listened; silence counts only while it
// did.
constexpr Duration kLateCheck = milliseconds(500);

// A role's refusal that a program reads: a reason, a newer map, an answer beside the error. It goes
// to the caller as it is; a bare code and message are a status.
bool says_more(const Message& message) {
  const v1::Status& status = message.meta.status();
  return status.reason() != v1::REASON_NONE || status.has_map() || status.retry_after_ms() != 0 ||
         !status.node().empty() ||
         message.meta.option_case() != v1::TensorMessage::OPTION_NOT_SET ||
         !message.tensors.empty();
}

}  // namespace

FastChannel::FastChannel(const Target& target, std::shared_ptr<Lane> lane, LoopLane& loop,
                         ChannelSink& sink, std::shared_ptr<FastShared> shared)
    : target_(target),
      name_(target.to_string()),
      lane_(std::move(lane)),
      loop_(loop),
      sink_(sink),
      shared_(std::move(shared)),
      self_(std::make_shared<FastChannel*>(this)),
      writer_(shared_->counters),
      admit_([](const FrameHeader&) { return true; }),
      backoff_(shared_->options.backoff_min, shared_->options.backoff_max,
               reinterpret_cast<uintptr_t>(this)) {}

FastChannel::~FastChannel() {
  *self_ = nullptr;
  // The lane does not wait for the system's resolver.
  if (look_up_.ended != nullptr) shared_->left_look_ups.keep(std::move(look_up_));
  drop_socket();
  loop_.cancel(silence_timer_);
}

void FastChannel::start(CallId id, Method method, Message message, Deadline deadline) {
  Waiting call{id, method, std::move(message), deadline};
  if (state_ == State::kReady) return send(std::move(call));
  waiting_.push_back(std::move(call));
  connect();
}

void FastChannel::cancel(CallId id) {
  if (in_flight_.erase(id) > 0) {
    // A request that is still here need not be taken back there: a slow server would read it only
    // to be told so, and a caller that tries again and again would fill this process.
    if (writer_.drop(static_cast<uint64_t>(id))) return;
    if (state_ == State::kReady || state_ == State::kDraining) {
      write_control(FrameKind::kCancel, static_cast<uint64_t>(id));
    }
  } else {
    std::erase_if(waiting_, [id](const Waiting& call) { return call.id == id; });
  }
}

Status FastChannel::trouble() const {
  if (state_ == State::kReady || state_ == State::kDraining) return absl::OkStatus();
  return trouble_.ok() ? unavailable("not connected yet") : trouble_;
}

void FastChannel::on_events(uint32_t events) {
  if (state_ == State::kConnecting) return on_connected();
  if (state_ == State::kHello) return read_hello();
  const auto self = self_;
  if (events & EPOLLOUT) {
    if (const Status status = writer_.flush(socket_.fd()); !status.ok()) return lost(status);
  }
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) read_frames();
  if (*self != nullptr && socket_) update_interest();
}

bool FastChannel::poll() {
  return (state_ == State::kReady || state_ == State::kDraining) && read_frames();
}

void FastChannel::send(Waiting call) {
  FrameHeader header{.kind = FrameKind::kRequest,
                     .method = static_cast<uint16_t>(call.method),
                     .request_id = static_cast<uint64_t>(call.id),
                     .lane = value(target_.lane)};
  if (!call.deadline.is_never()) {
    const Duration left = call.deadline.left(loop_.clock().now());
    header.deadline_us = static_cast<uint64_t>(std::max<int64_t>(1, left.count() / 1000));
  }
  StatusOr<EncodedFrame> frame = encode_frame(header, call.message, shared_->limits);
  in_flight_.emplace(call.id, false);
  if (!frame.ok()) return finish_later(call.id, with_context(frame.status(), name_));
  if (frame->pieces.empty())
    shared_->counters.copied_bytes.add(payload_bytes(call.message.tensors));
  watch_silence();
  write(*std::move(frame), static_cast<uint64_t>(call.id));
}

void FastChannel::send_waiting() {
  while (!waiting_.empty() && state_ == State::kReady) {
    Waiting call = std::move(waiting_.front());
    waiting_.pop_front();
    send(std::move(call));
  }
  update_interest();
}

void FastChannel::write(EncodedFrame frame, uint64_t id) {
  const bool idle = writer_.empty();
  writer_.push(std::move(frame), Ticket(), id);
  if (!idle || broken_) return;
  if (const Status status = writer_.flush(socket_.fd()); !status.ok()) {
    // Later: the caller may be in the middle of starting a call or of reading a frame.
    broken_ = true;
    post([status](FastChannel& self) { self.lost(status); });
  } else if (!writer_.empty()) {
    update_interest();
  }
}

void FastChannel::write_control(FrameKind kind, uint64_t request_id) {
  write({.head = encode_control({.kind = kind, .request_id = request_id})});
}

bool FastChannel::read_frames() {
  const auto self = self_;
  bool worked = false;
  for (int i = 0; i < kFramesPerTurn; ++i) {
    const FrameReader::Result result = reader_->read(socket_.fd(), admit_);
    if (result == FrameReader::Result::kEmpty) break;
    worked = true;
    heard_ = true;
    pinged_ = false;
    if (result == FrameReader::Result::kClosed) {
      lost(unavailable("the peer closed the connection"));
      return true;
    }
    if (result == FrameReader::Result::kBroken) {
      shared_->log.warning("bad_frame", {{"peer", name_}, {"reason", message_of(reader_->why())}});
      lost(reader_->why());
      return true;
    }
    loop_.set_hot(this);
    backoff_.reset();
    Frame frame = std::move(reader_->frame());
    on_frame(frame);
    if (*self == nullptr || !socket_) return true;
    if (!reader_->more_likely()) break;
  }
  // The socket does not tell of what has been read from it already.
  if (reader_->holds_more()) post([](FastChannel& channel) { channel.poll(); });
  return worked;
}

void FastChannel::on_frame(Frame& frame) {
  switch (frame.header.kind) {
    case FrameKind::kReply:
      return on_reply(frame);
    case FrameKind::kPing:
      // What waits for the socket is as good an answer.
      if (!writer_.empty()) return;
      return write_control(FrameKind::kPong, frame.header.request_id);
    case FrameKind::kGoaway:
      return on_goaway(frame.header.status);
    case FrameKind::kPong:
    case FrameKind::kCancel:
    case FrameKind::kRelease:
    case FrameKind::kResend:
      return;  // a server has no reason to send these; they change nothing
    case FrameKind::kRequest:
      return;  // never comes out of a client's reader
  }
}

void FastChannel::on_reply(Frame& frame) {
  const auto id = static_cast<CallId>(frame.header.request_id);
  auto it = in_flight_.find(id);
  const bool lent = (frame.header.flags & kFlagLent) != 0;
  if (it == in_flight_.end()) {
    if (lent) write_control(FrameKind::kRelease, frame.header.request_id);
    return;
  }
  StatusOr<Message> result = take_reply(frame);
  if (lent && !result.ok() && !it->second) {
    // The memory could not be read, or changed under us: have it sent instead, once.
    it->second = true;
    return write_control(FrameKind::kResend, frame.header.request_id);
  }
  if (lent) write_control(FrameKind::kRelease, frame.header.request_id);
  finish(id, std::move(result));
}

StatusOr<Message> FastChannel::take_reply(Frame& frame) {
  const FrameHeader& header = frame.header;
  Buffer payload;
  if ((header.flags & kFlagLent) != 0) {
    STARLING_ASSIGN_OR_RETURN(const LendBlock lend, decode_lend(header, frame.payload().bytes()));
    STARLING_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets,
                              lend_offsets(header, frame.meta(), lend));
    payload = shared_->pool.allocate(header.payload_bytes);
    STARLING_RETURN_IF_ERROR(pull(peer_pid_, lend, offsets, payload));
    shared_->counters.pulled_bytes.add(header.payload_bytes);
  } else {
    payload = frame.payload();
  }
  STARLING_ASSIGN_OR_RETURN(Message message,
                            decode_message(header, frame.meta(), std::move(payload)));
  if (header.status == 0 || says_more(message)) return message;
  return Status(static_cast<StatusCode>(header.status), message.meta.status().message());
}

void FastChannel::on_goaway(uint32_t code) {
  if (code != 0) {
    const auto status = static_cast<StatusCode>(code);
    const Status why(status,
                     fmt::format("the server ended the connection ({})", code_name(status)));
    // Those that wait for the next connection, since this one is draining, would not get it either.
    for (const Waiting& call : std::exchange(waiting_, {})) in_flight_.emplace(call.id, false);
    return lost(why);
  }
  state_ = State::kDraining;
  if (in_flight_.empty()) lost(unavailable("the server is stopping"));
}

void FastChannel::finish(CallId id, StatusOr<Message> result) {
  if (in_flight_.erase(id) == 0) return;
  const bool drained = state_ == State::kDraining && in_flight_.empty();
  const auto self = self_;
  sink_.finished(id, std::move(result));
  if (drained && *self != nullptr && state_ == State::kDraining)
    lost(unavailable("the server is stopping"));
}

void FastChannel::finish_later(CallId id, const Status& status) {
  post([id, status](FastChannel& self) { self.finish(id, status); });
}

void FastChannel::lost(const Status& why) {
  if (!socket_) return;
  broken_ = false;
  drop_socket();
  writer_.clear();
  const auto calls = std::exchange(in_flight_, {});
  // Not at once: whatever ended this connection may end the next one too. Before anybody hears of
  // it, since a caller may try again inside of its end.
  attempt_failed(why);
  const Status status = with_context(why, name_);
  const auto self = self_;
  for (const auto& [id, resent] : calls) {
    sink_.finished(id, status);
    if (*self == nullptr) return;
  }
}

void FastChannel::update_interest() {
  uint32_t wanted = EPOLLIN | EPOLLRDHUP;
  if (!writer_.empty()) wanted |= EPOLLOUT;
  if (wanted != std::exchange(interest_, wanted)) loop_.change(socket_.fd(), wanted, this);
}

// While calls are in flight a quiet peer is pinged; one that leaves a ping unanswered is dead.
void FastChannel::watch_silence() {
  if (silence_timer_ != TimerId{}) return;
  last_check_ = loop_.clock().now();
  heard_ = true;
  (void)bytes_moved();
  silence_timer_ =
      loop_.call_at(last_check_ + shared_->options.ping_every, [this] { check_silence(); });
}

// Whether a part of a large frame has come or gone since it was asked last: the other end is there,
// though it may be long until the frame is whole. What we send says so only where it had to wait
// for room, since the kernel takes a little for a dead peer too.
bool FastChannel::bytes_moved() {
  const uint64_t received = reader_->received();
  const uint64_t sent = writer_.sent();
  const bool came = received != std::exchange(received_before_, received);
  const bool went = sent != std::exchange(sent_before_, sent);
  const bool blocked = std::exchange(blocked_before_, !writer_.empty());
  return came || (went && blocked);
}

void FastChannel::check_silence() {
  silence_timer_ = TimerId{};
  if (!socket_ || in_flight_.empty()) return;
  const NetOptions& options = shared_->options;
  const TimePoint now = loop_.clock().now();
  const bool late = now - last_check_ > options.ping_every + kLateCheck;
  if (bytes_moved()) heard_ = true;
  if (late || heard_) pinged_ = false;
  if (!std::exchange(heard_, false) && !late) {
    if (!pinged_) {
      pinged_ = true;
      ping_sent_ = now;
      write_control(FrameKind::kPing, 0);
    } else if (now - ping_sent_ >= options.ping_timeout) {
      return lost(unavailable("the peer has been silent for {} ms",
                              (now - ping_sent_ + options.ping_every).count() / 1'000'000));
    }
  }
  last_check_ = now;
  silence_timer_ = loop_.call_at(now + options.ping_every, [this] { check_silence(); });
}

void FastChannel::post(Function<void(FastChannel&)> task) {
  loop_.post([self = self_, task = std::move(task)]() mutable {
    if (*self != nullptr) task(**self);
  });
}

}  // namespace starling
