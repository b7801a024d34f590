#include "ps/cut_publisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ps/checkpoint_file.h"
#include "ps/cut_restore.h"

namespace starling {
namespace {

constexpr size_t kImageHeadBytes = 32;  // of a bucket with no rows and nothing to admit

bool is_state(const v1::SavedFile& file) { return file.name().ends_with(".state"); }

// What one shard wrote, by the file it wrote last.
StatusOr<ckpt::ShardPart> read_part(FileSystem& fs, const CutDraft& draft,
                                    const v1::SavedFile& saved, ckpt::File& file) {
  file.set_name(saved.name());
  file.set_kind(ckpt::FILE_KIND_STATE);
  file.set_bytes(saved.bytes());
  file.set_xxh3(saved.xxh3());
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<CutFileReader> reader,
                            CutFileReader::open(fs, draft.path, file, draft.manifest.cut_id()));
  FileRecord record;
  STARLING_RETURN_IF_ERROR(reader->next(record));
  ckpt::ShardPart part;
  if (record.kind != CutRecordKind::kState ||
      !part.ParseFromArray(record.bytes.data(), static_cast<int>(record.bytes.size()))) {
    return data_loss("{}/{}: holds no state of a shard", draft.path, saved.name());
  }
  STARLING_RETURN_IF_ERROR(reader->next(record));
  return part;
}

// Every file that a shard listed is there, as large as it says, and no other was reported.
Status check_files(FileSystem& fs, const CutDraft& draft, const ckpt::Manifest& manifest) {
  std::map<std::string, const v1::SavedFile*> reported;
  for (const v1::SavedFile& file : draft.files) reported[file.name()] = &file;
  for (const ckpt::File& file : manifest.files()) {
    const auto it = reported.find(file.name());
    if (it == reported.end() || it->second->bytes() != file.bytes() ||
        it->second->xxh3() != file.xxh3()) {
      return data_loss("{}/{}: was reported otherwise than written", draft.path, file.name());
    }
    reported.erase(it);
    STARLING_ASSIGN_OR_RETURN(const FileInfo info, fs.stat(draft.path + "/" + file.name()));
    if (info.bytes != file.bytes()) {
      return data_loss("{}/{}: {} bytes, {} were written", draft.path, file.name(), info.bytes,
                       file.bytes());
    }
  }
  if (!reported.empty()) {
    return data_loss("{}/{}: no shard says that it wrote it", draft.path, reported.begin()->first);
  }
  return absl::OkStatus();
}

StatusOr<std::string> find_base(FileSystem& fs, const CutDraft& draft) {
  const ckpt::Manifest& manifest = draft.manifest;
  const std::string directory = directory_of(draft.path);
  STARLING_ASSIGN_OR_RETURN(const Cut base, find_cut(fs, directory, manifest.base_cut()));
  if (!std::equal(base.manifest.names().begin(), base.manifest.names().end(),
                  manifest.names().begin(), manifest.names().end()) ||
      base.manifest.filter() == v1::SAVE_FILTER_DELTA ||
      base.manifest.filter() == v1::SAVE_FILTER_BASE) {
    return invalid_argument("cut {} holds other names or rows than its base, cut {}",
                            manifest.cut_id(), manifest.base_cut());
  }
  // It must be whole itself: a cut that cannot be read is no success.
  STARLING_RETURN_IF_ERROR(chain_of(fs, base).status());
  return name_in_directory(base.path);
}

StatusOr<ckpt::Manifest> complete(FileSystem& fs, const CutDraft& draft) {
  ckpt::Manifest manifest = draft.manifest;
  manifest.set_format(kManifestFormat);
  std::vector<ckpt::ShardState> states;
  for (const v1::SavedFile& saved : draft.files) {
    if (!is_state(saved)) continue;
    ckpt::File file;
    STARLING_ASSIGN_OR_RETURN(ckpt::ShardPart part, read_part(fs, draft, saved, file));
    states.push_back(std::move(*part.mutable_state()));
    for (ckpt::File& one : *part.mutable_files()) *manifest.add_files() = std::move(one);
    *manifest.add_files() = std::move(file);
  }
  if (states.empty()) return data_loss("{}: no shard has reported its state", draft.path);
  STARLING_RETURN_IF_ERROR(check_files(fs, draft, manifest));
  ckpt::ShardState hubs;
  for (const v1::Watermark& mark : draft.watermarks) *hubs.add_watermarks() = mark;
  states.push_back(std::move(hubs));
  STARLING_ASSIGN_OR_RETURN(*manifest.mutable_state(), merge_states(states));
  manifest.clear_base();
  if (manifest.mode() == ckpt::MODE_INCREMENTAL) {
    STARLING_ASSIGN_OR_RETURN(*manifest.mutable_base(), find_base(fs, draft));
  }
  return manifest;
}

struct BucketRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// Rows of one table in a range of buckets of a chain, as one file of full buckets.
Status compact_range(FileSystem& fs, const std::vector<Cut>& chain, const TableOptions& options,
                     BucketRange range, const std::string& name, std::vector<ckpt::File>& files) {
  const Cut& cut = chain.back();
  std::vector<uint8_t> owns(kBuckets);
  std::fill(owns.begin() + range.begin, owns.begin() + range.end, 1);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Table> table, Table::make(options));
  STARLING_RETURN_IF_ERROR(read_table(fs, chain, *table, owns).status());
  std::unique_ptr<CutFileWriter> writer;
  for (uint32_t bucket = range.begin; bucket < range.end; ++bucket) {
    const std::vector<std::byte> image = table->export_bucket(static_cast<BucketId>(bucket));
    if (image.size() <= kImageHeadBytes) continue;
    if (writer == nullptr) {
      STARLING_ASSIGN_OR_RETURN(
          writer, CutFileWriter::open(fs, cut.path, name,
                                      {ckpt::FILE_KIND_ROWS, cut.manifest.cut_id(), options.name}));
    }
    STARLING_RETURN_IF_ERROR(writer->add(CutRecordKind::kBucket, bucket, image));
  }
  if (writer == nullptr) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(ckpt::File file, writer->publish());
  files.push_back(std::move(file));
  return absl::OkStatus();
}

