// checkpoint_bench: saves and restores one shard on a disk, beside what the disk does by itself,
// and measures training while a cut is written.
//
// usage: checkpoint_bench DIRECTORY BYTES SECONDS
//        checkpoint_bench --make DIRECTORY ROWS   leaves a cut of that many rows, for other
//        benchmarks
// Prints one JSON object. The disk's own rates are those of plain write() with fsync() and of
// read(), 1 MiB at a time, of a file as large as the cut, through the page cache or around it
// (O_DIRECT), whichever is faster; files are dropped from the page cache before they are read.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "ps/cut_publisher.h"
#include "ps/cut_restore.h"
#include "ps/cut_saver.h"
#include "store/file_systems.h"

namespace starling {
namespace {

constexpr const char* kTable = "ids";
constexpr uint32_t kDim = 16;
constexpr size_t kBatch = 8192;
constexpr size_t kRowBytes = 8 + 2 * kDim * sizeof(float);  // of an image: key, weights, adagrad
constexpr size_t kChunk = 1 << 20;
constexpr size_t kDirectUnit = 4096;
constexpr uint64_t kHotOneIn = 100;

class NoHost final : public ShardHost {
 public:
  void save(Shard& shard, ShardCall& call) override { refuse(shard, call); }
  void restore(Shard& shard, ShardCall& call) override { refuse(shard, call); }
  void stop(Shard& shard, ShardCall& call) override { refuse(shard, call); }
  void profile(Shard& shard, ShardCall& call) override { refuse(shard, call); }
  void describe_rpcs(v1::StatReply&) override {}

 private:
  static void refuse(Shard& shard, ShardCall& call) {
    shard.refuse(call.token, unimplemented("only rows here"));
  }
};

double seconds_of(Duration time) { return static_cast<double>(time.count()) / 1e9; }

void drop_from_cache(const std::string& directory) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

// One shard that owns every bucket of one table, driven by hand.
class Job {
 public:
  explicit Job(const Clock& clock) : clock_(clock), shard_({.incarnation = Incarnation{1}}, host_) {
    v1::Event event;
    event.mutable_map()->set_version(1);
    event.mutable_map()->add_shards();
    for (uint32_t i = 0; i < kBuckets; ++i) event.mutable_map()->add_bucket_shard(0);
    shard_.on_event(event);
    Message create = request();
    v1::TableOptions* table = create.meta.mutable_create()->add_tables();
    table->set_name(kTable);
    table->set_dim(kDim);
    table->mutable_optimizer()->set_name("adagrad");
    call(Method::kPsCreate, std::move(create));
    Message freeze = request();
    freeze.meta.mutable_freeze();
    call(Method::kPsFreeze, std::move(freeze));
  }

  // Which rows a push touches.
  enum class Keys {
    kNew,      // the next ones, row after row
    kUniform,  // any row as likely as any other
    kLog,      // as in click logs: one row in a hundred takes nine uses in ten
  };
  // A push of kBatch keys of the rows below `rows`.
  void push(Keys kind, uint64_t rows) {
    Message message = request();
    v1::Header* header = message.meta.mutable_header();
    header->set_session(1);
    header->set_number(++number_);
    header->set_acked_below(number_);
    Tensor keys = Tensor::allocate(DType::kUInt64, {kBatch});
    Rng rng(number_, 1, 1);
    for (size_t i = 0; i < kBatch; ++i) {
      uint64_t row = kind == Keys::kNew ? made_++ : rng.below(rows);
      if (kind == Keys::kLog && rng.below(10) != 0) row = row / kHotOneIn * kHotOneIn;
      keys.mutable_values<uint64_t>()[i] = mix64(row);
    }
    Tensor gradients = Tensor::allocate(DType::kFloat32, {kBatch, kDim});
    std::fill_n(gradients.mutable_values<float>().data(), kBatch * kDim, 0.01F);
    v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
    part->set_table(kTable);
    part->set_keys_tensor(0);
    part->set_grads_tensor(1);
    message.tensors = {keys, gradients};
    call(Method::kPsPushGrad, std::move(message));
  }

  Shard& shard() { return shard_; }

