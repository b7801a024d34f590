#include "hub/server.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "hub/dataset.h"
#include "hub/rates.h"
#include "ps/client.h"
#include "scheduler/client.h"
#include "wire/rows.h"

namespace starling {
namespace {

constexpr uint32_t kLanesMax = 1024;
constexpr size_t kDatasetsMax = 16;  // those that have ended go first
constexpr size_t kFencedMax = 4096;  // incarnations remembered; the oldest go first
constexpr Duration kLeavePatience = seconds(2);
constexpr Duration kReportPatience = seconds(60);

Status check(const HubServerOptions& options) {
  if (options.lanes < 1 || options.lanes > kLanesMax) {
    return invalid_argument("{} lanes; 1 to {} are allowed", options.lanes, kLanesMax);
  }
  if (options.name.empty()) return invalid_argument("a hub needs a name");
  if (options.files == nullptr) return invalid_argument("a hub needs a store of files");
  if (options.hubs == 0 || options.hub >= options.hubs) {
    return invalid_argument("hub {} of {} hubs", options.hub, options.hubs);
  }
  return absl::OkStatus();
}

// As others shall reach it.
Message refusal(const Status& status, v1::Reason reason = v1::REASON_NONE) {
  Message message = status_reply(status);
  message.meta.mutable_status()->set_reason(reason);
  return message;
}

}  // namespace

// Lives on the control lane but for what its mutex guards; tasks hold it weakly.
class HubServer::Control final : public SchedulerEvents,
                                 public std::enable_shared_from_this<Control> {
 public:
  Control(Network& network, HubServerOptions options, std::shared_ptr<Lane> lane)
      : network_(network),
        options_(std::move(options)),
        lane_(std::move(lane)),
        rates_(network.metrics()) {}

  void begin(std::vector<v1::Address> addresses) {
    SchedulerClientOptions client;
    client.scheduler = options_.scheduler;
    client.role = v1::ROLE_HUB;
    client.name = options_.name;
    client.incarnation = options_.incarnation;
    client.addresses = std::move(addresses);
    client.version = options_.version;
    scheduler_ = std::make_unique<SchedulerClient>(network_, lane_, client, this);
    PsClientOptions ps;
    ps.role = v1::ROLE_HUB;
    ps.incarnation = options_.incarnation;
    ps_ = std::make_unique<PsClient>(network_, lane_, ps, scheduler_.get());
    HubClientOptions others;
    others.role = v1::ROLE_HUB;
    others.incarnation = options_.incarnation;
    hubs_ = std::make_unique<HubClient>(network_, lane_, others);
    join();
  }

  void join() {
    scheduler_->join(Deadline::in(lane_->clock(), options_.join_patience),
                     [self = weak_from_this()](const StatusOr<v1::RegisterReply>& reply) {
                       if (const auto control = self.lock()) control->joined(reply);
                     });
  }

  void on_event(const v1::Event& event) override {
    if (event.has_job()) see_job(event.job());
    if (event.has_node()) see_node(event.node());
    if (event.has_cut()) follow(event.cut());
    ps_->on_event(event);
    hubs_->on_event(event);
    for (const auto& dataset : datasets()) dataset->on_event(event);
  }

  void on_refused(const Status& status) override {
    if (reason_of(status) != v1::REASON_WRONG_GENERATION) {
      return end(with_context(status, "the scheduler has declared this process dead"));
    }
    // The job goes back to a cut: trainers start their datasets anew.
    drop_datasets();
    join();
  }

  void on_heartbeat(v1::SchedulerHeartbeatOption* option) override {
    Rates::Depths depths;
    uint64_t clock = 0;
    for (const auto& dataset : datasets()) {
      depths.samples_done += dataset->counts().samples_done();
      depths.open_batches += dataset->open_batches();
      depths.fed_batches += dataset->fed_batches();
      depths.memory_bytes += dataset->memory_bytes();
      clock = std::max(clock, dataset->clock_dealt());
    }
    option->set_clock(clock);
    rates_.tell(lane_->clock().now(), depths, option->mutable_rates());
  }

  void on(MethodTag<Method::kHubStartSample>, const Request& request, Reply reply) {
    reply.send(start_sample(request.message));
  }
  void on(MethodTag<Method::kHubReadSample>, const Request& request, Reply reply) {
    reply.send(read_sample(request.message));
  }
  void on(MethodTag<Method::kHubExchange>, const Request& request, Reply reply) {
    reply.send(exchange(request.message));
  }

  Message start_sample(const Message& request) {
    if (Message refused; !admit(request, refused)) return refused;
    const v1::StartSampleOption& option = request.meta.start_sample();
    MutexLock lock(mutex_);
    const auto it = datasets_.find(option.dataset());
    if (option.memory().release()) {
      if (it != datasets_.end()) {
        ending_.push_back(it->second);
        it->second->stop();
        datasets_.erase(it);
      }
      Message released;
      released.meta.mutable_start_sample_reply()->set_state(v1::DATASET_STATE_END);
      return released;
    }
    if (it != datasets_.end()) {
      if (it->second->option().SerializeAsString() == option.SerializeAsString()) {
        return it->second->describe();
      }
      return refusal(already_exists("Hub.StartSample: dataset {} is there with other options",
                                    option.dataset()));
    }
    if (const Status status = make_room(option); !status.ok()) return refusal(status);
    DatasetOptions made;
    made.start = option;
    made.tables = options_.tables;
    made.threads = options_.threads;
    made.memory_bytes_max = options_.memory_bytes_max;
    made.window_max = options_.window_max;
    made.hub = options_.hub;
    made.hubs = options_.hubs;
    made.item_bytes = options_.item_bytes;
    made.generation = generation_;
    made.seats = seats_;
    const StatusOr<std::shared_ptr<Dataset>> dataset =
        Dataset::start({.scheduler = scheduler_.get(),
                        .ps = ps_.get(),
                        .hubs = hubs_.get(),
                        .node = node_,
                        .loaded = &loaded_,
                        .files = options_.files,
                        .clock = &lane_->clock(),
                        .metrics = &network_.metrics(),
                        .log = network_.log(),
                        .lane = lane_},
                       std::move(made));
    if (!dataset.ok()) return refusal(dataset.status());
    datasets_[option.dataset()] = *dataset;
    return (*dataset)->describe();
  }

  Message exchange(const Message& request) {
    if (Message refused; !admit(request, refused)) return refused;
    const std::string& name = request.meta.exchange().dataset();
    const std::shared_ptr<Dataset> dataset = find(name);
    if (dataset != nullptr) return dataset->exchange(request);
    return refusal(not_found("Hub.Exchange: no dataset {} on {}", name, options_.name));
  }

  Message read_sample(const Message& request) {
    if (Message refused; !admit(request, refused)) return refused;
    const v1::ReadSampleOption& option = request.meta.read_sample();
    const std::shared_ptr<Dataset> dataset = find(option.dataset());
    if (dataset == nullptr) {
      return refusal(not_found("Hub.ReadSample: no dataset {} on {}; StartSample comes first",
                               option.dataset(), options_.name));
    }
    if (option.has_range() && option.batches_max() != 1) {
      return refusal(invalid_argument("Hub.ReadSample: a range is of one batch, batches_max is {}",
                                      option.batches_max()));
    }
    Message reply = dataset->read(request);
    if (!option.has_range()) return reply;
    const StatusOr<uint64_t> rows = cut_rows(option.range(), reply);
    if (!rows.ok()) return refusal(rows.status());
    v1::ReadSampleReply& answer = *reply.meta.mutable_read_sample_reply();
    answer.set_rows_total(*rows);
    for (v1::BatchLease& lease : *answer.mutable_batches()) {
      answer.set_rows_total(cut_ids(option.range(), *rows, *lease.mutable_ids()));
    }
    return reply;
  }

  std::string progress() const {
    std::string out;
    for (const auto& dataset : datasets()) {
      const v1::DatasetCounts counts = dataset->counts();
      out += fmt::format(
          "dataset {}: {}; samples read {} = done {} + skipped {}; batches dealt {}, again {}\n",
          dataset->option().dataset(), v1::DatasetState_Name(dataset->state()),
          counts.samples_read(), counts.samples_done(), counts.samples_skipped(),
          counts.batches_dealt(), counts.batches_again());
      if (const auto [hubs, samples] = dataset->exchanged(); hubs > 0) {
        out += fmt::format("dataset {}: {} samples came from {} other hubs\n",
                           dataset->option().dataset(), samples, hubs);
      }
    }
    return out;
  }

  size_t memory_bytes_peak() const {
    size_t bytes = 0;
    for (const auto& dataset : datasets()) bytes = std::max(bytes, dataset->memory_bytes_peak());
    return bytes;
  }

  void end(Status status) {
    MutexLock lock(mutex_);
    if (ended_.has_value()) return;
    ended_ = std::move(status);
    changed_.notify_all();
  }
  std::optional<Status> ended() const {
    MutexLock lock(mutex_);
    return ended_;
  }
  Status wait_joined(Deadline deadline) {
    MutexLock lock(mutex_);
    while (!is_joined_ && !ended_.has_value()) {
      if (!changed_.wait(mutex_, deadline)) break;
    }
    if (is_joined_) return absl::OkStatus();
    if (ended_.has_value() && !ended_->ok()) return *ended_;
    return deadline_exceeded("{} is not registered with the scheduler at {} yet", options_.name,
                             options_.scheduler.to_string());
  }

  // Their threads may wait for the control lane, so it still turns.
  void end_datasets() {
    drop_datasets();
    std::vector<std::shared_ptr<Dataset>> ending;
    {
      MutexLock lock(mutex_);
      is_closing_ = true;
      ending.swap(ending_);
    }
    for (const auto& dataset : ending) dataset->join();
  }
  void leave(Function<void()> done) {
    if (scheduler_ == nullptr || !has_joined_) return done();
    Message request;
    request.meta.mutable_leave()->set_reason("stopped");
    scheduler_->call(Method::kSchedulerLeave, std::move(request),
                     Deadline::in(lane_->clock(), kLeavePatience),
                     [done = std::move(done)](const StatusOr<Message>&) mutable { done(); });
  }
  void close() {
    if (scheduler_ != nullptr) scheduler_->stop();
    hubs_.reset();
    ps_.reset();
    scheduler_.reset();
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
  std::shared_ptr<Dataset> find(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto it = datasets_.find(name);
    return it == datasets_.end() ? nullptr : it->second;
  }

  std::vector<std::shared_ptr<Dataset>> datasets() const {
    MutexLock lock(mutex_);
    std::vector<std::shared_ptr<Dataset>> out;
    for (const auto& [name, dataset] : datasets_) out.push_back(dataset);
    return out;
  }

  void drop_datasets() {
    MutexLock lock(mutex_);
    for (auto& [name, dataset] : datasets_) {
      dataset->stop();
      ending_.push_back(dataset);
    }
    datasets_.clear();
  }

  // Epochs of two datasets may not meet: batches are known by their ids alone.
  Status make_room(const v1::StartSampleOption& option) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (is_closing_) return unavailable("this hub is stopping");
    const auto end_of = [](const v1::StartSampleOption& one) {
      return uint64_t{one.first_epoch()} + std::max(1U, one.epochs());
    };
    for (const auto& [name, dataset] : datasets_) {
      const v1::StartSampleOption& other = dataset->option();
      if (option.first_epoch() < end_of(other) && other.first_epoch() < end_of(option)) {
        return invalid_argument(
            "Hub.StartSample: epochs {} to {} of dataset {} meet those of {}, which begin at {}",
            option.first_epoch(), end_of(option) - 1, option.dataset(), name, other.first_epoch());
      }
    }
    if (datasets_.size() < kDatasetsMax) return absl::OkStatus();
    const auto over = std::find_if(datasets_.begin(), datasets_.end(), [](const auto& entry) {
      const v1::DatasetState state = entry.second->state();
      return state == v1::DATASET_STATE_END || state == v1::DATASET_STATE_FAILED;
    });
    if (over == datasets_.end()) {
      return resource_exhausted("Hub.StartSample: {} datasets are being read", datasets_.size());
    }
    over->second->stop();
    ending_.push_back(over->second);
    datasets_.erase(over);
    return absl::OkStatus();
  }

  bool admit(const Message& request, Message& refused) {
    const v1::Header& header = request.meta.header();
    MutexLock lock(mutex_);
    if (!is_joined_) {
      refused = refusal(unavailable("{} is not registered yet", options_.name));
    } else if (header.generation() != generation_) {
      refused = refusal(failed_precondition("generation {} of the job, this hub has {}",
                                            header.generation(), generation_),
                        v1::REASON_WRONG_GENERATION);
    } else if (fenced_.contains(header.incarnation())) {
      refused = refusal(failed_precondition("this incarnation has been declared dead"),
                        v1::REASON_FENCED);
    } else {
      return true;
    }
    return false;
  }

  void joined(const StatusOr<v1::RegisterReply>& reply) {
    if (!reply.ok()) {
      return end(with_context(reply.status(), fmt::format("{} cannot register", options_.name)));
    }
    network_.log().info("joined", {{"name", options_.name}, {"node", reply->id()}});
    ps_->joined(*reply);
    hubs_->joined(*reply);
    has_joined_ = true;
    MutexLock lock(mutex_);
    node_ = reply->id();
    generation_ = reply->generation();
    seats_ = {reply->job().seats().begin(), reply->job().seats().end()};
    is_joined_ = true;
    changed_.notify_all();
  }

  void see_job(const v1::JobInfo& job) {
    {
      MutexLock lock(mutex_);
      if (job.generation() == generation_) seats_ = {job.seats().begin(), job.seats().end()};
    }
    const v1::JobState before = std::exchange(job_state_, job.state());
    if (job.state() == v1::JOB_STATE_DONE && before != v1::JOB_STATE_UNKNOWN) {
      return end(absl::OkStatus());
    }
    // A job that has failed before this process came is about to be restored.
    if (job.state() != v1::JOB_STATE_FAILED || before == v1::JOB_STATE_FAILED) return;
    if (before == v1::JOB_STATE_UNKNOWN) return;
    network_.log().error("job_failed", {{"reason", job.reason()}});
    end(unavailable("the job failed: {}", job.reason()));
  }

  void see_node(const v1::Node& node) {
    if (node.state() != v1::NODE_STATE_DEAD || node.incarnation() == 0) return;
    MutexLock lock(mutex_);
    if (!fenced_.insert(node.incarnation()).second) return;
    fenced_order_.push_back(node.incarnation());
    if (fenced_order_.size() <= kFencedMax) return;
    fenced_.erase(fenced_order_.front());
    fenced_order_.pop_front();
  }

  void follow(const v1::CutEvent& cut) {
    // Evaluations change nothing that a cut keeps, and training may wait for one to end.
    auto open = datasets();
    std::erase_if(open, [](const auto& dataset) { return !dataset->trains(); });
    if (cut.phase() == v1::CUT_PHASE_DRAIN) {
      std::optional<uint64_t> clock;
      if (cut.has_clock()) clock = cut.clock();
      auto report = std::make_shared<v1::SaveJobOption>();
      auto left = std::make_shared<size_t>(open.size());
      report->set_cut_id(cut.cut_id());
      report->set_phase(cut.phase());
      if (open.empty()) return send(*report);
      for (const auto& dataset : open) {
        dataset->drain(clock, [self = weak_from_this(), report, left](Dataset::DrainedAt at) {
          for (const v1::Watermark& mark : at.marks) *report->add_watermarks() = mark;
          if (at.clock.has_value()) {
            v1::SaveOption* save = report->mutable_save();
            save->set_clock(std::max(save->clock(), *at.clock));
          }
          const auto control = self.lock();
          if (--*left == 0 && control != nullptr) control->send(*report);
        });
      }
      return;
    }
    if (cut.phase() != v1::CUT_PHASE_SNAPSHOT) {
      for (const auto& dataset : open) dataset->resume();
      return;
    }
    v1::SaveJobOption report;
    report.set_cut_id(cut.cut_id());
    report.set_phase(cut.phase());
    std::optional<uint64_t> clock;
    if (cut.has_clock()) clock = cut.clock();
    hubs::Position position;
    for (const auto& dataset : open) *position.add_datasets() = dataset->position(clock);
    report.set_position(position.SerializeAsString());
    send(report);
  }

  // A report that is lost is made again when the scheduler tells of the cut again.
  void send(v1::SaveJobOption option) {
    option.set_action(v1::SAVE_ACTION_REPORT);
    Message request;
    *request.meta.mutable_save_job() = std::move(option);
    scheduler_->call(Method::kSchedulerSave, std::move(request),
                     Deadline::in(lane_->clock(), kReportPatience),
                     [log = network_.log()](const StatusOr<Message>& reply) {
                       if (reply.ok()) return;
                       log.warning("cut_report_refused", {{"status", reply.status().ToString()}});
                     });
  }

  Network& network_;
  const HubServerOptions options_;
  const std::shared_ptr<Lane> lane_;
  std::unique_ptr<SchedulerClient> scheduler_;
  std::unique_ptr<PsClient> ps_;
  std::unique_ptr<HubClient> hubs_;
  LoadedSet loaded_;
  bool has_joined_ = false;
  v1::JobState job_state_ = v1::JOB_STATE_UNKNOWN;
  Rates rates_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::shared_ptr<Dataset>> datasets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Dataset>> ending_ ABSL_GUARDED_BY(mutex_);  // threads to be joined
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<v1::RankSeats> seats_ ABSL_GUARDED_BY(mutex_);
  uint32_t node_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> fenced_ ABSL_GUARDED_BY(mutex_);  // incarnations
  std::deque<uint64_t> fenced_order_ ABSL_GUARDED_BY(mutex_);
  bool is_joined_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Status> ended_ ABSL_GUARDED_BY(mutex_);
};

StatusOr<std::unique_ptr<HubServer>> HubServer::start(Network& network, HubServerOptions options) {
  STARLING_RETURN_IF_ERROR(check(options));
  std::unique_ptr<HubServer> server(new HubServer());
  server->control_lane_ = network.make_lane("hub-control", options.lanes);
  server->control_ = std::make_shared<Control>(network, options, server->control_lane_);
  ServerOptions net;
  net.role = Service::kHub;
  net.listen = options.listen;
  net.handlers.resize(options.lanes);
  server->handler_ = std::make_unique<ServiceHandler<Service::kHub, Control>>(*server->control_);
  for (uint32_t i = 0; i < options.lanes; ++i) {
    server->lanes_.push_back(network.make_lane(fmt::format("hub-{}", i), i));
    net.lanes.push_back(server->lanes_.back());
    net.handlers[i][static_cast<size_t>(Service::kHub)] = server->handler_.get();
  }
  STARLING_ASSIGN_OR_RETURN(server->server_, Server::start(network, std::move(net)));
  STARLING_ASSIGN_OR_RETURN(std::vector<v1::Address> addresses,
                            told_addresses(server->addresses(), options.advertise));
  server->control_lane_->post([control = server->control_, addresses = std::move(addresses)] {
    control->begin(addresses);
  });
  return server;
}

HubServer::~HubServer() {
  if (server_ != nullptr) stop(Deadline::in(RealClock(), Duration::zero())).IgnoreError();
  for (const auto& lane : lanes_) lane->stop();
  if (control_lane_ != nullptr) control_lane_->stop();
}

Status HubServer::wait_joined(Deadline deadline) { return control_->wait_joined(deadline); }

std::optional<Status> HubServer::ended() const { return control_->ended(); }

std::string HubServer::progress() const { return control_->progress(); }

size_t HubServer::memory_bytes_peak() const { return control_->memory_bytes_peak(); }

Status HubServer::stop(Deadline deadline) {
  if (std::exchange(stopped_, true)) return absl::OkStatus();
  Status stopped = server_->stop(deadline);
  control_->end_datasets();
  control_lane_->post([control = control_, lane = control_lane_] {
    // Closed by a task of its own: a client is not destroyed inside of its callback.
    control->leave([control, lane] { lane->post([control] { control->close(); }); });
  });
  // Leaving has a patience of its own.
  control_->wait_closed(Deadline::in(control_lane_->clock(), 2 * kLeavePatience));
  for (const auto& lane : lanes_) lane->stop();
  control_lane_->stop();
  control_->close();
  return stopped;
}

}  // namespace starling