uint64_t bytes_of_table(const std::vector<Cut>& chain, const std::string& table) {
  uint64_t bytes = 0;
  for (const Cut& cut : chain) {
    for (const ckpt::File& file : cut.manifest.files()) {
      if (file.kind() == ckpt::FILE_KIND_ROWS && file.table() == table) bytes += file.bytes();
    }
  }
  return bytes;
}

}  // namespace

StatusOr<Cut> publish_cut(FileSystem& fs, const CutDraft& draft) {
  const auto in_place = [&]() -> StatusOr<Cut> {
    STARLING_ASSIGN_OR_RETURN(Cut cut, read_cut(fs, draft.path));
    if (cut.manifest.cut_id() == draft.manifest.cut_id()) return cut;
    return already_exists("{}: is cut {}, not {}", draft.path, cut.manifest.cut_id(),
                          draft.manifest.cut_id());
  };
  StatusOr<Cut> before = in_place();
  if (before.status().code() != StatusCode::kNotFound) return before;
  STARLING_ASSIGN_OR_RETURN(const ckpt::Manifest manifest, complete(fs, draft));
  Status status = write_manifest(fs, draft.path, manifest, Existing::kKeep);
  if (status.ok()) return Cut{draft.path, manifest};
  // The rename may have happened and its answer been lost.
  if (status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAlreadyExists) {
    if (StatusOr<Cut> after = in_place(); after.ok()) return after;
  }
  return status;
}

