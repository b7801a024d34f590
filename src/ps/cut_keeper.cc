#include "ps/cut_keeper.h"

#include <utility>

namespace starling {
namespace {

constexpr Duration kReportEvery = seconds(1);
constexpr Duration kLookEvery = milliseconds(20);  // for the writing thread's end

// Grows with everything that changes rows or reads a batch.
uint64_t operations_of(Shard& shard) {
  uint64_t sum = shard.counts().feeds;
  for (const auto& [name, proto] : shard.schema().tables()) sum += shard.table(name)->operation();
  return sum;
}

}  // namespace

CutKeeper::CutKeeper(FileSystem& fs, KeeperContext context, CutSaverOptions options, Log log)
    : fs_(fs), context_(std::move(context)), options_(options), log_(std::move(log)) {}

CutKeeper::~CutKeeper() {
  if (reading_ != nullptr) reading_->is_stopping = true;
  reader_.join();
}

CutSaver& CutKeeper::saver(Shard& shard) {
  if (saver_ == nullptr) {
    saver_ = std::make_unique<CutSaver>(shard, fs_, context_.lane->clock(), options_);
  }
  return *saver_;
}

void CutKeeper::reply_progress(Shard& shard, ShardCall& call, uint64_t cut_id) {
  const StatusOr<v1::SaveReply> progress = saver(shard).progress(cut_id);
  if (!progress.ok()) return shard.refuse(call.token, progress.status());
  Message reply;
  *reply.meta.mutable_save_reply() = *progress;
  shard.answer(call.token, std::move(reply));
}

void CutKeeper::save(Shard& shard, ShardCall& call) {
  const v1::Header& header = call.request.meta.header();
  if (header.generation() != shard.generation()) {
    return shard.refuse(
        call.token,
        failed_precondition("the request is of generation {} of the job, this is {}",
                            header.generation(), shard.generation()),
        v1::REASON_WRONG_GENERATION);
  }
  const v1::SaveOption& option = call.request.meta.save();
  CutSaver& saver = this->saver(shard);
  Status status;
  switch (option.phase()) {
    case v1::SAVE_PHASE_SNAPSHOT:
      status = saver.begin(option);
      break;
    case v1::SAVE_PHASE_PROGRESS:
      break;
    case v1::SAVE_PHASE_COMMIT:
      status = saver.commit(option.cut_id());
      break;
    case v1::SAVE_PHASE_CANCEL:
      saver.cancel(option.cut_id());
      return shard.answer(call.token, Message());
    default:
      status = invalid_argument("Ps.Save: phase {} is none", static_cast<int>(option.phase()));
  }
  if (!status.ok()) return shard.refuse(call.token, status);
  reply_progress(shard, call, option.cut_id());
}

void CutKeeper::report(v1::CutPhase phase, const Status& status, const v1::SaveReply* written) {
  if (!context_.report) return;
  v1::SaveJobOption option;
  option.set_cut_id(cut_id_);
  option.set_phase(phase);
  option.set_lane(value(context_.number));
  if (!status.ok()) {
    option.set_error(fmt::format("lane {}: {}", value(context_.number), message_of(status)));
  }
  if (written != nullptr) *option.mutable_written() = *written;
  context_.report(std::move(option));
}

void CutKeeper::on_cut(Shard& shard, const v1::CutEvent& cut) {
  CutSaver& saver = this->saver(shard);
  const bool is_new = cut.cut_id() != cut_id_ || cut.phase() != phase_;
  cut_id_ = cut.cut_id();
  phase_ = cut.phase();
  switch (cut.phase()) {
    case v1::CUT_PHASE_SNAPSHOT: {
      const Status status = saver.begin(cut.save());
      is_reported_ = !status.ok();
      report(cut.phase(), status, nullptr);
      break;
    }
    case v1::CUT_PHASE_WRITE:
      // A scheduler that tells of it again has lost what it was told.
      if (!is_new) is_reported_ = false;
      if (const auto known = saver.progress(cut.cut_id());
          known.status().code() == StatusCode::kNotFound) {
        is_reported_ = true;
        report(cut.phase(), known.status(), nullptr);
      }
      break;
    case v1::CUT_PHASE_COMMITTED:
      if (const Status status = saver.commit(cut.cut_id());
          !status.ok() && status.code() != StatusCode::kNotFound) {
        log_.warning("cut_not_committed", {{"cut", cut.cut_id()}, {"status", status.ToString()}});
      }
      cut_id_ = 0;
      break;
    case v1::CUT_PHASE_FAILED:
      saver.cancel(cut.cut_id());
      cut_id_ = 0;
      break;
    default:
      break;
  }
}

void CutKeeper::on_whole(Shard& shard, uint64_t newest_cut, uint64_t running) {
  if (cut_id_ == 0 || cut_id_ == running) return;
  v1::CutEvent missed;
  missed.set_cut_id(cut_id_);
  missed.set_phase(cut_id_ == newest_cut ? v1::CUT_PHASE_COMMITTED : v1::CUT_PHASE_FAILED);
  on_cut(shard, missed);
}

void CutKeeper::report_written(Shard& shard) {
  if (cut_id_ == 0 || phase_ != v1::CUT_PHASE_WRITE || is_reported_) return;
  const StatusOr<v1::SaveReply> progress = saver(shard).progress(cut_id_);
  const TimePoint now = context_.lane->clock().now();
  const bool is_over = !progress.ok() || progress->done();
  if (!is_over && now < next_report_) return;
  is_reported_ = is_over;
  next_report_ = now + kReportEvery;
  report(phase_, progress.status(), progress.ok() ? &*progress : nullptr);
  if (is_over && progress.ok()) {
    log_.info("cut_written", {{"cut", cut_id_},
                              {"lane", value(context_.number)},
                              {"rows", progress->rows_done()},
                              {"bytes", progress->bytes_done()},
                              {"extra_bytes_max", saver(shard).extra_bytes_max()}});
  }
}

bool CutKeeper::advance(Shard& shard) {
  if (saver_ == nullptr) return false;
  const uint64_t operations = operations_of(shard);
  const bool is_idle = std::exchange(last_operations_, operations) == operations;
  if (saver_->advance(is_idle)) return true;
  report_written(shard);
  if (!saver_->is_saving() && !saver_->has_more()) return false;
  const TimePoint now = context_.lane->clock().now();
  wake_at(saver_->has_more() ? std::max(saver_->next_slice(), now) : now + kLookEvery);
  return false;
}

void CutKeeper::wake_at(TimePoint at) {
  // One timer is enough: a later one finds out again.
  if (woken_at_ <= at && woken_at_ > context_.lane->clock().now()) return;
  woken_at_ = at;
  context_.lane->call_at(at, [self = std::weak_ptr(self_), flush = context_.flush] {
    const auto keeper = self.lock();
    if (keeper == nullptr) return;
    (*keeper)->woken_at_ = TimePoint::max();
    flush();
  });
}

Status CutKeeper::check_restore(const Shard& shard, uint64_t generation) const {
  // A late copy of the request must not take back what has been trained since.
  if (shard.frozen() && generation == shard.generation()) {
    return failed_precondition("Ps.Restore: generation {} of the job is frozen; start a new one",
                               generation);
  }
  if (reading_ != nullptr && !reading_->is_over) {
    return failed_precondition("Ps.Restore: another restore is running");
  }
  if (shard.routes().empty()) return failed_precondition("Ps.Restore: no map has come yet");
  return absl::OkStatus();
}

void CutKeeper::restore(Shard& shard, ShardCall& call) {
  const uint64_t generation = call.request.meta.header().generation();
  std::string asked = call.request.meta.restore().SerializeAsString();
  if (reading_ != nullptr && !reading_->is_over && reading_->generation == generation &&
      reading_->asked == asked) {
    reading_->tokens.push_back(call.token);
    return;
  }
  if (const Status status = check_restore(shard, generation); !status.ok()) {
    return shard.refuse(call.token, status, shard.frozen() ? v1::REASON_FROZEN : v1::REASON_NONE);
  }
  RestoreTarget target;
  target.schema = shard.schema();
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    target.owns.push_back(shard.owns_bucket(bucket) ? 1 : 0);
  }
  reading_ = std::make_shared<Reading>();
  reading_->generation = generation;
  reading_->asked = std::move(asked);
  reading_->tokens.push_back(call.token);
  target.interrupted = [reading = reading_]() -> Status {
    return reading->is_stopping ? cancelled("this ps is stopping") : absl::OkStatus();
  };
  const auto done = [self = std::weak_ptr(self_), lane = context_.lane,
                     &shard](StatusOr<RestoredShard> result) {
    auto kept = std::make_shared<StatusOr<RestoredShard>>(std::move(result));
    lane->post([self, &shard, kept] {
      const auto keeper = self.lock();
      if (keeper != nullptr) (*keeper)->restored(shard, std::move(*kept));
    });
  };
  reader_ = Thread({.name = "cut-reader"},
                   [&fs = fs_, option = call.request.meta.restore(), target = std::move(target),
                    done] { done(restore_shard(fs, option, target)); });
}