 private:
  static Message request() {
    Message message;
    message.meta.mutable_header()->set_role(v1::ROLE_TRAINER);
    message.meta.mutable_header()->set_role_id(7);
    message.meta.mutable_header()->set_generation(1);
    message.meta.mutable_header()->set_map_version(1);
    return message;
  }
  void call(Method method, Message message) {
    shard_.handle(method, std::move(message), Token{1}, Deadline::never(), clock_.now());
    for (const Shard::Output& output : shard_.take_outputs()) {
      const Status status = status_of(output.reply);
      if (status.ok()) continue;
      fmt::print(stderr, "checkpoint_bench: {}\n", status.ToString());
      std::exit(1);
    }
  }

  const Clock& clock_;
  NoHost host_;
  Shard shard_;
  uint64_t number_ = 0;
  uint64_t made_ = 0;
};

void expect(const Status& status, const char* what) {
  if (status.ok()) return;
  fmt::print(stderr, "checkpoint_bench: {}: {}\n", what, status.ToString());
  std::exit(1);
}

class Bench {
 public:
  Bench(std::string directory, uint64_t bytes, double train_seconds)
      : directory_(std::move(directory)), rows_(bytes / kRowBytes), train_seconds_(train_seconds) {}

  void make() {
    Job job(clock_);
    fill(job);
    CutSaver saver(job.shard(), *files_, clock_);
    save_idle(saver);
  }

  void run() {
    Job job(clock_);
    fill(job);
    CutSaver saver(job.shard(), *files_, clock_);
    const double save = save_idle(saver);
    const double disk_write = std::min(write_plain(0), write_plain(O_DIRECT));
    const std::string as_logged = train_beside(job, saver, 2, Job::Keys::kLog, "log");
    const std::string uniform = train_beside(job, saver, 3, Job::Keys::kUniform, "uniform");
    const double disk_read = std::min(read_plain(0), read_plain(O_DIRECT));
    std::filesystem::remove(plain());
    const double restore = restore_all(job.shard());
    fmt::print(
        R"({{"bytes": {}, "save_s": {}, "disk_write_s": {}, "restore_s": {}, "disk_read_s": {}, )"
        "{}, {}}}\n",
        bytes_, save, disk_write, restore, disk_read, as_logged, uniform);
  }

 private:
  void fill(Job& job) const {
    for (uint64_t first = 0; first < rows_; first += kBatch) job.push(Job::Keys::kNew, rows_);
  }

  struct Training {
    double rate = 0;  // keys a second
    double stall_ms = 0;
    double push_ms = 0;  // median
    double seconds = 0;
  };

  // The rate of pushes while a cut is written, between two times without one; as JSON.
  std::string train_beside(Job& job, CutSaver& saver, uint64_t cut_id, Job::Keys keys,
                           const char* name) {
    const double before = train(job, nullptr, 0, keys).rate;
    const Training beside = train(job, &saver, cut_id, keys);
    const double after = train(job, nullptr, 0, keys).rate;
    std::filesystem::remove_all(directory_ + "/" + cut_name(cut_id));
    return fmt::format(
        R"("{}": {{"train_rate": {}, "train_rate_saving": {}, "stall_ms": {}, "push_ms": {}, )"
        R"("extra_bytes_max": {}, "save_s": {}}})",
        name, (before + after) / 2, beside.rate, beside.stall_ms, beside.push_ms,
        saver.extra_bytes_max(), beside.seconds);
  }

  v1::SaveOption option(uint64_t cut_id) const {
    v1::SaveOption option;
    option.set_cut_id(cut_id);
    option.set_path(directory_ + "/" + cut_name(cut_id));
    return option;
  }
  void publish(CutSaver& saver, uint64_t cut_id) {
    CutDraft draft;
    draft.path = option(cut_id).path();
    draft.manifest.set_cut_id(cut_id);
    const StatusOr<v1::SaveReply> reply = saver.progress(cut_id);
    expect(reply.status(), "save");
    bytes_ = 0;
    for (const v1::SavedFile& file : reply->files()) {
      draft.files.push_back(file);
      bytes_ += file.bytes();
    }
    expect(publish_cut(*files_, draft).status(), "publish");
    expect(saver.commit(cut_id), "commit");
  }

  double save_idle(CutSaver& saver) {
    const TimePoint begin = clock_.now();
    expect(saver.begin(option(1)), "begin");
    while (!saver.progress(1)->done()) {
      if (!saver.advance(/*is_idle=*/true)) ::usleep(200);
    }
    publish(saver, 1);
    return seconds_of(clock_.now() - begin);
  }