Status compact_cut(FileSystem& fs, const Cut& cut, Incarnation incarnation, uint64_t range_bytes) {
  if (cut.manifest.mode() == ckpt::MODE_FULL) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(const std::vector<Cut> chain, chain_of(fs, cut));
  ckpt::Manifest manifest = cut.manifest;
  manifest.set_mode(ckpt::MODE_FULL);
  manifest.clear_base();
  manifest.clear_base_cut();
  manifest.clear_files();
  std::vector<ckpt::File> files;
  uint32_t number = 0;
  for (const v1::TableOptions& proto : cut.manifest.state().schema().tables()) {
    const uint64_t bytes = bytes_of_table(chain, proto.name());
    if (bytes == 0) continue;
    STARLING_ASSIGN_OR_RETURN(const TableOptions options,
                              table_options(proto, cut.manifest.state().schema().seed()));
    const uint64_t wanted = bytes / std::max<uint64_t>(range_bytes, 1) + 1;
    const auto step = static_cast<uint32_t>(
        std::max<uint64_t>(1, kBuckets / std::min<uint64_t>(wanted, kBuckets)));
    for (uint32_t first = 0; first < kBuckets; first += step) {
      const std::string name = fmt::format("{:012}-compact-{:016x}-{:05}.rows",
                                           cut.manifest.cut_id(), value(incarnation), number++);
      STARLING_RETURN_IF_ERROR(compact_range(
          fs, chain, options, {first, std::min(first + step, kBuckets)}, name, files));
    }
  }
  for (const ckpt::File& file : files) *manifest.add_files() = file;
  for (const ckpt::File& file : cut.manifest.files()) {
    if (file.kind() != ckpt::FILE_KIND_ROWS) *manifest.add_files() = file;
  }
  STARLING_RETURN_IF_ERROR(write_manifest(fs, cut.path, manifest, Existing::kReplace));
  for (const ckpt::File& file : cut.manifest.files()) {
    if (file.kind() == ckpt::FILE_KIND_ROWS) (void)fs.remove(cut.path + "/" + file.name());
  }
  return absl::OkStatus();
}

CutPublisher::CutPublisher(FileSystem& fs, CutPublisherOptions options, Log log)
    : fs_(fs),
      options_(options),
      log_(std::move(log)),
      thread_({.name = "cut-publisher"}, [this] { run(); }) {}

CutPublisher::~CutPublisher() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void CutPublisher::push(Task task) {
  {
    MutexLock lock(mutex_);
    if (!is_stopping_ && tasks_.size() < options_.pending_max) {
      tasks_.push_back(std::move(task));
      changed_.notify_all();
      return;
    }
  }
  if (task.done) {
    task.done(resource_exhausted("{} cuts wait to be published, the limit", options_.pending_max));
  }
}

void CutPublisher::commit(CutDraft draft, Done done) { push({std::move(draft), std::move(done)}); }

void CutPublisher::discard(std::string path, uint64_t cut_id) {
  Task task;
  task.draft.path = std::move(path);
  task.draft.manifest.set_cut_id(cut_id);
  push(std::move(task));
}

void CutPublisher::run() {
  while (true) {
    Task task;
    bool is_stopping = false;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !is_stopping_) changed_.wait(mutex_, Deadline::never());
      if (tasks_.empty()) return;
      is_stopping = is_stopping_;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (is_stopping) {
      if (task.done) task.done(cancelled("the scheduler stops"));
    } else if (task.done) {
      commit_now(task);
    } else {
      discard_now(task.draft);
    }
  }
}

void CutPublisher::commit_now(Task& task) {
  const StatusOr<Cut> cut = publish_cut(fs_, task.draft);
  if (!cut.ok()) {
    task.done(cut.status());
    return;
  }
  task.done(cut->path);
  tidy(task.draft, *cut);
}

void CutPublisher::tidy(const CutDraft& draft, const Cut& cut) {
  const StatusOr<std::vector<Cut>> chain = chain_of(fs_, cut);
  if (chain.ok() && chain->size() > options_.chain_max) {
    if (const Status status = compact_cut(fs_, cut, options_.incarnation); !status.ok()) {
      log_.warning("cut_not_compacted",
                   {{"cut", cut.manifest.cut_id()}, {"status", status.ToString()}});
    }
  }
  const StatusOr<std::vector<uint64_t>> removed =
      remove_old_cuts(fs_, directory_of(draft.path), draft.keep, cut.manifest.cut_id());
  if (!removed.ok()) {
    log_.warning("old_cuts_stay", {{"status", removed.status().ToString()}});
  }
}

void CutPublisher::discard_now(const CutDraft& draft) {
  const StatusOr<bool> is_complete = fs_.exists(draft.path + "/" + kManifestName);
  // Who names a directory of his own may keep other things in it.
  if (!is_complete.ok() || *is_complete || id_of_cut_name(name_in_directory(draft.path)) == 0) {
    return;
  }
  const Status status = fs_.remove(draft.path, Recursive::kYes);
  if (!status.ok() && status.code() != StatusCode::kNotFound) {
    log_.warning("failed_cut_stays", {{"path", draft.path}, {"status", status.ToString()}});
  }
}

}  // namespace starling
