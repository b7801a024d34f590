#include "ps/desk.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/answer_by.h"

namespace starling {
namespace {

constexpr Duration kRest = milliseconds(1);  // without a request: the lane has time
constexpr Duration kProfileTime = seconds(60);
constexpr size_t kProfileBytes = size_t{64} << 20;

}  // namespace

PsDesk::PsDesk(std::shared_ptr<Lane> lane, std::shared_ptr<PsShared> shared)
    : lane_(std::move(lane)), shared_(std::move(shared)) {}

void PsDesk::open(const ShardOptions& options, const KeeperMaker& make_keeper) {
  number_ = options.lane;
  shard_ = std::make_unique<Shard>(options, *this);
  if (make_keeper == nullptr) return;
  KeeperContext context;
  context.number = number_;
  context.lane = lane_;
  context.flush = [self = weak_from_this()] {
    if (const auto desk = self.lock()) desk->flush();
  };
  context.report = shared_->report_cut;
  keeper_ = make_keeper(std::move(context));
}

void PsDesk::handle(Request request, Reply reply) {
  if (!closed_.ok()) return reply.send(status_reply(closed_));
  if (shard_ == nullptr) {
    return reply.send(status_reply(unavailable("this ps is not registered yet; try again")));
  }
  const TimePoint came = now();
  const Token token{++tokens_};
  const Method method = request.method;
  open_.emplace(token, Open{.reply = std::move(reply),
                            .method = method,
                            .bytes_in = message_bytes(request.message),
                            .came = came});
  shard_->handle(method, std::move(request.message), token,
                 Deadline(answer_by(request.deadline, came)), came);
  if (shared_->profiler.running(came)) {
    const TimePoint handled = now();
    shared_->profiler.record(number_, "handle", info_of(method).name, came, handled);
    if (auto it = open_.find(token); it != open_.end()) it->second.handled = handled;
  }
  flush();
  rest_later();
}

void PsDesk::rest_later() {
  if (is_resting_) return;
  is_resting_ = true;
  lane_->call_at(now() + kRest, [self = weak_from_this(), seen = tokens_] {
    const auto desk = self.lock();
    if (desk == nullptr || !desk->closed_.ok()) return;
    desk->is_resting_ = false;
    // Page by page, so that a request waits for one of them at most.
    if (desk->tokens_ != seen || desk->shard_->prepare()) desk->rest_later();
  });
}

void PsDesk::flush() {
  if (shard_ == nullptr || !closed_.ok()) return;
  for (Shard::Output& output : shard_->take_outputs()) {
    const auto it = open_.find(output.token);
    if (it == open_.end()) continue;
    Open open = std::move(it->second);
    open_.erase(it);
    send(open, std::move(output.reply));
  }
  arm();
  if (keeper_ != nullptr && !advancing_) advance();
}

void PsDesk::send(Open& open, Message reply) {
  const TimePoint begin = now();
  const bool is_error = reply.meta.has_status() && reply.meta.status().code() != 0;
  shared_->rpcs.record(open.method, is_error, open.bytes_in, message_bytes(reply),
                       begin - open.came);
  open.reply.send(std::move(reply));
  if (!shared_->profiler.running(begin)) return;
  if (open.handled != TimePoint() && begin - open.handled > microseconds(100)) {
    shared_->profiler.record(number_, "wait", info_of(open.method).name, open.handled, begin);
  }
  shared_->profiler.record(number_, "send", info_of(open.method).name, begin, now());
}

void PsDesk::arm() {
  const TimePoint wake = shard_->next_wake();
  if (wake == armed_) return;
  lane_->cancel(timer_);
  armed_ = wake;
  if (wake == TimePoint::max()) return;
  timer_ = lane_->call_at(wake, [self = weak_from_this()] {
    const auto desk = self.lock();
    if (desk == nullptr || !desk->closed_.ok()) return;
    desk->armed_ = TimePoint::max();
    desk->shard_->tick(desk->now());
    desk->flush();
  });
}

// Between requests, so that none waits for longer than a slice.
void PsDesk::advance() {
  advancing_ = false;
  if (!closed_.ok() || !keeper_->advance(*shard_)) return;
  advancing_ = true;
  lane_->post([self = weak_from_this()] {
    const auto desk = self.lock();
    if (desk == nullptr) return;
    desk->advance();
    desk->flush();
  });
}

// What the whole state does not name is no longer so: ranks have left, a cut has ended.
void PsDesk::take_whole(const std::vector<v1::Event>& events) {
  std::set<uint32_t> told;
  uint64_t newest_cut = 0;
  uint64_t running = 0;
  for (const v1::Event& event : events) {
    if (event.has_rank()) told.insert(event.rank().rank());
    if (event.has_job()) newest_cut = event.job().newest_cut();
    if (event.has_cut()) running = event.cut().cut_id();
  }
  std::vector<Rank> gone;
  for (const auto& [rank, state] : shard_->clocks().all()) {
    if (!told.contains(value(rank))) gone.push_back(rank);
  }
  for (const Rank rank : gone) {
    v1::Event leave;
    leave.mutable_rank()->set_rank(value(rank));
    leave.mutable_rank()->set_leaves(true);
    shard_->on_event(leave);
  }
  if (keeper_ != nullptr) keeper_->on_whole(*shard_, newest_cut, running);
}

void PsDesk::take_events(const std::vector<v1::Event>& events, bool whole, uint64_t revision) {
  if (shard_ == nullptr || !closed_.ok()) return;
  if (whole) take_whole(events);
  for (const v1::Event& event : events) {
    shard_->on_event(event);
    if (event.has_cut() && keeper_ != nullptr) keeper_->on_cut(*shard_, event.cut());
  }
  revision_ = std::max(revision_, revision);
  flush();
  report();
}

void PsDesk::report() {
  if (shard_ == nullptr || !closed_.ok()) return;
  LaneReport report{.lane = number_, .revision = revision_};
  for (const auto& [rank, state] : shard_->clocks().all()) {
    v1::RankClock& clock = report.clocks.emplace_back();
    clock.set_rank(value(rank));
    clock.set_clock(state.clock);
  }
  // The scheduler frees the number of a rank when every shard has told the clock of its leave.
  for (const auto& [rank, last] : shard_->clocks().left()) {
    v1::RankClock& clock = report.clocks.emplace_back();
    clock.set_rank(value(rank));
    clock.set_clock(last);
  }
  for (const auto& [rank, batch] : shard_->rank_batches()) report.batches.push_back(batch);
  report.memory_bytes = shard_->memory_bytes();
  report.frozen = shard_->frozen();
  shared_->report(std::move(report));
}

void PsDesk::close(const Status& why) {
  if (!closed_.ok()) return;
  flush();
  closed_ = why;
  lane_->cancel(timer_);
  for (auto& [token, open] : std::exchange(open_, {})) open.reply.send(status_reply(why));
}

void PsDesk::save(Shard& shard, ShardCall& call) {
  if (keeper_ != nullptr) return keeper_->save(shard, call);
  shard.refuse(call.token, unimplemented("this ps was started without checkpoints"));
}

void PsDesk::restore(Shard& shard, ShardCall& call) {
  if (keeper_ != nullptr) return keeper_->restore(shard, call);
  shard.refuse(call.token, unimplemented("this ps was started without checkpoints"));
}

void PsDesk::stop(Shard& shard, ShardCall& call) {
  shared_->stop(call.request.meta.stop());
  shard.answer(call.token, Message());
}

void PsDesk::profile(Shard& shard, ShardCall& call) {
  const v1::ProfileOption& option = call.request.meta.profile();
  if (option.action() == v1::PROFILE_ACTION_START) {
    const Duration time =
        option.seconds_max() == 0 ? kProfileTime : Duration(seconds(option.seconds_max()));
    shared_->profiler.start(call.now, time,
                            option.bytes_max() == 0 ? kProfileBytes : option.bytes_max());
    Message reply;
    reply.meta.mutable_profile_reply()->set_running(true);
    return shard.answer(call.token, std::move(reply));
  }
  if (option.action() != v1::PROFILE_ACTION_STOP) {
    return shard.refuse(call.token, invalid_argument("profile: action {} is neither start nor stop",
                                                     static_cast<int>(option.action())));
  }
  shared_->profiler.stop();
  shared_->finish_profile(
      [self = weak_from_this(), lane = lane_, token = call.token](v1::ProfileReply trace) {
        lane->post([self, token, trace = std::move(trace)] {
          const auto desk = self.lock();
          if (desk == nullptr || desk->shard_ == nullptr) return;
          Message reply;
          *reply.meta.mutable_profile_reply() = trace;
          desk->shard_->answer(token, std::move(reply));
          desk->flush();
        });
      });
}

}  // namespace starling
