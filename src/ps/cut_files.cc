#include "ps/cut_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "ps/manifest.h"

namespace starling {
namespace {

// Training goes first where cores are few. What these threads start gives way too.
void give_way() {
  constexpr int kNice = 5;
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace

size_t CutFiles::Item::held_bytes() const {
  size_t held = bytes.size();
  if (rows.has_value()) held += rows->rows.size() + rows->admission.size();
  if (part.has_value()) held += (part->weights.size() + part->state.size()) * sizeof(float);
  return held;
}

void CutFiles::Item::make_bytes() {
  if (rows.has_value()) rows->make_image(bytes);
  if (part.has_value()) bytes = part->encode();
  rows.reset();
  part.reset();
}

CutFiles::CutFiles(FileSystem& fs, CutFilesOptions options)
    : fs_(fs),
      options_(std::move(options)),
      stocker_({.name = "cut-memory"}, [this] { fill_stock(); }),
      maker_({.name = "cut-maker"}, [this] { make_items(); }),
      writer_({.name = "cut-writer"}, [this] { run(); }) {}

CutFiles::~CutFiles() {
  cancel();
  stocker_.join();
  maker_.join();
  writer_.join();
}

Status CutFiles::put(Item item, Deadline deadline) {
  MutexLock lock(mutex_);
  const size_t bytes = item.held_bytes();
  // An item larger than the bound gets in alone. Variables were copied at the cut: they hold their
  // memory already, and the cut must not wait.
  while (progress_.status.ok() && !item.part.has_value() && progress_.queued_bytes > 0 &&
         progress_.queued_bytes + bytes > options_.queue_bytes_max) {
    if (!changed_.wait(mutex_, deadline)) {
      return deadline_exceeded("{}: {} bytes wait to be written, the limit is {}", options_.path,
                               progress_.queued_bytes, options_.queue_bytes_max);
    }
  }
  STARLING_RETURN_IF_ERROR(progress_.status);
  item.queued_bytes = bytes;
  progress_.queued_bytes += bytes;
  progress_.queued_bytes_max = std::max(progress_.queued_bytes_max, progress_.queued_bytes);
  queue_.push_back(std::move(item));
  changed_.notify_all();
  return absl::OkStatus();
}

bool CutFiles::has_room() const { return wait_for_room(Deadline(TimePoint::min())); }

bool CutFiles::wait_for_room(Deadline deadline) const {
  MutexLock lock(mutex_);
  while (progress_.status.ok() && progress_.queued_bytes >= options_.queue_bytes_max / 2) {
    if (!changed_.wait(mutex_, deadline)) return false;
  }
  return true;
}

void CutFiles::finish(ckpt::ShardState state) {
  MutexLock lock(mutex_);
  state_ = std::move(state);
  is_finished_ = true;
  changed_.notify_all();
  stock_.close();
}

void CutFiles::cancel() {
  MutexLock lock(mutex_);
  if (progress_.is_done) return;
  is_cancelled_ = true;
  stock_.close();
  if (progress_.status.ok()) progress_.status = cancelled("cut {} was dropped", options_.cut_id);
  changed_.notify_all();
}

bool CutFiles::has_ended() const {
  MutexLock lock(mutex_);
  return has_ended_;
}

CutFiles::Progress CutFiles::progress() const {
  MutexLock lock(mutex_);
  return progress_;
}

Status CutFiles::status() const {
  MutexLock lock(mutex_);
  return progress_.status;
}

size_t CutFiles::queued_bytes() const {
  MutexLock lock(mutex_);
  return progress_.queued_bytes;
}

void CutFiles::fail(const Status& status) {
  MutexLock lock(mutex_);
  if (progress_.status.ok()) progress_.status = status;
  queue_.clear();
  stock_.close();
  progress_.queued_bytes = 0;
  changed_.notify_all();
}

void CutFiles::dispose(std::shared_ptr<void> memory) {
  if (memory == nullptr) return;
  MutexLock lock(mutex_);
  disposed_.push_back(std::move(memory));
  changed_.notify_all();
}

void CutFiles::drop_disposed() {
  std::vector<std::shared_ptr<void>> memory;
  MutexLock lock(mutex_);
  memory.swap(disposed_);
}

bool CutFiles::next(Item& item) {
  drop_disposed();
  MutexLock lock(mutex_);
  while (queue_.empty() && !is_finished_ && !is_cancelled_ && progress_.status.ok()) {
    changed_.wait(mutex_, Deadline::never());
  }
  if (is_cancelled_ || !progress_.status.ok() || queue_.empty()) return false;
  item = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

// A first use of memory may take a virtual machine two milliseconds per megabyte, which training
// must not wait for.
void CutFiles::fill_stock() {
  give_way();
  while (options_.has_stock) {
    Pages chunk = Pages::map(RowCopies::kChunkBytes);
    if (chunk.data() == nullptr) break;
    chunk.ensure(RowCopies::kChunkBytes);
    if (!stock_.push(chunk, Deadline::never()).ok()) break;
  }
  // Given back here and not on the lane.
  while (stock_.try_pop().ok()) {
  }
}

Pages CutFiles::take() {
  StatusOr<Pages> chunk = stock_.try_pop();
  return chunk.ok() ? *std::move(chunk) : Pages();
}

void CutFiles::make_items() {
  give_way();
  for (Item item; next(item);) {
    if (item.bytes.empty()) {
      if (auto spent = spent_.try_pop(); spent.ok()) item.bytes = *std::move(spent);
    }
    item.make_bytes();
    if (!made_.push(item, Deadline::never()).ok()) break;
  }
  made_.close();
}

void CutFiles::run() {
  give_way();
  const Status status = write_all();
  open_.clear();
  dense_.reset();
  if (!status.ok()) fail(status);
  made_.close();
  bool is_done = false;
  {
    MutexLock lock(mutex_);
    is_done = progress_.is_done = progress_.status.ok();
  }
  if (!is_done) remove_written();
  drop_disposed();
  MutexLock lock(mutex_);
  has_ended_ = true;
}

Status CutFiles::write_all() {
  STARLING_ASSIGN_OR_RETURN(const bool is_taken, fs_.exists(options_.path + "/" + kManifestName));
  if (is_taken) return already_exists("{}: holds a finished cut", options_.path);
  while (true) {
    StatusOr<Item> made = made_.pop(Deadline::never());
    if (!made.ok()) break;  // closed: there are no more
    Item& item = *made;
    STARLING_RETURN_IF_ERROR(status());
    STARLING_RETURN_IF_ERROR(write(item));
    const bool has_rows =
        item.kind == CutRecordKind::kBucket || item.kind == CutRecordKind::kChanges;
    {
      MutexLock lock(mutex_);
      progress_.queued_bytes -= std::min(item.queued_bytes, progress_.queued_bytes);
      progress_.bytes += item.bytes.size();
      if (has_rows) progress_.rows += image_rows(item.bytes);
      changed_.notify_all();
    }
    if (has_rows) (void)spent_.try_push(std::move(item.bytes));
  }
  {
    MutexLock lock(mutex_);
    STARLING_RETURN_IF_ERROR(progress_.status);
  }
  return write_state();
}

Status CutFiles::write(const Item& item) {
  if (item.kind == CutRecordKind::kPart) {
    if (dense_ == nullptr) {
      STARLING_ASSIGN_OR_RETURN(dense_,
                                CutFileWriter::open(fs_, options_.path, file_name("dense"),
                                                    {ckpt::FILE_KIND_DENSE, options_.cut_id, ""}));
    }
    return dense_->add(item.kind, item.number, item.bytes);
  }
  const Slot slot{item.table, item.is_ahead};
  if (!item.is_ahead) {
    // Tables come one after the other: what is open of another one has ended.
    std::vector<Slot> ended;
    for (const auto& [other, writer] : open_) {
      if (!other.second && other != slot) ended.push_back(other);
    }
    for (const Slot& other : ended) STARLING_RETURN_IF_ERROR(close(other));
  }
  std::unique_ptr<CutFileWriter>& writer = open_[slot];
  if (writer == nullptr) {
    STARLING_ASSIGN_OR_RETURN(
        writer, CutFileWriter::open(fs_, options_.path, file_name("rows"),
                                    {ckpt::FILE_KIND_ROWS, options_.cut_id, item.table}));
  }
  STARLING_RETURN_IF_ERROR(writer->add(item.kind, item.number, item.bytes));
  // Deletions concern every bucket, so they have a file of their own.
  if (item.kind == CutRecordKind::kDeleted || writer->bytes() >= options_.file_bytes) {
    return close(slot);
  }
  return absl::OkStatus();
}

Status CutFiles::close(const Slot& slot) {
  const auto it = open_.find(slot);
  const std::unique_ptr<CutFileWriter> writer = std::move(it->second);
  open_.erase(it);
  STARLING_ASSIGN_OR_RETURN(ckpt::File file, writer->publish());
  published_.push_back(file.name());
  MutexLock lock(mutex_);
  progress_.files.push_back(std::move(file));
  return absl::OkStatus();
}

Status CutFiles::write_state() {
  while (!open_.empty()) STARLING_RETURN_IF_ERROR(close(open_.begin()->first));
  ckpt::ShardPart part;
  if (dense_ != nullptr) {
    STARLING_ASSIGN_OR_RETURN(ckpt::File file, dense_->publish());
    published_.push_back(file.name());
    MutexLock lock(mutex_);
    progress_.files.push_back(std::move(file));
  }
  {
    MutexLock lock(mutex_);
    *part.mutable_state() = state_;
    for (const ckpt::File& file : progress_.files) *part.add_files() = file;
  }
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<CutFileWriter> writer,
                            CutFileWriter::open(fs_, options_.path, file_name("state"),
                                                {ckpt::FILE_KIND_STATE, options_.cut_id, ""}));
  STARLING_RETURN_IF_ERROR(
      writer->add(CutRecordKind::kState, 0, bytes_of(part.SerializeAsString())));
  STARLING_ASSIGN_OR_RETURN(ckpt::File file, writer->publish());
  published_.push_back(file.name());
  MutexLock lock(mutex_);
  progress_.files.push_back(std::move(file));
  return absl::OkStatus();
}

std::string CutFiles::file_name(const char* suffix) {
  return fmt::format("{:012}-{:03}-{:03}-{:016x}-{:05}.{}", options_.cut_id, value(options_.node),
                     value(options_.lane), value(options_.incarnation), files_made_++, suffix);
}

void CutFiles::remove_written() {
  // What stays behind is cleared away by the coordinator with the rest of the directory.
  for (const std::string& name : published_) (void)fs_.remove(options_.path + "/" + name);
}

}  // namespace starling
