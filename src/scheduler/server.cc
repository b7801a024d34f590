#include "scheduler/server.h"

#include <map>
#include <utility>

#include "base/mutex.h"
#include "scheduler/scheduler.h"

namespace starling {
namespace {

constexpr const char* kOwnerKey = "owner";

}  // namespace

// All of it lives on the lane but for failure(); tasks hold it weakly.
class SchedulerServer::Desk final : public Handler, public std::enable_shared_from_this<Desk> {
 public:
  Desk(std::shared_ptr<Lane> lane, std::unique_ptr<Ledger> ledger,
       std::unique_ptr<Scheduler> scheduler, CutWriter* writer, Network& network)
      : lane_(std::move(lane)),
        ledger_(std::move(ledger)),
        scheduler_(std::move(scheduler)),
        writer_(writer),
        log_(network.log()),
        syncs_(network.metrics().counter("scheduler_syncs")),
        sync_ns_(network.metrics().histogram("scheduler_sync", "ns")) {}

  // Takes the ledger: whoever had it before fails at its next commit.
  Status own(uint64_t incarnation) {
    const std::vector<LedgerWrite> claim = {{kOwnerKey, std::to_string(incarnation)}};
    STARLING_RETURN_IF_ERROR(ledger_->commit(claim).status());
    STARLING_RETURN_IF_ERROR(ledger_->sync());
    STARLING_ASSIGN_OR_RETURN(const LedgerEntry owner, ledger_->get(kOwnerKey));
    owner_ = {.key = kOwnerKey, .revision = owner.revision};
    return absl::OkStatus();
  }

  void begin() { take(scheduler_->tick(now())); }

  void handle(Request request, Reply reply) override {
    if (!failed_.ok()) return reply.fail(failed_);
    const Token token{++tokens_};
    waiting_.emplace(token, std::move(reply));
    take(scheduler_->handle(request.method, request.message, token, request.deadline, now()));
  }

  // Sends everybody away.
  void close(const Status& why) {
    if (failed_.ok()) failed_ = why;
    lane_->cancel(timer_);
    answers_.clear();
    for (auto& [token, reply] : std::exchange(waiting_, {})) reply.fail(why);
  }

  Status failure() const {
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  TimePoint now() const { return lane_->clock().now(); }

  void take(Outcome outcome) {
    if (!outcome.writes.empty()) {
      const StatusOr<uint64_t> committed = ledger_->commit(outcome.writes, std::span(&owner_, 1));
      if (!committed.ok()) return give_up(committed.status());
      dirty_ = true;
    }
    for (Answer& answer : outcome.answers) answers_.push_back(std::move(answer));
    if (outcome.commit.has_value()) commits_.push_back(*std::move(outcome.commit));
    if (outcome.discard.has_value() && writer_ != nullptr) writer_->discard(*outcome.discard);
    if (dirty_) {
      if (!std::exchange(flushing_, true)) {
        lane_->post([self = weak_from_this()] {
          if (const auto desk = self.lock()) desk->flush();
        });
      }
    } else {
      send();
    }
    arm();
  }

  void flush() {
    flushing_ = false;
    if (!failed_.ok()) return;
    const TimePoint start = now();
    const Status synced = ledger_->sync();
    if (!synced.ok()) return give_up(synced);
    syncs_.add();
    sync_ns_.record(now() - start);
    dirty_ = false;
    send();
  }

  void send() {
    for (Answer& answer : std::exchange(answers_, {})) {
      const auto it = waiting_.find(answer.token);
      if (it == waiting_.end()) continue;
      Reply reply = std::move(it->second);
      waiting_.erase(it);
      reply.send(std::move(answer.message));
    }
    for (const FinishedCut& cut : std::exchange(commits_, {})) commit(cut);
  }

  void commit(const FinishedCut& cut) {
    const uint64_t id = cut.record.cut().cut_id();
    CutWriter::Done done = [self = weak_from_this(), lane = lane_, id](StatusOr<std::string> path) {
      lane->post([self, id, path = std::move(path)] {
        const auto desk = self.lock();
        if (desk == nullptr || !desk->failed_.ok()) return;
        desk->take(desk->scheduler_->cut_written(id, path, desk->now()));
      });
    };
    if (writer_ != nullptr) return writer_->commit(cut, std::move(done));
    done(unimplemented("this scheduler was started without a writer of cuts"));
  }

  void arm() {
    lane_->cancel(timer_);
    timer_ = lane_->call_at(scheduler_->wake(now()), [self = weak_from_this()] {
      if (const auto desk = self.lock()) desk->wake();
    });
  }

  void wake() {
    if (!failed_.ok()) return;
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (!it->second.cancelled()) {
        ++it;
        continue;
      }
      scheduler_->drop(it->first);
      it = waiting_.erase(it);
    }
    take(scheduler_->tick(now()));
  }

