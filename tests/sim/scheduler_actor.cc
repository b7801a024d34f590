#include "tests/sim/scheduler_actor.h"

#include <map>

#include "scheduler/memory_ledger.h"
#include "scheduler/scheduler.h"
#include "tests/sim/oracle.h"

namespace starling::sim {
namespace {

SchedulerOptions options_of(const Plan& plan) {
  SchedulerOptions options;
  options.staleness = plan.staleness;
  options.checkpoint_path = Vault::kDirectory;
  options.ps_expected = static_cast<uint32_t>(plan.lanes.size());
  options.trainers_expected = plan.ranks;
  options.hubs_expected = plan.hubs;
  options.work_lease = seconds(4);
  options.lead_clocks = plan.lead_clocks;
  options.drain_max = seconds(20);
  options.snapshot_max = seconds(20);
  options.write_max = seconds(20);
  return options;
}

Manifest manifest_of(const FinishedCut& cut) {
  Manifest manifest;
  manifest.cut_id = cut.record.cut().cut_id();
  if (cut.record.cut().has_clock()) manifest.clock = cut.record.cut().clock();
  manifest.queues = cut.queues;
  const v1::SaveOption& save = cut.record.cut().save();
  manifest.draft.path = save.path();
  ckpt::Manifest& out = manifest.draft.manifest;
  out.set_cut_id(manifest.cut_id);
  out.set_mode(save.mode() == v1::SAVE_MODE_FULL ? ckpt::MODE_FULL : ckpt::MODE_INCREMENTAL);
  out.set_base_cut(save.base_cut());
  out.set_generation(cut.job.generation());
  *out.mutable_map() = cut.map;
  for (const ledger::CutReport& report : cut.record.reports()) {
    for (const v1::Watermark& mark : report.watermarks()) {
      manifest.draft.watermarks.push_back(mark);
    }
    if (report.phase() != v1::CUT_PHASE_WRITE) continue;
    for (const v1::SavedFile& file : report.written().files()) manifest.draft.files.push_back(file);
  }
  return manifest;
}

}  // namespace

// What one life of the process has in memory, and the journal that all lives share.
class SchedulerActor::Machine {
 public:
  explicit Machine(const Plan& plan) : options_(options_of(plan)) {}

  Status open(TimePoint now) {
    STARLING_ASSIGN_OR_RETURN(ledger_, MemoryLedger::open(journal_));
    STARLING_ASSIGN_OR_RETURN(const std::vector<LedgerEntry> entries, ledger_->list(""));
    STARLING_ASSIGN_OR_RETURN(scheduler_, Scheduler::restore(options_, entries, now));
    return absl::OkStatus();
  }
  void close() {
    scheduler_.reset();
    ledger_.reset();
    tickets_.clear();
    dies_at_write = false;
  }
  Token token_of(const Ticket& ticket) {
    const Token token{++tokens_};
    tickets_.emplace(token, ticket);
    return token;
  }
  std::optional<Ticket> take_ticket(Token token) {
    auto it = tickets_.find(token);
    if (it == tickets_.end()) return std::nullopt;
    const Ticket ticket = it->second;
    tickets_.erase(it);
    return ticket;
  }
  Scheduler& scheduler() { return *scheduler_; }
  Ledger& ledger() { return *ledger_; }

  bool dies_at_write = false;

 private:
  const SchedulerOptions options_;
  MemoryJournal journal_;
  std::unique_ptr<MemoryLedger> ledger_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<Token, Ticket> tickets_;
  uint64_t tokens_ = 0;
};

SchedulerActor::SchedulerActor(Network& network, const Plan& plan,
                               Function<void(const Manifest&)> committed)
    : Actor(network, "scheduler"),
      plan_(plan),
      committed_(std::move(committed)),
      machine_(std::make_unique<Machine>(plan)) {}

SchedulerActor::~SchedulerActor() = default;

void SchedulerActor::on_start() {
  if (const Status status = machine_->open(world().now()); !status.ok()) {
    return world().fail("the scheduler does not start again: {}", message_of(status));
  }
  take(std::make_unique<Outcome>(machine_->scheduler().tick(world().now())));
}

void SchedulerActor::on_crash() { machine_->close(); }

bool SchedulerActor::knows_alive(const std::string& name, uint64_t incarnation) {
  if (!is_up()) return false;
  Message request;
  request.meta.mutable_get_job()->set_with_nodes(true);
  auto outcome = std::make_unique<Outcome>(machine_->scheduler().handle(
      Method::kSchedulerGetJob, request, Token{0}, Deadline::never(), world().now()));
  bool is_known = false;
  for (const v1::Node& node : outcome->answers.at(0).message.meta.get_job_reply().nodes()) {
    const bool is_alive =
        node.state() == v1::NODE_STATE_ALIVE || node.state() == v1::NODE_STATE_LEAVING;
    is_known |= node.name() == name && is_alive && node.incarnation() == incarnation;
  }
  take(std::move(outcome));
  return is_known;
}

void SchedulerActor::receive_late_register(Arrived request, uint64_t newest) {
  const std::string name = request.message.meta.register_().name();
  const bool was_alive = knows_alive(name, newest);
  if (!is_up()) return;
  const Token token = machine_->token_of(request.ticket);
  take(std::make_unique<Outcome>(machine_->scheduler().handle(
      request.method, request.message, token, request.deadline, world().now())));
  if (!was_alive || !is_up() || knows_alive(name, newest) || !is_up()) return;
  world().fail("{}: a late Register of an older process ended the one that lives", name);
}

void SchedulerActor::die_at_next_write() { machine_->dies_at_write = true; }

void SchedulerActor::receive(Arrived request) {
  if (request.method == Method::kSchedulerRegister) {
    const uint64_t newest = newest_of(request.message.meta.register_().name());
    const bool is_late = newest != 0 && newest != request.message.meta.header().incarnation();
    if (is_late) return receive_late_register(std::move(request), newest);
  }
  const Token token = machine_->token_of(request.ticket);
  take(std::make_unique<Outcome>(machine_->scheduler().handle(
      request.method, request.message, token, request.deadline, world().now())));
}

void SchedulerActor::take(std::unique_ptr<Outcome> outcome) {
  if (!outcome->writes.empty()) {
    if (machine_->dies_at_write) {
      trace("dies before its sync");
      return crash();
    }
    Status status = machine_->ledger().commit(outcome->writes).status();
    if (status.ok()) status = machine_->ledger().sync();
    if (!status.ok()) world().fail("the ledger failed: {}", message_of(status));
  }
  for (Answer& reply : outcome->answers) {
    if (const auto ticket = machine_->take_ticket(reply.token)) {
      answer(*ticket, std::move(reply.message));
    }
  }
  if (outcome->commit.has_value()) {
    after(milliseconds(30), [this, manifest = manifest_of(*outcome->commit)] {
      trace("cut {} is in place", manifest.cut_id);
      committed_(manifest);
      take(std::make_unique<Outcome>(
          machine_->scheduler().cut_written(manifest.cut_id, std::string("sim"), world().now())));
    });
  }
  arm();
}

void SchedulerActor::arm() {
  const TimePoint now = world().now();
  const TimePoint at = std::max(machine_->scheduler().wake(now), now + milliseconds(1));
  after(at - now, [this, number = ++arms_] {
    if (number != arms_) return;
    take(std::make_unique<Outcome>(machine_->scheduler().tick(world().now())));
  });
}

}  // namespace starling::sim
