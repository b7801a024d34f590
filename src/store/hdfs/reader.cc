#include "store/hdfs/reader.h"

#include <algorithm>

#include "base/check.h"

namespace starling {
namespace {

// Of a stream that is read alone: what the network may bring while its owner parses.
constexpr uint64_t kStreamBytes = 4 << 20;
// Downloads of other slots stand still between calls; this often they get a turn.
constexpr uint64_t kPerformBytes = 256 << 10;
constexpr Duration kInterruptCheck = seconds(1);

bool is_parallel(const HdfsOptions& options, uint64_t bytes) {
  return options.parallel_ranges > 1 && bytes >= options.parallel_bytes_min;
}

// A file that is being written, or whose writer's data node died, shows 0 bytes. Name nodes tell it
// from an empty one; where one does not know the question, OPEN fails once a block was begun.
Status check_empty(NameNodes& nodes, std::string_view path, std::string_view url) {
  const StatusOr<HdfsAnswer> blocks =
      nodes.call({.op = "GET_BLOCK_LOCATIONS", .path = path, .url = url, .what = "read"});
  if (blocks.ok() && parse_under_construction(blocks->body).value_or(false)) {
    return unavailable("{}: read: the file is being written, or its writer died", url);
  }
  const Deadline deadline = nodes.retry_deadline();
  Backoff backoff(nodes.options(), nodes.next_seed());
  while (true) {
    const HdfsCall request{
        .op = "OPEN", .path = path, .parameters = {{"offset", "0"}}, .url = url, .what = "read"};
    STARLING_ASSIGN_OR_RETURN(const HdfsAnswer answer, nodes.call(request));
    if (answer.location.empty()) return absl::OkStatus();
    const HttpReply reply =
        nodes.http().call(HttpMethod::kGet, answer.location, nodes.options().call_timeout);
    if (reply.outcome == HttpOutcome::kReplied && reply.code == 200) {
      if (reply.body.empty()) return absl::OkStatus();
      return aborted("{}: read: the file has grown since it was opened", url);
    }
    Status status = nodes.error_of(reply, url, "read", "the data node");
    if (status.code() != StatusCode::kUnavailable || !backoff.wait(nodes.clock(), deadline))
      return status;
  }
}

}  // namespace

StatusOr<std::unique_ptr<Reader>> HdfsReader::open(std::shared_ptr<NameNodes> nodes,
                                                   std::string_view path, std::string_view url,
                                                   ReadRange range) {
  STARLING_ASSIGN_OR_RETURN(const HdfsFileStatus status,
                            nodes->stat(path, url, "open for reading"));
  if (status.is_directory) return failed_precondition("{}: open for reading: is a directory", url);
  if (range.offset > status.bytes) {
    return out_of_range("{}: open for reading: offset {} lies past the end at {}", url,
                        range.offset, status.bytes);
  }
  range.bytes = std::min(range.bytes, status.bytes - range.offset);
  std::string inode = status.file_id == 0 ? std::string(path)
                                          : fmt::format("/.reserved/.inodes/{}", status.file_id);
  if (status.bytes == 0) STARLING_RETURN_IF_ERROR(check_empty(*nodes, inode, url));
  return std::unique_ptr<Reader>(
      new HdfsReader(std::move(nodes), std::move(inode), std::string(url), range));
}

HdfsReader::HdfsReader(std::shared_ptr<NameNodes> nodes, std::string path, std::string url,
                       ReadRange range)
    : nodes_(std::move(nodes)),
      path_(std::move(path)),
      url_(std::move(url)),
      slot_bytes_(is_parallel(nodes_->options(), range.bytes) ? nodes_->options().range_bytes
                                                              : range.bytes),
      slots_max_(slot_bytes_ < range.bytes ? nodes_->options().parallel_ranges : 1),
      memory_bytes_(static_cast<size_t>(slots_max_ > 1 ? slot_bytes_ : kStreamBytes)),
      next_(range.offset),
      end_(range.offset + range.bytes) {}

void HdfsReader::interrupt() {
  is_interrupted_.store(true, std::memory_order_release);
  multi_.wake();
}

void HdfsReader::start(Slot& slot) {
  const uint64_t left = slot.bytes - slot.taken;
  std::vector<std::pair<std::string, std::string>> parameters = {
      {"offset", fmt::format("{}", slot.start + slot.taken)}, {"length", fmt::format("{}", left)}};
  if (!excluded_.empty()) parameters.emplace_back("excludedatanodes", excluded_);
  slot.download.reset();
  slot.download = std::make_unique<HttpDownload>(nodes_->http(), multi_,
                                                 std::span(slot.memory.get(), memory_bytes_), left);
  slot.download->start(nodes_->http_url("OPEN", path_, parameters));
}

void HdfsReader::fill_window() {
  while (slots_.size() < slots_max_ && next_ < end_) {
    Slot slot;
    slot.start = next_;
    slot.bytes = std::min(slot_bytes_, end_ - next_);
    if (free_memory_.empty()) {
      slot.memory = allocate_pages(memory_bytes_);
    } else {
      slot.memory = std::move(free_memory_.back());
      free_memory_.pop_back();
    }
    next_ += slot.bytes;
    slots_.push_back(std::move(slot));
    start(slots_.back());
  }
}

StatusOr<size_t> HdfsReader::read(std::span<std::byte> into) {
  STARLING_RETURN_IF_ERROR(failed_);
  if (into.empty()) return size_t{0};
  StatusOr<size_t> got = read_some(into);
  if (!got.ok()) {
    failed_ = got.status();
    slots_.clear();
  }
  return got;
}

StatusOr<size_t> HdfsReader::read_some(std::span<std::byte> into) {
  give_up_ = nodes_->retry_deadline();
  backoff_.reset();
  while (true) {
    if (is_interrupted_.load(std::memory_order_acquire))
      return cancelled("{}: read: interrupted", url_);
    fill_window();
    if (slots_.empty()) return size_t{0};
    if (moved_since_perform_ >= kPerformBytes) {
      moved_since_perform_ = 0;
      multi_.perform();
    }
    Slot& first = slots_.front();
    if (const size_t got = take_from_first(first.download->take(into)); got > 0) return got;
    // Nothing waits to be taken: the slot has ended early, or is slow.
    if (first.download->is_done()) {
      STARLING_RETURN_IF_ERROR(restart_first(false));
      continue;
    }
    first.download->aim(into);
    const bool has_moved = wait_for_first();
    if (const size_t got = take_from_first(first.download->hit(into)); got > 0) return got;
    if (!has_moved) STARLING_RETURN_IF_ERROR(restart_first(true));
  }
}

size_t HdfsReader::take_from_first(size_t got) {
  Slot& first = slots_.front();
  first.taken += got;
  moved_since_perform_ += got;
  if (first.taken == first.bytes) {
    free_memory_.push_back(std::move(first.memory));
    slots_.pop_front();
  }
  return got;
}

bool HdfsReader::wait_for_first() {
  const HttpDownload& download = *slots_.front().download;
  const uint64_t before = download.received();
  const Deadline stall = Deadline::in(nodes_->clock(), nodes_->options().stall_timeout);
  while (!download.is_done() && download.received() == before) {
    const Duration left = stall.left(nodes_->clock().now());
    if (left == Duration::zero()) return false;
    if (is_interrupted_.load(std::memory_order_acquire)) return true;
    multi_.wait(std::min<Duration>(left, kInterruptCheck));
  }
  return true;
}

Status HdfsReader::restart_first(bool has_stalled) {
  Slot& slot = slots_.front();
  const HttpDownload& download = *slot.download;
  const HttpReply& reply = download.reply();
  const std::string peer = download.peer();
  Status status;
  if (has_stalled) {
    status = unavailable(
        "{}: read at {}: {} sent nothing for {} ms", url_, slot.start + slot.taken, peer,
        std::chrono::duration_cast<milliseconds>(nodes_->options().stall_timeout).count());
  } else if (download.has_too_much()) {
    return data_loss("{}: read at {}: {} sent more than the {} bytes asked for", url_, slot.start,
                     peer, slot.bytes);
  } else if (reply.outcome == HttpOutcome::kReplied && reply.code == 200) {
    status = unavailable("{}: read: {} ended the stream at {}, {} bytes short", url_, peer,
                         slot.start + slot.taken, slot.bytes - slot.taken);
  } else {
    status =
        nodes_->error_of(reply, url_, fmt::format("read at {}", slot.start + slot.taken), peer);
    if (status.code() == StatusCode::kNotFound) {
      return aborted("{}: read at {}: the file was replaced or deleted meanwhile", url_,
                     slot.start + slot.taken);
    }
    if (status.code() != StatusCode::kUnavailable) return status;
  }
  if (reply.outcome == HttpOutcome::kReplied && reply.code != 200) {
    // Perhaps a standby, perhaps all data nodes that have the block are among the excluded.
    nodes_->try_next_node();
    excluded_.clear();
  } else if (nodes_->is_name_node(peer)) {
    nodes_->try_next_node();
  } else {
    const std::string address = nodes_->transfer_address(peer);
    if (excluded_.find(address) == std::string::npos)
      excluded_ += (excluded_.empty() ? "" : ",") + address;
  }
  if (backoff_ == nullptr)
    backoff_ = std::make_unique<Backoff>(nodes_->options(), nodes_->next_seed());
  if (!backoff_->wait(nodes_->clock(), give_up_)) return status;
  start(slot);
  return absl::OkStatus();
}

}  // namespace starling
