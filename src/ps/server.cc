#include "ps/server.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "ps/desk.h"
#include "scheduler/client.h"

namespace starling {
namespace {

constexpr uint32_t kShardsMax = 4096;
constexpr Duration kLeavePatience = seconds(2);

Status check(const PsServerOptions& options) {
  if (options.shards < 1 || options.shards > kShardsMax) {
    return invalid_argument("{} shards; 1 to {} are allowed", options.shards, kShardsMax);
  }
  if (options.name.empty()) return invalid_argument("a ps needs a name");
  if (!options.lanes.empty() && options.lanes.size() != options.shards) {
    return invalid_argument("{} lanes for {} shards", options.lanes.size(), options.shards);
  }
  return absl::OkStatus();
}

// As others shall reach it.
}  // namespace

// Lives on the control lane but for what its mutex guards; tasks hold it weakly.
class PsServer::Control final : public SchedulerEvents,
                                public std::enable_shared_from_this<Control> {
 public:
  Control(PsServerOptions options, std::shared_ptr<Lane> lane,
          std::vector<std::shared_ptr<Lane>> lanes, std::vector<std::shared_ptr<PsDesk>> desks,
          std::shared_ptr<PsShared> shared)
      : options_(std::move(options)),
        lane_(std::move(lane)),
        lanes_(std::move(lanes)),
        desks_(std::move(desks)),
        shared_(std::move(shared)),
        reports_(lanes_.size()) {}

  void begin(Network& network, std::vector<v1::Address> addresses) {
    network_ = &network;
    SchedulerClientOptions client;
    client.scheduler = options_.scheduler;
    client.role = v1::ROLE_PS;
    client.name = options_.name;
    client.incarnation = options_.incarnation;
    client.addresses = std::move(addresses);
    client.lanes = options_.shards;
    client.empty = true;
    client.version = options_.version;
    client.applies_later = true;
    client.attempt = options_.lease_patience;
    client_ = std::make_unique<SchedulerClient>(network, lane_, client, this);
    join();
  }

  void join() {
    client_->join(Deadline::in(lane_->clock(), options_.join_patience),
                  [self = weak_from_this()](StatusOr<v1::RegisterReply> reply) {
                    if (const auto control = self.lock()) control->joined(std::move(reply));
                  });
  }

  void on_whole() override { is_whole_ = true; }

  // All events of one answer go to the shards together.
  void on_event(const v1::Event& event) override {
    if (event.has_job()) see_job(event.job());
    events_.push_back(event);
    if (std::exchange(is_handing_on_, true)) return;
    lane_->post([self = weak_from_this()] {
      if (const auto control = self.lock()) control->hand_on();
    });
  }

  void on_refused(const Status& status) override {
    if (reason_of(status) == v1::REASON_WRONG_GENERATION) return join();
    end({.status = with_context(status, "the scheduler has declared this process dead")});
  }

  void on_heartbeat(v1::SchedulerHeartbeatOption* option) override {
    std::vector<v1::RankBatch> batches;
    for (const LaneReport& report : reports_) {
      for (const v1::RankClock& clock : report.clocks) *option->add_clocks() = clock;
      for (const v1::RankBatch& batch : report.batches) *option->add_batches() = batch;
    }
    add_rates(option);
    each_desk([](PsDesk& desk) { desk.report(); });
  }

  void take_report(LaneReport report) {
    reports_[value(report.lane)] = std::move(report);
    uint64_t revision = UINT64_MAX;
    size_t memory = 0;
    for (const LaneReport& one : reports_) {
      revision = std::min(revision, one.revision);
      memory += one.memory_bytes;
    }
    if (client_ != nullptr && revision > 0) client_->applied(revision);
    warn_of_memory(memory);
  }

  // A report that is lost is made again when the scheduler tells of the cut again.
  void report_cut(v1::SaveJobOption option) {
    if (client_ == nullptr) return;
    option.set_action(v1::SAVE_ACTION_REPORT);
    Message request;
    *request.meta.mutable_save_job() = std::move(option);
    client_->call(Method::kSchedulerSave, std::move(request),
                  Deadline::in(lane_->clock(), options_.join_patience),
                  [log = network_->log()](const StatusOr<Message>& reply) {
                    if (reply.ok()) return;
                    log.warning("cut_report_refused", {{"status", reply.status().ToString()}});
                  });
  }

  void finish_profile(const std::function<void(v1::ProfileReply)>& done) {
    v1::ProfileReply reply;
    reply.set_trace(shared_->profiler.trace());
    if (options_.files != nullptr && !options_.trace_path.empty()) {
      const std::string path = fmt::format("{}/{}-{:016x}.trace.json", options_.trace_path,
                                           options_.name, options_.incarnation);
      const Status written = write_trace(path, reply.trace());
      if (written.ok()) {
        reply.set_path(path);
      } else {
        network_->log().warning("trace_not_written", {{"status", written.ToString()}});
      }
    }
    done(std::move(reply));
  }

  void end(PsServer::End end) {
    MutexLock lock(mutex_);
    if (ended_.has_value()) return;
    ended_ = std::move(end);
    changed_.notify_all();
  }
  std::optional<PsServer::End> ended() const {
    MutexLock lock(mutex_);
    return ended_;
  }
  Status wait_joined(Deadline deadline) {
    MutexLock lock(mutex_);
    while (!is_joined_ && !ended_.has_value()) {
      if (!changed_.wait(mutex_, deadline)) break;
    }
    if (is_joined_) return absl::OkStatus();
    if (ended_.has_value() && !ended_->status.ok()) return ended_->status;
    return deadline_exceeded("{} is not registered with the scheduler at {} yet", options_.name,
                             options_.scheduler.to_string());
  }

  // Before Freeze the others may go on without this one; later the scheduler refuses it.
  void leave(std::function<void()> done) {
    const bool is_frozen = std::any_of(reports_.begin(), reports_.end(),
                                       [](const LaneReport& report) { return report.frozen; });
    if (client_ == nullptr || is_frozen || !has_joined_) return done();
    Message request;
    request.meta.mutable_leave()->set_reason("stopped");
    client_->call(Method::kSchedulerLeave, std::move(request),
                  Deadline::in(lane_->clock(), kLeavePatience),
                  [done = std::move(done)](const StatusOr<Message>&) { done(); });
  }
  void close() {
    if (client_ != nullptr) client_->stop();
    client_.reset();
    MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  void wait_closed(Deadline deadline) {
    MutexLock lock(mutex_);
    while (!is_closed_) {
      if (!changed_.wait(mutex_, deadline)) return;
    }
  }

 private:
  template <typename F>
  void each_desk(F task) {
    for (size_t i = 0; i < desks_.size(); ++i) {
      lanes_[i]->post([desk = std::weak_ptr(desks_[i]), task] {
        if (const auto alive = desk.lock()) task(*alive);
      });
    }
  }

  void joined(StatusOr<v1::RegisterReply> reply) {
    if (!reply.ok()) {
      return end({.status = with_context(reply.status(),
                                         fmt::format("{} cannot register", options_.name))});
    }
    network_->log().info("joined", {{"name", options_.name}, {"node", reply->id()}});
    if (!std::exchange(has_joined_, true)) {
      ShardOptions shard;
      shard.node = static_cast<NodeId>(reply->id());
      shard.incarnation = static_cast<Incarnation>(options_.incarnation);
      shard.generation = reply->generation();
      shard.staging_bytes_max = options_.staging_bytes_max;
      shard.memory_bytes_max = options_.memory_bytes_max / options_.shards;
      shard.pool = &network_->pool();
      for (size_t i = 0; i < desks_.size(); ++i) {
        shard.lane = static_cast<LaneId>(i);
        lanes_[i]->post(
            [desk = desks_[i], shard, make = options_.make_keeper] { desk->open(shard, make); });
      }
    }
    MutexLock lock(mutex_);
    is_joined_ = true;
    changed_.notify_all();
  }

  void see_job(const v1::JobInfo& job) {
    const v1::JobState before = std::exchange(job_state_, job.state());
    // A job that has failed before this process came is about to be restored.
    if (job.state() != v1::JOB_STATE_FAILED || before == v1::JOB_STATE_FAILED) return;
    if (before == v1::JOB_STATE_UNKNOWN) return;
    network_->log().error("job_failed", {{"reason", job.reason()}});
    end({.status = unavailable("the job failed: {}", job.reason())});
  }

  void hand_on() {
    is_handing_on_ = false;
    auto events = std::make_shared<const std::vector<v1::Event>>(std::exchange(events_, {}));
    if (events->empty()) return;
    const uint64_t revision = events->back().revision();
    const bool is_whole = std::exchange(is_whole_, false);
    each_desk([events, is_whole, revision](PsDesk& desk) {
      desk.take_events(*events, is_whole, revision);
    });
  }

  void add_rates(v1::SchedulerHeartbeatOption* option) {
    const TimePoint now = lane_->clock().now();
    const uint64_t calls = shared_->rpcs.calls();
    if (last_beat_ != TimePoint() && now > last_beat_) {
      v1::NamedValue* rate = option->add_rates();
      rate->set_name("requests_per_s");
      rate->set_value(static_cast<double>(calls - last_calls_) * 1e9 /
                      static_cast<double>((now - last_beat_).count()));
    }
    size_t memory = 0;
    for (const LaneReport& report : reports_) memory += report.memory_bytes;
    v1::NamedValue* bytes = option->add_rates();
    bytes->set_name("memory_bytes");
    bytes->set_value(static_cast<double>(memory));
    last_beat_ = now;
    last_calls_ = calls;
  }

  void warn_of_memory(size_t memory) {
    const size_t most = options_.memory_bytes_max;
    if (most == 0 || memory < most / 5 * 4) {
      has_warned_ = false;
    } else if (!std::exchange(has_warned_, true)) {
      network_->log().warning("memory_high", {{"bytes", memory}, {"memory_max", most}});
    }
  }

  Status write_trace(const std::string& path, const std::string& trace) const {
    STARLING_RETURN_IF_ERROR(options_.files->make_directories(options_.trace_path));
    STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                              options_.files->open_write(path, Existing::kReplace));
    STARLING_RETURN_IF_ERROR(writer->write(std::as_bytes(std::span(trace))));
    return writer->publish();
  }

  const PsServerOptions options_;
  const std::shared_ptr<Lane> lane_;
  const std::vector<std::shared_ptr<Lane>> lanes_;
  const std::vector<std::shared_ptr<PsDesk>> desks_;
  const std::shared_ptr<PsShared> shared_;
  Network* network_ = nullptr;
  std::unique_ptr<SchedulerClient> client_;
  std::vector<LaneReport> reports_;
  std::vector<v1::Event> events_;  // not handed on yet
  bool is_handing_on_ = false;
  bool is_whole_ = false;
  bool has_joined_ = false;
  bool has_warned_ = false;
  v1::JobState job_state_ = v1::JOB_STATE_UNKNOWN;
  TimePoint last_beat_;
  uint64_t last_calls_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;
  bool is_joined_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<PsServer::End> ended_ ABSL_GUARDED_BY(mutex_);
};

StatusOr<std::unique_ptr<PsServer>> PsServer::start(Network& network, PsServerOptions options) {
  STARLING_RETURN_IF_ERROR(check(options));
  std::unique_ptr<PsServer> server(new PsServer());
  if (options.control == nullptr) {
    server->own_lanes_.push_back(network.make_lane("ps-control", options.shards));
    options.control = server->own_lanes_.back();
  }
  server->control_lane_ = options.control;
  for (uint32_t i = 0; options.lanes.size() < options.shards; ++i) {
    server->own_lanes_.push_back(network.make_lane(fmt::format("ps-{}", i), i));
    options.lanes.push_back(server->own_lanes_.back());
  }
  server->lanes_ = options.lanes;
  const auto shared = std::make_shared<PsShared>(network.metrics(), options.shards);
  ServerOptions net;
  net.role = Service::kPs;
  net.listen = options.listen;
  net.lanes = options.lanes;
  net.handlers.resize(options.shards);
  for (uint32_t i = 0; i < options.shards; ++i) {
    server->desks_.push_back(std::make_shared<PsDesk>(options.lanes[i], shared));
    net.handlers[i][static_cast<size_t>(Service::kPs)] = server->desks_.back().get();
  }
  server->control_ =
      std::make_shared<Control>(options, options.control, options.lanes, server->desks_, shared);
  const auto control = std::weak_ptr(server->control_);
  const auto on_control = [control, lane = options.control](auto task) {
    lane->post([control, task = std::move(task)]() mutable {
      if (const auto alive = control.lock()) task(*alive);
    });
  };
  shared->report = [on_control](LaneReport report) {
    on_control([report = std::move(report)](Control& alive) { alive.take_report(report); });
  };
  shared->stop = [control](const v1::StopOption& option) {
    const auto alive = control.lock();
    if (alive == nullptr) return;
    End end;
    if (option.grace_ms() > 0) end.grace = milliseconds(option.grace_ms());
    alive->end(std::move(end));
  };
  shared->report_cut = [on_control](v1::SaveJobOption option) {
    on_control([option = std::move(option)](Control& alive) { alive.report_cut(option); });
  };
  shared->finish_profile = [on_control](std::function<void(v1::ProfileReply)> done) {
    on_control([done = std::move(done)](Control& alive) { alive.finish_profile(done); });
  };
  STARLING_ASSIGN_OR_RETURN(server->server_, Server::start(network, std::move(net)));
  STARLING_ASSIGN_OR_RETURN(std::vector<v1::Address> addresses,
                            told_addresses(server->addresses(), options.advertise));
  on_control([&network, addresses = std::move(addresses)](Control& alive) {
    alive.begin(network, addresses);
  });
  return server;
}

PsServer::~PsServer() {
  if (server_ != nullptr) stop(Deadline::in(RealClock(), Duration::zero())).IgnoreError();
  for (const auto& lane : own_lanes_) lane->stop();
}

Status PsServer::wait_joined(Deadline deadline) { return control_->wait_joined(deadline); }

std::optional<PsServer::End> PsServer::ended() const { return control_->ended(); }

Status PsServer::stop(Deadline deadline) {
  if (std::exchange(stopped_, true)) return absl::OkStatus();
  for (size_t i = 0; i < desks_.size(); ++i) {
    lanes_[i]->post([desk = desks_[i]] { desk->close(unavailable("this ps is stopping")); });
  }
  // The scheduler hears of it while the lanes end what they have begun.
  control_lane_->post([control = control_, lane = control_lane_] {
    // Closed by a task of its own: a client is not destroyed inside of its callback.
    control->leave([control, lane] { lane->post([control] { control->close(); }); });
  });
  Status stopped = server_->stop(deadline);
  // A lane of its own goes on by itself; one that was passed in may be turned by this very thread.
  if (!own_lanes_.empty() && own_lanes_.front() == control_lane_) control_->wait_closed(deadline);
  for (const auto& lane : own_lanes_) lane->stop();
  control_->close();
  return stopped;
}

}  // namespace starling
