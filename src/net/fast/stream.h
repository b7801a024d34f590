// FrameReader and FrameWriter move frames between a socket and their final buffers, without a copy
// in user space.
//
// Uses: base, wire. Threads: lane-local.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/function.h"
#include "base/metrics.h"
#include "base/status.h"
#include "net/intake.h"
#include "wire/frame.h"

namespace starling {

// What all connections of a transport count.
struct FastCounters {
  explicit FastCounters(Metrics& metrics);
  Counter& copied_bytes;    // payload bytes copied in user space; none of a payload above 4 KB
  Counter& sent_bytes;      // on sockets
  Counter& received_bytes;  // on sockets
  Counter& pulled_bytes;    // read from the peer's memory
  Counter& resends;         // lent replies that could not be pulled
  Counter& connects;
  Counter& refused;  // handshakes that failed
};

// A frame as it came: everything after the header lies in `body`.
struct Frame {
  FrameHeader header;
  Buffer body;
  size_t payload_at = 0;  // offset of the payload, or of the lend block

  std::span<const std::byte> meta() const {
    return body.bytes().subspan(payload_at - header.meta_bytes, header.meta_bytes);
  }
  Buffer payload() const { return body.slice(payload_at, body.size() - payload_at); }
};

// A second system call costs as much as all else that the receiver of a tiny frame does, so after a
// tiny frame a reader takes up to kAheadBytes beyond the next header along with it. None of them
// may be of a payload above 4 KB, which is never copied: a writer puts a pong, which means nothing,
// between a tiny frame and one with such a payload. A lent reply, whose meta names at least one
// tensor, is never tiny.
inline constexpr size_t kAheadBytes = 48;
constexpr bool is_tiny(size_t frame_bytes) {
  return frame_bytes > kFrameHeaderBytes && frame_bytes <= kFrameHeaderBytes + kAheadBytes;
}
static_assert(!is_tiny(kFrameHeaderBytes + 1 + lend_bytes(1)));

class FrameReader {
 public:
  // `takes` is the one kind of message that this end is sent: kRequest or kReply. The other one is
  // a broken stream, and never allocated for.
  FrameReader(FrameKind takes, FrameLimits limits, BufferPool& pool, FastCounters& counters)
      : takes_(takes), limits_(limits), pool_(pool), counters_(counters) {}

  // Asked once a header has come and before anything is allocated; false holds the stream back
  // until the next read().
  using Admit = Function<bool(const FrameHeader&)>;

  enum class Result { kFrame, kEmpty, kHeldBack, kClosed, kBroken };
  // Reads until a frame is whole (kFrame: it is in frame()), the socket has no more (kEmpty), or
  // the stream ended (kClosed; kBroken with why() when what came makes no sense).
  Result read(int fd, Admit& admit);
  Frame& frame() { return frame_; }
  // False when another read would most likely find the socket empty.
  bool more_likely() const { return head_have_ > 0 || ahead_at_ < ahead_end_ || !drained_; }
  // True when what may be a whole frame lies here and no longer in the socket, which will not tell.
  bool holds_more() const { return head_have_ == kFrameHeaderBytes || ahead_at_ < ahead_end_; }
  const Status& why() const { return why_; }
  // A frame has begun and is not whole.
  bool midway() const { return head_have_ > 0 || part_ != Part::kHeader; }
  // Bytes that have come so far.
  uint64_t received() const { return received_; }

 private:
  enum class Part { kHeader, kAdmission, kBody, kLendRest };
  Result read_more(int fd);
  bool part_done() const;
  void take_ahead();
  Result on_header();
  void prepare_body();
  Result on_body();

  const FrameKind takes_;
  const FrameLimits limits_;
  BufferPool& pool_;
  FastCounters& counters_;
  alignas(64) std::array<std::byte, kFrameHeaderBytes> head_{};
  size_t head_have_ = 0;
  // Read beyond a header and not used yet: [ahead_at_, ahead_end_).
  alignas(64) std::array<std::byte, kAheadBytes> ahead_{};
  size_t ahead_at_ = 0;
  size_t ahead_end_ = 0;
  bool after_tiny_ = false;
  Part part_ = Part::kHeader;
  Frame frame_;
  size_t body_have_ = 0;
  uint64_t received_ = 0;
  bool drained_ = false;  // the last read got less than it asked for
  Status why_;
};

class FrameWriter {
 public:
  explicit FrameWriter(FastCounters& counters) : counters_(counters) {}

  // `ticket` is given back when the frame has left. `id` names it for drop(); 0 does not.
  void push(EncodedFrame frame, Ticket ticket = Ticket(), uint64_t id = 0);
  // Takes back a frame of which no byte has left yet; false when it is too late.
  bool drop(uint64_t id);
  // Writes what the socket takes. Unavailable: the connection is broken.
  Status flush(int fd);
  bool empty() const { return queue_.empty(); }
  size_t bytes() const { return bytes_; }
  // Bytes that the socket has taken so far.
  uint64_t sent() const { return sent_; }
  // Drops everything, for a connection that has ended.
  void clear();

 private:
  struct Item {
    EncodedFrame frame;
    Ticket ticket;
    uint64_t id = 0;
    size_t part = 1;    // 0: the spacer before it, where it needs one, 1: head, i + 2: pieces[i]
    size_t offset = 0;  // in that part
  };
  static size_t parts_of(const Item& item) { return item.frame.pieces.size() + 2; }
  const Buffer& part_of(const Item& item, size_t part) const;
  void put_spacer_before(Item& item);
  void advance(size_t written);

  FastCounters& counters_;
  const Buffer spacer_ = encode_control({.kind = FrameKind::kPong});
  bool after_tiny_ = false;  // the next large frame needs a spacer
  std::deque<Item> queue_;
  size_t bytes_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace starling