  // Pushes random keys, for a time or until a save has ended.
  Training train(Job& job, CutSaver* saver, uint64_t cut_id, Job::Keys keys) {
    std::vector<double> turns;
    const TimePoint begin = clock_.now();
    if (saver != nullptr) expect(saver->begin(option(cut_id)), "begin");
    const TimePoint begun = clock_.now();
    double longest = seconds_of(begun - begin);
    while (true) {
      const TimePoint start = clock_.now();
      if (saver == nullptr && seconds_of(start - begin) >= train_seconds_) break;
      if (saver != nullptr && saver->progress(cut_id)->done()) break;
      job.push(keys, rows_);
      if (saver != nullptr) saver->advance(/*is_idle=*/false);
      const double turn = seconds_of(clock_.now() - start);
      turns.push_back(turn);
      longest = std::max(longest, turn);
    }
    Training out;
    out.seconds = seconds_of(clock_.now() - begin);
    out.rate = static_cast<double>(turns.size() * kBatch) / out.seconds;
    std::nth_element(turns.begin(), turns.begin() + static_cast<long>(turns.size() / 2),
                     turns.end());
    out.push_ms = turns[turns.size() / 2] * 1e3;
    out.stall_ms = longest * 1e3 - out.push_ms;
    if (saver != nullptr) publish(*saver, cut_id);
    return out;
  }

  double restore_all(Shard& shard) {
    RestoreTarget target;
    target.schema = shard.schema();
    target.owns.assign(kBuckets, 1);
    drop_from_cache(directory_);
    const TimePoint begin = clock_.now();
    v1::RestoreOption option;
    option.set_path(directory_);
    const StatusOr<RestoredShard> restored = restore_shard(*files_, option, target);
    expect(restored.status(), "restore");
    const double time = seconds_of(clock_.now() - begin);
    if (restored->rows != shard.table(kTable)->rows()) {
      expect(data_loss("{} rows, not {}", restored->rows, shard.table(kTable)->rows()), "restore");
    }
    return time;
  }

  // Seconds; `flags` go to open().
  double write_plain(int flags) {
    std::byte* chunk = plain_.get();
    Rng rng(1, 2, 3);
    for (size_t i = 0; i < kChunk; ++i) chunk[i] = static_cast<std::byte>(rng.next_u32());
    std::filesystem::remove(plain());
    const TimePoint begin = clock_.now();
    const int fd = ::open(plain().c_str(), O_WRONLY | O_CREAT | O_TRUNC | flags, 0666);
    if (fd < 0) return std::numeric_limits<double>::infinity();
    for (uint64_t at = 0; at < bytes_; at += kChunk) {
      if (::write(fd, chunk, kChunk) != static_cast<ssize_t>(kChunk)) {
        expect(data_loss("short write"), "disk");
      }
    }
    if (::fsync(fd) != 0) expect(data_loss("fsync"), "disk");
    ::close(fd);
    return seconds_of(clock_.now() - begin);
  }
  double read_plain(int flags) {
    drop_from_cache(directory_);
    const TimePoint begin = clock_.now();
    const int fd = ::open(plain().c_str(), O_RDONLY | flags);
    if (fd < 0) return std::numeric_limits<double>::infinity();
    while (::read(fd, plain_.get(), kChunk) > 0) {
    }
    ::close(fd);
    return seconds_of(clock_.now() - begin);
  }
  std::string plain() const { return directory_ + "/plain"; }

  const RealClock clock_;
  const std::unique_ptr<FileSystems> files_ =
      FileSystems::standard({.incarnation = Incarnation{1}}, clock_);
  const std::string directory_;
  const std::unique_ptr<std::byte, void (*)(void*)> plain_{
      static_cast<std::byte*>(std::aligned_alloc(kDirectUnit, kChunk)), &std::free};
  const uint64_t rows_;
  const double train_seconds_;
  uint64_t bytes_ = 0;  // of the newest cut
};

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: checkpoint_bench DIRECTORY BYTES SECONDS | --make DIRECTORY ROWS\n");
    return 2;
  }
  if (argv[1] == std::string("--make")) {
    std::filesystem::create_directories(argv[2]);
    starling::Bench(argv[2], std::stoull(argv[3]) * starling::kRowBytes, 0).make();
    return 0;
  }
  std::filesystem::create_directories(argv[1]);
  starling::Bench(argv[1], std::stoull(argv[2]), std::stod(argv[3])).run();
  return 0;
}
