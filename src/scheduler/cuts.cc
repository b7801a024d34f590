#include "scheduler/cuts.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "scheduler/mutants.h"
#include "wire/enums.h"

namespace starling {
namespace {

constexpr const char* kKey = "cut";
constexpr uint32_t kDrainsMax = 16;

v1::CutPhase next_phase(v1::CutPhase phase) {
  return phase == v1::CUT_PHASE_DRAIN ? v1::CUT_PHASE_SNAPSHOT : v1::CUT_PHASE_WRITE;
}

// Who reports in a phase: hubs and clients drain, hubs and shards snapshot, shards write.
bool takes_part(v1::Role role, v1::CutPhase phase) {
  switch (phase) {
    case v1::CUT_PHASE_DRAIN:
      return role == v1::ROLE_HUB || role == v1::ROLE_CLIENT;
    case v1::CUT_PHASE_SNAPSHOT:
      return role == v1::ROLE_HUB || role == v1::ROLE_PS;
    case v1::CUT_PHASE_WRITE:
      return role == v1::ROLE_PS;
    default:
      return false;
  }
}

}  // namespace

Status Cuts::load(const LedgerEntry& entry, TimePoint now) {
  if (!record_.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a cut", entry.key);
  }
  phase_since_ = now;
  commit_wanted_ = record_.writing_manifest();
  return absl::OkStatus();
}

bool Cuts::is_running() const {
  const v1::CutPhase phase = record_.cut().phase();
  return phase >= v1::CUT_PHASE_DRAIN && phase <= v1::CUT_PHASE_WRITE;
}

void Cuts::save(Turn& turn) const { turn.put(kKey, record_); }

Status Cuts::start(Turn& turn, const v1::SaveJobOption& option, uint64_t cut_id,
                   std::optional<uint64_t> clock) {
  if (is_running()) {
    return failed_precondition("Scheduler.Save: cut {} is running ({})", id(),
                               v1::CutPhase_Name(record_.cut().phase()));
  }
  v1::SaveOption save_option = option.save();
  STARLING_RETURN_IF_ERROR(check_enum(save_option.mode(), "Scheduler.Save: mode"));
  STARLING_RETURN_IF_ERROR(check_enum(save_option.filter(), "Scheduler.Save: filter"));
  if (save_option.path().empty()) {
    if (options_.checkpoint_path.empty()) {
      return invalid_argument(
          "Scheduler.Save: no path is given and the job has no "
          "checkpoint.path");
    }
    save_option.set_path(options_.checkpoint_path + "/");
  }
  if (save_option.path().ends_with('/')) {
    save_option.set_path(fmt::format("{}cut-{:012}", save_option.path(), cut_id));
  }
  if (save_option.mode() == v1::SAVE_MODE_INCREMENTAL && save_option.base_cut() == 0) {
    return invalid_argument("Scheduler.Save: an incremental cut needs base_cut");
  }
  save_option.set_cut_id(cut_id);
  save_option.set_phase(v1::SAVE_PHASE_SNAPSHOT);
  save_option.clear_clock();
  if (clock.has_value()) save_option.set_clock(*clock);
  record_.Clear();
  record_.set_keep(option.keep());
  record_.mutable_cut()->set_cut_id(cut_id);
  if (clock.has_value()) record_.mutable_cut()->set_clock(*clock);
  *record_.mutable_cut()->mutable_save() = std::move(save_option);
  enter(turn, v1::CUT_PHASE_DRAIN);
  return absl::OkStatus();
}

void Cuts::enter(Turn& turn, v1::CutPhase phase) {
  record_.mutable_cut()->set_phase(phase);
  phase_since_ = turn.now();
  if (phase == v1::CUT_PHASE_SNAPSHOT) on_drained_(turn, record_);
  v1::Event event;
  *event.mutable_cut() = record_.cut();
  turn.tell(std::move(event));
  save(turn);
}

bool Cuts::has_reported(const std::string& node, uint32_t lane) const {
  return std::any_of(record_.reports().begin(), record_.reports().end(),
                     [&](const ledger::CutReport& report) {
                       return report.node() == node && report.lane() == lane &&
                              report.phase() == record_.cut().phase() &&
                              (report.phase() != v1::CUT_PHASE_WRITE || report.written().done());
                     });
}

std::vector<std::string> Cuts::waiting_for() const {
  std::vector<std::string> names;
  if (!is_running()) return names;
  const bool is_drain = record_.cut().phase() == v1::CUT_PHASE_DRAIN;
  if (STARLING_SCHEDULER_MUTANT(kUndrainedCut) && is_drain) return names;
  for (const NodeEntry* entry : nodes_.alive(v1::ROLE_UNKNOWN)) {
    if (!takes_part(entry->node().role(), record_.cut().phase())) continue;
    const uint32_t lanes = entry->node().role() == v1::ROLE_PS ? entry->node().lanes() : 1;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (has_reported(entry->node().name(), lane)) continue;
      names.push_back(lanes == 1 ? entry->node().name()
                                 : fmt::format("{} lane {}", entry->node().name(), lane));
    }
  }
  return names;
}

