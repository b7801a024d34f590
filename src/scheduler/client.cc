#include "scheduler/client.h"

#include <absl/strings/cord.h>

#include <algorithm>
#include <future>
#include <set>

#include "base/rng.h"
#include "net/backoff.h"

namespace starling {
namespace {

constexpr const char* kReasonPayload = "starling.v1.Reason";
// A refusal that came so close to the deadline is the answer: another try could not end in time.
constexpr Duration kLastTry = milliseconds(500);
constexpr Duration kRetryMin = milliseconds(20);
constexpr Duration kRetryMax = seconds(1);

bool is_numbered(Method method) {
  return method == Method::kSchedulerSetJob || method == Method::kSchedulerPut ||
         method == Method::kSchedulerSave || method == Method::kSchedulerTakeWork ||
         method == Method::kSchedulerBarrier;
}

// Another try may end better.
bool may_retry(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kResourceExhausted;
}

bool ends_membership(const Status& status) {
  const v1::Reason reason = reason_of(status);
  return reason == v1::REASON_FENCED || reason == v1::REASON_WRONG_GENERATION;
}

}  // namespace

StatusOr<std::vector<v1::Address>> told_addresses(const std::vector<Address>& addresses,
                                                  const std::string& advertise) {
  std::vector<v1::Address> out;
  for (const Address& address : addresses) {
    v1::Address& told = out.emplace_back();
    told.set_protocol(std::string(protocol_name(address.protocol)));
    told.set_host(address.host);
    told.set_port(address.port);
    if (address.protocol == Protocol::kInproc) continue;
    if (!advertise.empty()) told.set_host(advertise);
    if (is_wildcard(told.host())) {
      return invalid_argument("{} is no address that others can reach: say which to advertise",
                              address.to_string());
    }
  }
  return out;
}

v1::Reason reason_of(const Status& status) {
  const auto payload = status.GetPayload(kReasonPayload);
  if (!payload.has_value()) return v1::REASON_NONE;
  return static_cast<v1::Reason>(std::stoi(std::string(*payload)));
}

Status refusal_of(const Message& reply) {
  Status status = status_of(reply);
  if (!status.ok() && reply.meta.status().reason() != v1::REASON_NONE) {
    status.SetPayload(kReasonPayload, absl::Cord(std::to_string(reply.meta.status().reason())));
  }
  return status;
}

// Lives on the lane; tasks and callbacks hold it weakly.
class SchedulerClient::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Network& network, std::shared_ptr<Lane> lane, SchedulerClientOptions options,
       SchedulerEvents* events)
      : options_(std::move(options)),
        lane_(std::move(lane)),
        client_(std::make_unique<Client>(network, lane_)),
        target_{.address = options_.scheduler},
        events_(events),
        session_(options_.session != 0 ? options_.session : mix64(options_.incarnation)),
        backoff_(kRetryMin, kRetryMax, options_.incarnation ^ session_) {}

  Lane& lane() { return *lane_; }

  template <typename F>
  void run(F task) {
    if (lane_->here()) return task(*this);
    lane_->post([self = shared_from_this(), task = std::move(task)]() mutable { task(*self); });
  }

  void close() {
    is_member_ = false;
    events_ = nullptr;
    client_.reset();
  }

  void leave_membership() {
    is_member_ = false;
    ++membership_;
    lane_->cancel(beat_timer_);
    if (client_ != nullptr) client_->cancel(watch_call_);
  }

  void applied(uint64_t revision) { applied_ = std::max(applied_, revision); }

  void join(Deadline deadline, DoneOr<v1::RegisterReply> done) {
    leave_membership();
    id_ = 0;
    generation_ = 0;
    applied_ = 0;
    Message request;
    v1::RegisterOption* option = request.meta.mutable_register_();
    option->set_name(options_.name);
    option->mutable_addresses()->Assign(options_.addresses.begin(), options_.addresses.end());
    option->set_lanes(options_.lanes);
    option->set_workers(options_.workers);
    option->set_empty(options_.empty);
    option->set_version(options_.version);
    call(Method::kSchedulerRegister, std::move(request), deadline,
         [self = weak_from_this(), done = std::move(done)](StatusOr<Message> result) mutable {
           const auto core = self.lock();
           if (!result.ok()) return done(result.status());
           const v1::RegisterReply& reply = result->meta.register_reply();
           if (core != nullptr) core->joined(reply);
           done(reply);
         });
  }

  void call(Method method, Message request, Deadline deadline, DoneOr<Message> done) {
    auto open = std::make_shared<OpenCall>();
    open->method = method;
    open->request = std::move(request);
    open->deadline = deadline;
    open->done = std::move(done);
    open->started = lane_->clock().now();
    if (is_numbered(method)) {
      open->number = ++numbers_;
      open_numbers_.insert(open->number);
    }
    attempt(std::move(open));
  }

 private:
  struct OpenCall {
    Method method{};
    Message request;
    Deadline deadline;
    DoneOr<Message> done;
    uint64_t number = 0;
    TimePoint started;
    Status last;  // the newest refusal by the scheduler itself
  };

  void fill_header(v1::Header* header, const OpenCall& open) {
    header->set_role(options_.role);
    header->set_role_id(id_);
    header->set_incarnation(options_.incarnation);
    header->set_generation(generation_);
    header->set_request_id(++request_ids_);
    if (open.number == 0) return;
    header->set_session(session_);
    header->set_number(open.number);
    header->set_acked_below(*open_numbers_.begin());
  }

  void attempt(std::shared_ptr<OpenCall> open) {
    if (client_ == nullptr) return end(*open, cancelled("the client has been closed"));
    const TimePoint now = lane_->clock().now();
    const Duration one_try =
        open->method == Method::kSchedulerRegister ? options_.join_attempt : options_.attempt;
    const Deadline try_until = std::min(open->deadline, Deadline::in(lane_->clock(), one_try));
    Message request = open->request;
    fill_header(request.meta.mutable_header(), *open);
    if (open->deadline.passed(now)) return end(*open, late(*open));
    client_->call(target_, open->method, std::move(request), try_until,
                  [self = weak_from_this(), open](StatusOr<Message> result) {
                    if (const auto core = self.lock()) {
                      core->ended(open, std::move(result));
                    } else {
                      open->done(cancelled("the client has been closed"));
                    }
                  });
  }

  Status late(const OpenCall& open) const {
    if (!open.last.ok()) return open.last;
    return deadline_exceeded("{}: the scheduler at {} did not answer in {} ms",
                             info_of(open.method).name, options_.scheduler.to_string(),
                             (lane_->clock().now() - open.started) / milliseconds(1));
  }

  void ended(const std::shared_ptr<OpenCall>& open, StatusOr<Message> result) {
    if (result.ok()) {
      const Status refusal = refusal_of(*result);
      if (refusal.ok()) {
        backoff_.reset();
        if (!is_member_ && open->method == Method::kSchedulerGetJob) {
          generation_ = result->meta.get_job_reply().job().generation();
        }
        return end(*open, std::move(result));
      }
      if (reason_of(refusal) == v1::REASON_NAME_TAKEN) {
        open->request.meta.mutable_register_()->set_replaces(
            result->meta.register_reply().living());
        return attempt(open);
      }
      open->last = refusal;
      result = refusal;
    }
    const Status status = result.status();
    const TimePoint now = lane_->clock().now();
    const bool may = info_of(open->method).repeatable && may_retry(status) && client_ != nullptr;
    if (!may || open->deadline.left(now) <= std::min(kLastTry, (now - open->started) / 4)) {
      if (ends_membership(status)) refused(status);
      return end(*open, may_retry(status) ? late_or(*open, status) : status);
    }
    lane_->call_at(now + std::min(backoff_.next(), open->deadline.left(now)),
                   [self = weak_from_this(), open] {
                     if (const auto core = self.lock()) {
                       core->attempt(open);
                     } else {
                       open->done(cancelled("the client has been closed"));
                     }
                   });
  }

  static Status late_or(const OpenCall& open, const Status& status) {
    return open.last.ok() ? status : open.last;
  }

  void end(OpenCall& open, StatusOr<Message> result) {
    if (open.number != 0) open_numbers_.erase(open.number);
    open.done(std::move(result));
  }

  void refused(const Status& status) {
    if (!is_member_) return;
    leave_membership();
    if (events_ != nullptr) events_->on_refused(status);
  }

  void joined(const v1::RegisterReply& reply) {
    id_ = reply.id();
    generation_ = reply.generation();
    heartbeat_ = milliseconds(std::max(1U, reply.heartbeat_ms()));
    lease_ = milliseconds(std::max(1U, reply.lease_ms()));
    is_member_ = true;
    ++membership_;
    revision_ = 0;
    beat();
    watch();
  }

  // Beats are not repeated: the next one says the same.
  void beat() {
    if (!is_member_ || client_ == nullptr) return;
    OpenCall open;
    Message request;
    fill_header(request.meta.mutable_header(), open);
    v1::SchedulerHeartbeatOption* option = request.meta.mutable_scheduler_heartbeat();
    if (events_ != nullptr) events_->on_heartbeat(option);
    option->set_seen_revision(applied_);
    client_->call(target_, Method::kSchedulerHeartbeat, std::move(request),
                  Deadline::in(lane_->clock(), lease_),
                  [self = weak_from_this(), membership = membership_](StatusOr<Message> result) {
                    const auto core = self.lock();
                    if (core == nullptr || core->membership_ != membership || !result.ok()) return;
                    const Status status = refusal_of(*result);
                    if (ends_membership(status)) core->refused(status);
                  });
    beat_timer_ = lane_->call_at(lane_->clock().now() + heartbeat_, [self = weak_from_this()] {
      if (const auto core = self.lock()) core->beat();
    });
  }

  void watch() {
    if (!is_member_ || client_ == nullptr) return;
    OpenCall open;
    Message request;
    fill_header(request.meta.mutable_header(), open);
    v1::WatchOption* option = request.meta.mutable_watch();
    option->set_revision(revision_);
    option->mutable_key_prefixes()->Assign(options_.key_prefixes.begin(),
                                           options_.key_prefixes.end());
    watch_call_ = client_->call(
        target_, Method::kSchedulerWatch, std::move(request),
        Deadline::in(lane_->clock(), options_.watch),
        [self = weak_from_this(), membership = membership_](StatusOr<Message> result) {
          const auto core = self.lock();
          if (core != nullptr && core->membership_ == membership) core->watched(std::move(result));
        });
  }

  void watched(StatusOr<Message> result) {
    if (!is_member_) return;
    Status status = result.status();
    if (result.ok()) status = refusal_of(*result);
    if (ends_membership(status)) return refused(status);
    if (!status.ok()) {
      lane_->call_at(lane_->clock().now() + backoff_.next(),
                     [self = weak_from_this(), membership = membership_] {
                       const auto core = self.lock();
                       if (core != nullptr && core->membership_ == membership) core->watch();
                     });
      return;
    }
    backoff_.reset();
    const uint64_t membership = membership_;
    const v1::WatchReply& reply = result->meta.watch_reply();
    if (reply.whole() && events_ != nullptr) events_->on_whole();
    for (const v1::Event& event : reply.events()) {
      // A callback may have left or joined again.
      if (membership != membership_ || events_ == nullptr) return;
      events_->on_event(event);
    }
    if (membership != membership_) return;
    revision_ = reply.revision();
    if (!options_.applies_later) applied(revision_);
    watch();
  }

  const SchedulerClientOptions options_;
  const std::shared_ptr<Lane> lane_;
  std::unique_ptr<Client> client_;
  const Target target_;
  SchedulerEvents* events_;
  const uint64_t session_;
  Backoff backoff_;

  uint32_t id_ = 0;
  uint64_t generation_ = 0;
  Duration heartbeat_ = seconds(1);
  Duration lease_ = seconds(5);
  bool is_member_ = false;
  uint64_t membership_ = 0;  // of join() and stop(): what belongs to an older one is ignored
  uint64_t revision_ = 0;
  uint64_t applied_ = 0;
  uint64_t numbers_ = 0;
  std::set<uint64_t> open_numbers_;
  uint64_t request_ids_ = 0;
  TimerId beat_timer_{};
  CallId watch_call_{};
};

