#include "store/faulty.h"

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

namespace starling {

// What one call has to suffer.
struct Verdict {
  Status before;  // the call is not made
  Status after;   // it is made, then this is answered
  uint64_t cut_bytes = 0;
  Duration delay{};
};

class FaultyState {
 public:
  explicit FaultyState(std::function<void(Duration)> sleep) : sleep_(std::move(sleep)) {}

  void add(Fault fault) {
    MutexLock lock(mutex_);
    faults_.push_back(std::move(fault));
  }

  void clear() {
    MutexLock lock(mutex_);
    faults_.clear();
    lasting_ = absl::OkStatus();
  }

  uint64_t calls() const {
    MutexLock lock(mutex_);
    return calls_;
  }

  uint64_t power() const {
    MutexLock lock(mutex_);
    return power_;
  }

  // `power` is the life of the machine in which a handle was opened.
  Verdict enter(FileOp op, std::optional<uint64_t> power = {}) {
    Verdict verdict = judge(op, power);
    if (verdict.delay > Duration::zero()) sleep_(verdict.delay);
    return verdict;
  }

  // Every append file of this life by its URL: how much of it is synced.
  void note_synced(const std::string& url, uint64_t bytes) {
    MutexLock lock(mutex_);
    synced_[url] = bytes;
  }

  bool is_dead(uint64_t power) const {
    MutexLock lock(mutex_);
    return power != power_ || !lasting_.ok();
  }

  // Keeps the temporary of a dead writer as long as this wrapper lives.
  void bury(std::unique_ptr<Writer> writer) {
    MutexLock lock(mutex_);
    buried_.push_back(std::move(writer));
  }

  std::map<std::string, uint64_t> cut_power() {
    MutexLock lock(mutex_);
    ++power_;
    lasting_ = absl::OkStatus();
    return std::exchange(synced_, {});
  }

 private:
  Verdict judge(FileOp op, std::optional<uint64_t> power) {
    MutexLock lock(mutex_);
    ++calls_;
    Verdict verdict;
    if (power && *power != power_) {
      verdict.before = unavailable("the power was cut since this was opened");
      return verdict;
    }
    verdict.before = lasting_;
    if (!lasting_.ok()) return verdict;
    for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
      if ((fault->op && *fault->op != op) || --fault->nth > 0) continue;
      (fault->is_after ? verdict.after : verdict.before) = fault->status;
      verdict.cut_bytes = fault->cut_bytes;
      verdict.delay = fault->delay;
      if (fault->is_lasting) lasting_ = fault->status;
      faults_.erase(fault);
      break;
    }
    return verdict;
  }

  const std::function<void(Duration)> sleep_;
  mutable Mutex mutex_;
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  Status lasting_ ABSL_GUARDED_BY(mutex_);
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t power_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> synced_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Writer>> buried_ ABSL_GUARDED_BY(mutex_);
};

namespace {

// Carries a call out between its verdict's two halves.
template <typename Call>
auto suffer(const Verdict& verdict, Call call) -> decltype(call()) {
  if (!verdict.before.ok()) return verdict.before;
  auto result = call();
  if (!verdict.after.ok()) return verdict.after;
  return result;
}

class FaultyReader final : public Reader {
 public:
  FaultyReader(std::unique_ptr<Reader> inner, std::shared_ptr<FaultyState> state)
      : inner_(std::move(inner)), state_(std::move(state)), power_(state_->power()) {}

  StatusOr<size_t> read(std::span<std::byte> into) override {
    return suffer(state_->enter(FileOp::kRead, power_), [&] { return inner_->read(into); });
  }
  void interrupt() override { inner_->interrupt(); }
  const std::string& url() const override { return inner_->url(); }

 private:
  const std::unique_ptr<Reader> inner_;
  const std::shared_ptr<FaultyState> state_;
  const uint64_t power_;
};

class FaultyWriter final : public Writer {
 public:
  FaultyWriter(std::unique_ptr<Writer> inner, std::shared_ptr<FaultyState> state)
      : inner_(std::move(inner)), state_(std::move(state)), power_(state_->power()) {}

  ~FaultyWriter() override {
    // A process that is gone tidies nothing up: its temporary stays behind.
    if (state_->is_dead(power_)) state_->bury(std::move(inner_));
  }

  Status write(std::span<const std::byte> bytes) override {
    STARLING_RETURN_IF_ERROR(failed_);
    const Verdict verdict = state_->enter(FileOp::kWrite, power_);
    if (!verdict.before.ok() && verdict.cut_bytes > 0) {
      (void)inner_->write(
          bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), verdict.cut_bytes))));
    }
    failed_ = suffer(verdict, [&] { return inner_->write(bytes); });
    return failed_;
  }
  Status publish() override {
    STARLING_RETURN_IF_ERROR(failed_);
    failed_ = suffer(state_->enter(FileOp::kPublish, power_), [&] { return inner_->publish(); });
    return failed_;
  }
  const std::string& url() const override { return inner_->url(); }

 private:
  std::unique_ptr<Writer> inner_;
  const std::shared_ptr<FaultyState> state_;
  const uint64_t power_;
  Status failed_;
};