  // Nothing may be promised any more.
  void give_up(const Status& why) {
    log_.error("ledger_failed", {{"status", why.ToString()}});
    {
      MutexLock lock(mutex_);
      failure_ = with_context(why, "the scheduler's ledger");
    }
    close(unavailable("the scheduler's ledger failed: {}", message_of(why)));
  }

  const std::shared_ptr<Lane> lane_;
  const std::unique_ptr<Ledger> ledger_;
  const std::unique_ptr<Scheduler> scheduler_;
  CutWriter* const writer_;
  const Log log_;
  Counter& syncs_;
  Histogram& sync_ns_;

  LedgerCondition owner_;
  std::map<Token, Reply> waiting_;
  std::vector<Answer> answers_;  // leave after the next sync
  std::vector<FinishedCut> commits_;
  uint64_t tokens_ = 0;
  TimerId timer_{};
  bool dirty_ = false;
  bool flushing_ = false;
  Status failed_;

  mutable Mutex mutex_;
  Status failure_ ABSL_GUARDED_BY(mutex_);
};

StatusOr<std::unique_ptr<SchedulerServer>> SchedulerServer::start(Network& network,
                                                                  SchedulerServerOptions options,
                                                                  std::unique_ptr<Ledger> ledger,
                                                                  CutWriter* writer) {
  std::unique_ptr<SchedulerServer> server(new SchedulerServer());
  if (options.lane == nullptr) {
    server->own_lane_ = network.make_lane("scheduler", 0);
    options.lane = server->own_lane_;
  }
  server->lane_ = options.lane;
  STARLING_ASSIGN_OR_RETURN(const std::vector<LedgerEntry> entries, ledger->list(""));
  STARLING_ASSIGN_OR_RETURN(
      std::unique_ptr<Scheduler> scheduler,
      Scheduler::restore(options.scheduler, entries, options.lane->clock().now()));
  server->desk_ = std::make_shared<Desk>(options.lane, std::move(ledger), std::move(scheduler),
                                         writer, network);
  STARLING_RETURN_IF_ERROR(server->desk_->own(options.incarnation));
  ServerOptions net;
  net.role = Service::kScheduler;
  net.listen = std::move(options.listen);
  net.lanes = {options.lane};
  net.handlers.resize(1);
  net.handlers[0][static_cast<size_t>(Service::kScheduler)] = server->desk_.get();
  STARLING_ASSIGN_OR_RETURN(server->server_, Server::start(network, std::move(net)));
  options.lane->post([desk = server->desk_] { desk->begin(); });
  return server;
}

SchedulerServer::~SchedulerServer() {
  if (server_ != nullptr) stop(Deadline::in(RealClock(), Duration::zero())).IgnoreError();
}

Status SchedulerServer::failure() const { return desk_->failure(); }

Status SchedulerServer::stop(Deadline deadline) {
  if (lane_ == nullptr) return absl::OkStatus();
  const std::shared_ptr<Lane> lane = std::exchange(lane_, nullptr);
  const auto close = [desk = desk_] { desk->close(unavailable("the scheduler is stopping")); };
  if (lane->here()) {
    close();
  } else {
    lane->post(close);
  }
  Status stopped = server_->stop(deadline);
  server_.reset();
  if (own_lane_ != nullptr) own_lane_->stop();
  return stopped;
}

}  // namespace starling
