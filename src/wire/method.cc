#include "wire/method.h"

namespace starling {

const MethodInfo* find_method(std::string_view path) {
  // Linear over some forty entries: transports look a path up once, when they register it.
  for (const MethodInfo& info : kMethodTable) {
    if (info.path == path) return &info;
  }
  return nullptr;
}

std::string_view service_name(Service service) {
  static constexpr std::array<std::string_view, kServices> kNames = {"Scheduler", "Ps", "Hub",
                                                                     "Peer"};
  const auto index = static_cast<size_t>(service);
  return index < kNames.size() ? kNames[index] : "unknown";
}

}  // namespace starling