SchedulerClient::SchedulerClient(Network& network, std::shared_ptr<Lane> lane,
                                 SchedulerClientOptions options, SchedulerEvents* events)
    : core_(std::make_shared<Core>(network, std::move(lane), std::move(options), events)) {}

SchedulerClient::~SchedulerClient() { core_->close(); }

Lane& SchedulerClient::lane() { return core_->lane(); }

void SchedulerClient::join(Deadline deadline, DoneOr<v1::RegisterReply> done) {
  core_->run([deadline, done = std::move(done)](Core& core) mutable {
    core.join(deadline, std::move(done));
  });
}

void SchedulerClient::stop() {
  core_->run([](Core& core) { core.leave_membership(); });
}

void SchedulerClient::applied(uint64_t revision) {
  core_->run([revision](Core& core) { core.applied(revision); });
}

void SchedulerClient::call(Method method, Message request, Deadline deadline,
                           DoneOr<Message> done) {
  core_->run(
      [method, request = std::move(request), deadline, done = std::move(done)](Core& core) mutable {
        core.call(method, std::move(request), deadline, std::move(done));
      });
}

namespace {

// Waits for what `start` hands its callback: by turning a driven lane, else by a future.
template <typename T, typename Start>
StatusOr<T> wait_for(Lane& lane, Start start) {
  if (lane.here()) {
    STARLING_CHECK(lane.driven(), "a blocking call on a lane's own thread would wait for itself");
    auto out = std::make_shared<StatusOr<T>>(internal_error("unanswered"));
    auto is_done = std::make_shared<bool>(false);
    start([out, is_done](StatusOr<T> result) {
      *out = std::move(result);
      *is_done = true;
    });
    lane.run_until([is_done] { return *is_done; }, Deadline::never());
    return *std::move(out);
  }
  auto promise = std::make_shared<std::promise<StatusOr<T>>>();
  std::future<StatusOr<T>> future = promise->get_future();
  start([promise](StatusOr<T> result) { promise->set_value(std::move(result)); });
  return future.get();
}

}  // namespace