void CutKeeper::restored(Shard& shard, StatusOr<RestoredShard> result) {
  reading_->is_over = true;
  const uint64_t generation = reading_->generation;
  if (result.ok() && generation < shard.generation()) {
    result = aborted("Ps.Restore: the job has gone on to generation {}", shard.generation());
  }
  if (!result.ok()) {
    for (const Token token : reading_->tokens) shard.refuse(token, result.status());
    return context_.flush();
  }
  // What is being saved is of a past that did not happen.
  saver_.reset();
  cut_id_ = 0;
  Message reply;
  v1::RestoreReply* out = reply.meta.mutable_restore_reply();
  out->set_cut_id(result->cut_id);
  out->set_rows(result->rows);
  out->set_bytes(result->bytes);
  for (const std::string& name : result->left_out) out->add_left_out(name);
  if (result->state.has_value()) {
    out->set_step(result->state->step());
    *out->mutable_watermarks() = result->state->watermarks();
  }
  log_.info("restored", {{"cut", result->cut_id},
                         {"lane", value(context_.number)},
                         {"rows", result->rows},
                         {"bytes", result->bytes}});
  shard.adopt(*std::move(result), generation);
  for (const Token token : reading_->tokens) shard.answer(token, reply);
  context_.flush();
}

KeeperMaker make_cut_keepers(FileSystem& fs, const CutSaverOptions& options, const Log& log) {
  return [&fs, options, log](KeeperContext context) {
    return std::make_unique<CutKeeper>(fs, std::move(context), options, log);
  };
}

}  // namespace starling
