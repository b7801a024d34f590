#include "ps/profiler.h"

#include <fmt/format.h>

#include <iterator>

namespace starling {

Profiler::Profiler(uint32_t lanes) {
  for (uint32_t i = 0; i < lanes; ++i) lanes_.push_back(std::make_unique<LaneEvents>());
}

void Profiler::start(TimePoint now, Duration time_max, size_t bytes_max) {
  if (running(now)) return;
  for (const auto& lane : lanes_) {
    MutexLock lock(lane->mutex);
    lane->events.clear();
  }
  events_max_ = std::max<size_t>(1, bytes_max / sizeof(Event) / lanes_.size());
  until_ = (now + time_max).time_since_epoch().count();
}

void Profiler::record(LaneId lane, std::string_view stage, std::string_view what, TimePoint begin,
                      TimePoint end) {
  LaneEvents& mine = *lanes_[value(lane)];
  MutexLock lock(mine.mutex);
  if (mine.events.size() >= events_max_) mine.events.pop_front();
  mine.events.push_back({stage, what, begin, end - begin});
}

void Profiler::stop() { until_ = 0; }

std::string Profiler::trace() const {
  std::string out = R"({"displayTimeUnit":"ns","traceEvents":[)";
  std::string_view comma;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    fmt::format_to(
        std::back_inserter(out),
        R"({}{{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":"shard {}"}}}})",
        comma, i, i);
    comma = ",\n";
    MutexLock lock(lanes_[i]->mutex);
    for (const Event& event : lanes_[i]->events) {
      const auto begin_ns = event.begin.time_since_epoch().count();
      fmt::format_to(
          std::back_inserter(out),
          R"({}{{"ph":"X","pid":1,"tid":{},"name":"{}","cat":"{}","ts":{:.3f},"dur":{:.3f}}})",
          comma, i, event.what, event.stage, static_cast<double>(begin_ns) / 1e3,
          static_cast<double>(event.took.count()) / 1e3);
    }
  }
  return out + "]}\n";
}

}  // namespace starling