StatusOr<v1::RegisterReply> SchedulerClient::join_wait(Deadline deadline) {
  return wait_for<v1::RegisterReply>(
      lane(), [&](DoneOr<v1::RegisterReply> done) { join(deadline, std::move(done)); });
}

StatusOr<Message> SchedulerClient::call_wait(Method method, Message request, Deadline deadline) {
  return wait_for<Message>(lane(), [&](DoneOr<Message> done) {
    call(method, std::move(request), deadline, std::move(done));
  });
}

StatusOr<uint64_t> SchedulerClient::barrier(const v1::BarrierOption& option, Deadline deadline) {
  Message request;
  *request.meta.mutable_barrier() = option;
  STARLING_ASSIGN_OR_RETURN(const Message reply,
                            call_wait(Method::kSchedulerBarrier, std::move(request), deadline));
  return reply.meta.barrier_reply().barrier_generation();
}

StatusOr<v1::ShardMap> SchedulerClient::get_map(Deadline deadline) {
  Message request;
  request.meta.mutable_get_map();
  STARLING_ASSIGN_OR_RETURN(const Message reply,
                            call_wait(Method::kSchedulerGetMap, std::move(request), deadline));
  return reply.meta.get_map_reply().map();
}

// The calls whose option and reply are fields of the same name.
#define STARLING_SCHEDULER_CALL(name, method, Option, Reply, option_field, reply_field)    \
  StatusOr<v1::Reply> SchedulerClient::name(const v1::Option& option, Deadline deadline) { \
    Message request;                                                                       \
    *request.meta.mutable_##option_field() = option;                                       \
    STARLING_ASSIGN_OR_RETURN(const Message reply,                                         \
                              call_wait(Method::method, std::move(request), deadline));    \
    return reply.meta.reply_field();                                                       \
  }