class FaultyAppendFile final : public AppendFile {
 public:
  FaultyAppendFile(std::unique_ptr<AppendFile> inner, std::shared_ptr<FaultyState> state)
      : inner_(std::move(inner)), state_(std::move(state)), power_(state_->power()) {
    // What an earlier process left is taken as durable: the kernel has had its time.
    state_->note_synced(inner_->url(), inner_->size());
  }

  Status append(std::span<const std::byte> bytes) override {
    const Verdict verdict = state_->enter(FileOp::kAppend, power_);
    if (!verdict.before.ok() && verdict.cut_bytes > 0) {
      (void)inner_->append(
          bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), verdict.cut_bytes))));
    }
    return suffer(verdict, [&] { return inner_->append(bytes); });
  }
  Status sync() override {
    return suffer(state_->enter(FileOp::kSync, power_), [&] {
      Status status = inner_->sync();
      if (status.ok()) state_->note_synced(inner_->url(), inner_->size());
      return status;
    });
  }
  Status truncate(uint64_t bytes) override {
    return suffer(state_->enter(FileOp::kTruncate, power_), [&] {
      Status status = inner_->truncate(bytes);
      if (status.ok()) state_->note_synced(inner_->url(), inner_->size());
      return status;
    });
  }
  uint64_t size() const override { return inner_->size(); }
  const std::string& url() const override { return inner_->url(); }

 private:
  const std::unique_ptr<AppendFile> inner_;
  const std::shared_ptr<FaultyState> state_;
  const uint64_t power_;
};

}  // namespace

FaultyFileSystem::FaultyFileSystem(FileSystem& inner, std::function<void(Duration)> sleep)
    : inner_(inner),
      state_(std::make_shared<FaultyState>(
          sleep ? std::move(sleep) : [](Duration time) { std::this_thread::sleep_for(time); })) {}

FaultyFileSystem::~FaultyFileSystem() = default;

void FaultyFileSystem::add(Fault fault) { state_->add(std::move(fault)); }
void FaultyFileSystem::clear() { state_->clear(); }
uint64_t FaultyFileSystem::calls() const { return state_->calls(); }

Status FaultyFileSystem::power_cut(uint64_t torn_bytes) {
  for (const auto& [url, synced] : state_->cut_power()) {
    StatusOr<std::unique_ptr<AppendFile>> file = inner_.open_append(url);
    STARLING_RETURN_IF_ERROR(file.status());
    const uint64_t kept = std::min((*file)->size(), synced + torn_bytes);
    STARLING_RETURN_IF_ERROR((*file)->truncate(kept));
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Reader>> FaultyFileSystem::open_read(std::string_view url,
                                                              ReadRange range) {
  return suffer(state_->enter(FileOp::kOpenRead), [&]() -> StatusOr<std::unique_ptr<Reader>> {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Reader> inner, inner_.open_read(url, range));
    return std::make_unique<FaultyReader>(std::move(inner), state_);
  });
}

StatusOr<std::unique_ptr<Writer>> FaultyFileSystem::open_write(std::string_view url,
                                                               Existing existing) {
  return suffer(state_->enter(FileOp::kOpenWrite), [&]() -> StatusOr<std::unique_ptr<Writer>> {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> inner, inner_.open_write(url, existing));
    return std::make_unique<FaultyWriter>(std::move(inner), state_);
  });
}

StatusOr<std::unique_ptr<AppendFile>> FaultyFileSystem::open_append(std::string_view url) {
  return suffer(state_->enter(FileOp::kOpenAppend), [&]() -> StatusOr<std::unique_ptr<AppendFile>> {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<AppendFile> inner, inner_.open_append(url));
    return std::make_unique<FaultyAppendFile>(std::move(inner), state_);
  });
}

StatusOr<FileInfo> FaultyFileSystem::stat(std::string_view url) {
  return suffer(state_->enter(FileOp::kStat), [&] { return inner_.stat(url); });
}

StatusOr<std::vector<FileInfo>> FaultyFileSystem::list_directory(std::string_view url) {
  return suffer(state_->enter(FileOp::kList), [&] { return inner_.list_directory(url); });
}

Status FaultyFileSystem::make_directories(std::string_view url) {
  return suffer(state_->enter(FileOp::kMakeDirectories),
                [&] { return inner_.make_directories(url); });
}

Status FaultyFileSystem::rename(std::string_view from, std::string_view to, Existing existing) {
  return suffer(state_->enter(FileOp::kRename), [&] { return inner_.rename(from, to, existing); });
}

Status FaultyFileSystem::remove(std::string_view url, Recursive recursive) {
  return suffer(state_->enter(FileOp::kRemove), [&] { return inner_.remove(url, recursive); });
}

}  // namespace starling