Status Cuts::report(Turn& turn, const NodeEntry& node, const v1::SaveJobOption& option) {
  if (id() == 0 || (option.cut_id() != 0 && option.cut_id() != id())) {
    return not_found("Scheduler.Save: no cut {} is known, the newest is {}", option.cut_id(), id());
  }
  // A repeat after the phase has ended changes nothing.
  if (option.phase() < record_.cut().phase() && option.error().empty()) return absl::OkStatus();
  if (!is_running()) return absl::OkStatus();
  if (!option.error().empty()) {
    fail(turn, fmt::format("{}: {}", node.node().name(), option.error()));
    return absl::OkStatus();
  }
  if (option.phase() != record_.cut().phase() || !takes_part(node.node().role(), option.phase()) ||
      (node.node().role() == v1::ROLE_PS && option.lane() >= node.node().lanes())) {
    return failed_precondition(
        "Scheduler.Save: report of {} lane {} for {} of cut {}, which is in "
        "{}",
        node.node().name(), option.lane(), v1::CutPhase_Name(option.phase()), id(),
        v1::CutPhase_Name(record_.cut().phase()));
  }
  if (option.position().size() > options_.limits.position_bytes_max) {
    return invalid_argument("Scheduler.Save: position of {} has {} bytes, at most {}",
                            node.node().name(), option.position().size(),
                            options_.limits.position_bytes_max);
  }
  if (option.phase() == v1::CUT_PHASE_DRAIN && option.save().has_clock()) {
    if (option.save().clock() > record_.cut().clock()) {
      drain_later(turn, option.save().clock());
      return absl::OkStatus();
    }
    // It has not heard of the later clock yet.
    if (option.save().clock() < record_.cut().clock()) return absl::OkStatus();
  }
  if (has_reported(node.node().name(), option.lane())) return absl::OkStatus();
  ledger::CutReport* report = nullptr;
  for (ledger::CutReport& old : *record_.mutable_reports()) {
    if (old.node() == node.node().name() && old.lane() == option.lane() &&
        old.phase() == option.phase()) {
      report = &old;
    }
  }
  if (report == nullptr) report = record_.add_reports();
  report->set_node(node.node().name());
  report->set_lane(option.lane());
  report->set_phase(option.phase());
  *report->mutable_written() = option.written();
  report->set_position(option.position());
  *report->mutable_watermarks() = option.watermarks();
  save(turn);
  return absl::OkStatus();
}

void Cuts::drain_later(Turn& turn, uint64_t reached) {
  v1::CutEvent* cut = record_.mutable_cut();
  record_.set_drains(record_.drains() + 1);
  if (record_.drains() > kDrainsMax) {
    return fail(turn, fmt::format("clock {} has passed, {} is reached", cut->clock(), reached));
  }
  // As far ahead again as the word was late, and more.
  const uint64_t clock = reached + 2 * (reached - cut->clock()) + options_.lead_clocks;
  cut->set_clock(clock);
  cut->mutable_save()->set_clock(clock);
  record_.clear_reports();
  enter(turn, v1::CUT_PHASE_DRAIN);
}

void Cuts::fail(Turn& turn, const std::string& why) {
  if (!is_running()) return;
  record_.mutable_cut()->set_error(why);
  record_.set_writing_manifest(false);
  commit_wanted_ = false;
  enter(turn, v1::CUT_PHASE_FAILED);
}

void Cuts::node_gone(Turn& turn, const NodeEntry& node) {
  if (!is_running() || record_.writing_manifest()) return;
  bool is_needed = false;
  for (int phase = record_.cut().phase(); phase <= v1::CUT_PHASE_WRITE; ++phase) {
    is_needed |= takes_part(node.node().role(), static_cast<v1::CutPhase>(phase));
  }
  if (is_needed) fail(turn, fmt::format("{} has gone", node.node().name()));
}

Duration Cuts::phase_max() const {
  switch (record_.cut().phase()) {
    case v1::CUT_PHASE_DRAIN:
      return options_.drain_max;
    case v1::CUT_PHASE_SNAPSHOT:
      return options_.snapshot_max;
    default:
      return options_.write_max;
  }
}

void Cuts::review(Turn& turn) {
  while (is_running() && !record_.writing_manifest()) {
    const std::vector<std::string> missing = waiting_for();
    if (missing.empty()) {
      if (record_.cut().phase() == v1::CUT_PHASE_WRITE) {
        record_.set_writing_manifest(true);
        commit_wanted_ = true;
        save(turn);
        return;
      }
      enter(turn, next_phase(record_.cut().phase()));
      continue;
    }
    if (turn.now() < phase_since_ + phase_max()) return;
    fail(turn, fmt::format("{} took longer than {} s, missing: {}",
                           v1::CutPhase_Name(record_.cut().phase()), phase_max() / seconds(1),
                           fmt::join(missing, ", ")));
  }
}

bool Cuts::take_commit() { return std::exchange(commit_wanted_, false); }

void Cuts::written(Turn& turn, uint64_t cut_id, const StatusOr<std::string>& path) {
  if (!is_running() || cut_id != id() || !record_.writing_manifest()) return;
  if (!path.ok()) return fail(turn, std::string(message_of(path.status())));
  record_.set_path(*path);
  record_.set_writing_manifest(false);
  enter(turn, v1::CUT_PHASE_COMMITTED);
}

TimePoint Cuts::next() const {
  const bool is_waiting = is_running() && !record_.writing_manifest();
  return is_waiting ? phase_since_ + phase_max() : TimePoint::max();
}

void Cuts::show(v1::SaveJobReply* out) const {
  *out->mutable_cut() = record_.cut();
  out->set_path(record_.path());
  for (const ledger::CutReport& report : record_.reports()) {
    out->set_rows_done(out->rows_done() + report.written().rows_done());
    out->set_rows_total(out->rows_total() + report.written().rows_total());
    out->set_bytes_done(out->bytes_done() + report.written().bytes_done());
  }
  for (const std::string& name : waiting_for()) out->add_waiting_for(name);
}

}  // namespace starling