STARLING_SCHEDULER_CALL(add_work, kSchedulerAddWork, AddWorkOption, AddWorkReply, add_work,
                        add_work_reply)
STARLING_SCHEDULER_CALL(take_work, kSchedulerTakeWork, TakeWorkOption, TakeWorkReply, take_work,
                        take_work_reply)
STARLING_SCHEDULER_CALL(renew_work, kSchedulerRenewWork, RenewWorkOption, RenewWorkReply,
                        renew_work, renew_work_reply)
STARLING_SCHEDULER_CALL(get, kSchedulerGet, GetOption, GetReply, get, get_reply)
STARLING_SCHEDULER_CALL(set_job, kSchedulerSetJob, SetJobOption, SetJobReply, set_job,
                        set_job_reply)
STARLING_SCHEDULER_CALL(get_job, kSchedulerGetJob, GetJobOption, GetJobReply, get_job,
                        get_job_reply)
STARLING_SCHEDULER_CALL(save, kSchedulerSave, SaveJobOption, SaveJobReply, save_job, save_job_reply)
STARLING_SCHEDULER_CALL(leave, kSchedulerLeave, LeaveOption, LeaveReply, leave, leave_reply)
#undef STARLING_SCHEDULER_CALL

StatusOr<v1::KeyValue> SchedulerClient::put(const v1::PutOption& option, Deadline deadline) {
  Message request;
  *request.meta.mutable_put() = option;
  STARLING_ASSIGN_OR_RETURN(const Message reply,
                            call_wait(Method::kSchedulerPut, std::move(request), deadline));
  return reply.meta.put_reply().now();
}

Status SchedulerClient::ack_work(const v1::AckWorkOption& option, Deadline deadline) {
  Message request;
  *request.meta.mutable_ack_work() = option;
  return call_wait(Method::kSchedulerAckWork, std::move(request), deadline).status();
}

Status SchedulerClient::give_back_work(const v1::GiveBackWorkOption& option, Deadline deadline) {
  Message request;
  *request.meta.mutable_give_back_work() = option;
  return call_wait(Method::kSchedulerGiveBackWork, std::move(request), deadline).status();
}

}  // namespace starling
