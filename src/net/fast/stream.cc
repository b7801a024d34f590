#include "net/fast/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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
    const bool body_done = part_ != Part::kHeader && body_have_ == frame_.body.size();
    if (!body_done) {
      if (part_ != Part::kHeader || head_have_ < kFrameHeaderBytes) {
        if (const Result result = read_more(fd); result != Result::kFrame) return result;
      }
    }
    if (part_ == Part::kHeader) {
      if (head_have_ < kFrameHeaderBytes) continue;
      if (const Result result = on_header(); result != Result::kFrame) return result;
    } else if (body_have_ == frame_.body.size()) {
      const Result result = on_body();
      if (result == Result::kBroken || part_ == Part::kHeader) return result;
    }
  }
}

// One system call. Returns kFrame when something came. Never reads beyond the next header, so that
// a payload's first bytes cannot land anywhere but in their final buffer.
FrameReader::Result FrameReader::read_more(int fd) {
  std::array<iovec, 2> iov;
  int parts = 0;
  size_t body_wanted = 0;
  if (part_ != Part::kHeader) {
    body_wanted = frame_.body.size() - body_have_;
    iov[0] = {frame_.body.mutable_data() + body_have_, body_wanted};
    parts = 1;
  }
  const bool lend_follows = part_ == Part::kBody && (frame_.header.flags & kFlagLent) != 0;
  if (!lend_follows) {
    iov[static_cast<size_t>(parts)] = {head_.data() + head_have_, kFrameHeaderBytes - head_have_};
    ++parts;
  }
  const ssize_t got =
      parts == 1 ? ::recv(fd, iov[0].iov_base, iov[0].iov_len, 0) : ::readv(fd, iov.data(), parts);
  if (got == 0) return Result::kClosed;
  if (got < 0) {
    if (errno == EINTR) return Result::kFrame;
    return errno == EAGAIN || errno == EWOULDBLOCK ? Result::kEmpty : Result::kClosed;
  }
  counters_.received_bytes.add(static_cast<uint64_t>(got));
  received_ += static_cast<uint64_t>(got);
  drained_ = static_cast<size_t>(got) < iov[0].iov_len + (parts == 2 ? iov[1].iov_len : 0);
  const size_t to_body = std::min(static_cast<size_t>(got), body_wanted);
  body_have_ += to_body;
  head_have_ += static_cast<size_t>(got) - to_body;
  return Result::kFrame;
}

FrameReader::Result FrameReader::on_header() {
  StatusOr<FrameHeader> header = decode_header(head_, limits_);
  head_have_ = 0;
  if (!header.ok()) {
    why_ = header.status();
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
  return Result::kFrame;
}

void FrameWriter::push(EncodedFrame frame, Ticket ticket, uint64_t id) {
  bytes_ += bytes_of(frame);
  queue_.push_back({std::move(frame), std::move(ticket), id});
}

bool FrameWriter::drop(uint64_t id) {
  // Linear: a client has at most connection_requests_max frames here, and gives up few of them.
  const auto item =
      std::find_if(queue_.begin(), queue_.end(), [id](const Item& it) { return it.id == id; });
  if (item == queue_.end() || item->part > 0 || item->offset > 0) return false;
  bytes_ -= bytes_of(item->frame);
  queue_.erase(item);
  return true;
}

Status FrameWriter::flush(int fd) {
  while (!queue_.empty()) {
    std::array<iovec, kIovMax> iov;
    size_t count = 0;
    for (auto item = queue_.begin(); item != queue_.end() && count < kIovMax; ++item) {
      const size_t parts = item->frame.pieces.size() + 1;
      for (size_t part = item->part; part < parts && count < kIovMax; ++part) {
        const Buffer& buffer = part == 0 ? item->frame.head : item->frame.pieces[part - 1];
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
  while (!queue_.empty()) {
    Item& item = queue_.front();
    const size_t parts = item.frame.pieces.size() + 1;
    while (item.part < parts) {
      const Buffer& buffer = item.part == 0 ? item.frame.head : item.frame.pieces[item.part - 1];
      const size_t left = buffer.size() - item.offset;
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
  bytes_ = 0;
}

}  // namespace starling
