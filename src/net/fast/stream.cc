#include "net/fast/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace starling {
namespace {

// Enough for a frame of many tensors; the kernel takes at most 1024.
constexpr size_t kIovMax = 256;

size_t bytes_of(const EncodedFrame& frame) {
  size_t bytes = frame.head.size();
  for (const Buffer& piece : frame.pieces) bytes += piece.size();
  return bytes;
}

size_t round_up_64(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

FastCounters::FastCounters(Metrics& metrics)
    : copied_bytes(metrics.counter("net.fast.copied_bytes")),
      sent_bytes(metrics.counter("net.fast.sent_bytes")),
      received_bytes(metrics.counter("net.fast.received_bytes")),
      pulled_bytes(metrics.counter("net.fast.pulled_bytes")),
      resends(metrics.counter("net.fast.resends")),
      connects(metrics.counter("net.fast.connects")),
      refused(metrics.counter("net.fast.refused")) {}

FrameReader::Result FrameReader::read(int fd, Admit& admit) {
  while (true) {
    if (part_ == Part::kAdmission) {
      if (!admit(frame_.header)) return Result::kHeldBack;
      prepare_body();
    }
    take_ahead();
    if (!part_done()) {
      if (const Result result = read_more(fd); result != Result::kFrame) return result;
      if (!part_done()) continue;
    }
    if (part_ == Part::kHeader) {
      if (const Result result = on_header(); result != Result::kFrame) return result;
    } else {
      const Result result = on_body();
      if (result == Result::kBroken || part_ == Part::kHeader) return result;
    }
  }
}

bool FrameReader::part_done() const {
  return part_ == Part::kHeader ? head_have_ == kFrameHeaderBytes
                                : body_have_ == frame_.body.size();
}

void FrameReader::take_ahead() {
  const size_t left = ahead_end_ - ahead_at_;
  if (left == 0) return;
  size_t count;
  if (part_ == Part::kHeader) {
    count = std::min(left, kFrameHeaderBytes - head_have_);
    std::memcpy(head_.data() + head_have_, ahead_.data() + ahead_at_, count);
    head_have_ += count;
  } else {
    count = std::min(left, frame_.body.size() - body_have_);
    if (count > 0) {
      std::memcpy(frame_.body.mutable_data() + body_have_, ahead_.data() + ahead_at_, count);
    }
    const size_t begin = std::max(body_have_, frame_.payload_at);
    body_have_ += count;
    const bool lent = (frame_.header.flags & kFlagLent) != 0;
    if (!lent && body_have_ > begin) counters_.copied_bytes.add(body_have_ - begin);
  }
  ahead_at_ += count;
}

// One system call. Returns kFrame when something came. Reads beyond the next header only after a
// tiny frame, so that a large payload's first bytes cannot land anywhere but in their final buffer.
FrameReader::Result FrameReader::read_more(int fd) {
  std::array<iovec, 2> iov;
  size_t parts = 0;
  size_t body_wanted = 0;
  size_t head_wanted = 0;
  if (part_ != Part::kHeader) {
    body_wanted = frame_.body.size() - body_have_;
    iov[parts++] = {frame_.body.mutable_data() + body_have_, body_wanted};
  }
  const bool lend_follows = part_ == Part::kBody && (frame_.header.flags & kFlagLent) != 0;
  if (!lend_follows) {
    head_wanted = kFrameHeaderBytes - head_have_;
    iov[parts++] = {head_.data() + head_have_, head_wanted};
  }
  if (part_ == Part::kHeader && after_tiny_) iov[parts++] = {ahead_.data(), kAheadBytes};
  const ssize_t got = parts == 1 ? ::recv(fd, iov[0].iov_base, iov[0].iov_len, 0)
                                 : ::readv(fd, iov.data(), static_cast<int>(parts));
  if (got == 0) return Result::kClosed;
  if (got < 0) {
    if (errno == EINTR) return Result::kFrame;
    return errno == EAGAIN || errno == EWOULDBLOCK ? Result::kEmpty : Result::kClosed;
  }
  counters_.received_bytes.add(static_cast<uint64_t>(got));
  received_ += static_cast<uint64_t>(got);
  size_t wanted = 0;
  for (size_t i = 0; i < parts; ++i) wanted += iov[i].iov_len;
  size_t left = static_cast<size_t>(got);
  drained_ = left < wanted;
  const size_t to_body = std::min(left, body_wanted);
  left -= to_body;
  const size_t to_head = std::min(left, head_wanted);
  body_have_ += to_body;
  head_have_ += to_head;
  ahead_at_ = 0;
  ahead_end_ = left - to_head;
  return Result::kFrame;
}

FrameReader::Result FrameReader::on_header() {
  StatusOr<FrameHeader> header = decode_header(head_, limits_);
  head_have_ = 0;
  if (!header.ok()) {
    why_ = header.status();
    return Result::kBroken;
  }
  const bool is_message = header->kind == FrameKind::kRequest || header->kind == FrameKind::kReply;
  if (is_message && header->kind != takes_) {
    why_ = header->kind == FrameKind::kReply ? invalid_argument("a reply came to a server")
                                             : invalid_argument("a request came to a client");
    return Result::kBroken;
  }
  frame_.header = *header;
  part_ = Part::kAdmission;
  return Result::kFrame;
}

// The meta part stands right before the 64-byte aligned payload, so that one read fills both.
void FrameReader::prepare_body() {
  const FrameHeader& header = frame_.header;
  frame_.payload_at = round_up_64(header.meta_bytes);
  const bool lent = (header.flags & kFlagLent) != 0;
  const size_t total = frame_.payload_at + (lent ? kLendHeadBytes : header.payload_bytes);
  frame_.body = pool_.allocate(total);
  body_have_ = frame_.payload_at - header.meta_bytes;
  part_ = Part::kBody;
}

FrameReader::Result FrameReader::on_body() {
  if (part_ == Part::kBody && (frame_.header.flags & kFlagLent) != 0) {
    const std::span<const std::byte> block = frame_.body.bytes().subspan(frame_.payload_at);
    const auto count = decode_lend_count(frame_.header, block.first<kLendHeadBytes>());
    if (!count.ok()) {
      why_ = count.status();
      return Result::kBroken;
    }
    // Meta and the head of the block move to a buffer that has room for all of it: bookkeeping, not
    // payload.
    Buffer whole = Buffer::allocate(frame_.payload_at + lend_bytes(*count));
    std::memcpy(whole.mutable_data(), frame_.body.data(), frame_.body.size());
    body_have_ = frame_.body.size();
    frame_.body = std::move(whole);
    part_ = Part::kLendRest;
    if (body_have_ < frame_.body.size()) return Result::kFrame;
  }
  part_ = Part::kHeader;
  const size_t behind_meta = frame_.body.size() - frame_.payload_at;
  after_tiny_ = is_tiny(kFrameHeaderBytes + frame_.header.meta_bytes + behind_meta);
  return Result::kFrame;
}

void FrameWriter::push(EncodedFrame frame, Ticket ticket, uint64_t id) {
  const bool large = !frame.pieces.empty();
  // Until the next large one, whatever comes between: that may be dropped again.
  if (!large && is_tiny(frame.head.size())) after_tiny_ = true;
  bytes_ += bytes_of(frame);
  queue_.push_back({std::move(frame), std::move(ticket), id});
  if (large && std::exchange(after_tiny_, false)) put_spacer_before(queue_.back());
}

void FrameWriter::put_spacer_before(Item& item) {
  item.part = 0;
  bytes_ += spacer_.size();
}

const Buffer& FrameWriter::part_of(const Item& item, size_t part) const {
  if (part == 0) return spacer_;
  return part == 1 ? item.frame.head : item.frame.pieces[part - 2];
}

bool FrameWriter::drop(uint64_t id) {
  // Linear: a client has at most connection_requests_max frames here, and gives up few of them.
  const auto item =
      std::find_if(queue_.begin(), queue_.end(), [id](const Item& it) { return it.id == id; });
  if (item == queue_.end() || item->part > 1 || item->offset > 0) return false;
  const bool spaced = item->part == 0;
  bytes_ -= bytes_of(item->frame) + (spaced ? spacer_.size() : 0);
  const auto next = queue_.erase(item);
  if (!spaced) return true;
  // Its spacer goes with it; the tiny frame may still stand before another large one.
  const auto large =
      std::find_if(next, queue_.end(), [](const Item& it) { return !it.frame.pieces.empty(); });
  if (large == queue_.end()) {
    after_tiny_ = true;
  } else if (large->part > 0) {
    put_spacer_before(*large);
  }
  return true;
}

Status FrameWriter::flush(int fd) {
  while (!queue_.empty()) {
    std::array<iovec, kIovMax> iov;
    size_t count = 0;
    for (auto item = queue_.begin(); item != queue_.end() && count < kIovMax; ++item) {
      const size_t parts = parts_of(*item);
      for (size_t part = item->part; part < parts && count < kIovMax; ++part) {
        const Buffer& buffer = part_of(*item, part);
        const size_t skip = part == item->part ? item->offset : 0;
        iov[count++] = {const_cast<std::byte*>(buffer.data()) + skip, buffer.size() - skip};
      }
    }
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = count;
    const ssize_t written = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::OkStatus();
      return unavailable("{}", std::strerror(errno));
    }
    counters_.sent_bytes.add(static_cast<uint64_t>(written));
    advance(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

void FrameWriter::advance(size_t written) {
  bytes_ -= written;
  sent_ += written;
  while (!queue_.empty()) {
    Item& item = queue_.front();
    const size_t parts = parts_of(item);
    while (item.part < parts) {
      const size_t left = part_of(item, item.part).size() - item.offset;
      if (written < left) {
        item.offset += written;
        return;
      }
      written -= left;
      item.offset = 0;
      ++item.part;
    }
    queue_.pop_front();
  }
}

void FrameWriter::clear() {
  queue_.clear();
  after_tiny_ = false;
  bytes_ = 0;
}

}  // namespace starling
