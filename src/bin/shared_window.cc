#include "bin/shared_window.h"

#include <fmt/format.h>

namespace starling {
namespace {

constexpr const char* kPrefix = "metrics/window/";

}  // namespace

Status put_window(SchedulerClient& scheduler, uint32_t node, const TrainWindow& window,
                  Deadline deadline) {
  v1::PutOption option;
  option.set_key(fmt::format("{}{}", kPrefix, node));
  option.set_value(window.pack());
  option.set_ephemeral(true);
  return scheduler.put(option, deadline).status();
}

StatusOr<TrainWindow> merged_window(SchedulerClient& scheduler, Deadline deadline) {
  v1::GetOption option;
  option.set_prefix(kPrefix);
  STARLING_ASSIGN_OR_RETURN(const v1::GetReply found, scheduler.get(option, deadline));
  TrainWindow out;
  for (const v1::KeyValue& one : found.values()) {
    if (!out.merge(one.value())) {
      return internal_error("the scheduler's key {} is no window of a trainer", one.key());
    }
  }
  return out;
}

}  // namespace starling
