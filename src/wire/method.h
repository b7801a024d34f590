// Method names every RPC by a number; a constexpr table indexed by it says whose it is and what
// goes in and out.
//
// Uses: the generated messages. Threads: any; all is constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "starling/v1/tensor.pb.h"

namespace starling {

enum class Service : uint8_t { kScheduler, kPs, kHub, kPeer };
inline constexpr size_t kServices = 4;

// kVoid travels as a TensorMessage that has nothing but a status.
enum class MessageKind : uint8_t { kTensor, kVoid };

// The value is the `method` of the frame's header. A new RPC goes to the end of methods.inc, so
// numbers stay.
enum class Method : uint16_t {
#define X(service, name, option, request, reply, repeatable) k##service##name,
#include "wire/methods.inc"
#undef X
};

struct MethodInfo {
  Method method;
  std::string_view name;  // "Ps.Pull"
  Service service;
  v1::TensorMessage::OptionCase option;  // of a request
  MessageKind request;
  MessageKind reply;
  bool repeatable;        // the same request may be sent again when its answer was lost
  std::string_view path;  // "/starling.v1.Ps/Pull"
};

inline constexpr auto kMethodTable = std::to_array<MethodInfo>({
#define X(service, name, option, request, reply, repeatable) \
  {Method::k##service##name,                                 \
   #service "." #name,                                       \
   Service::k##service,                                      \
   v1::TensorMessage::k##option,                             \
   MessageKind::k##request,                                  \
   MessageKind::k##reply,                                    \
   repeatable,                                               \
   "/starling.v1." #service "/" #name},
#include "wire/methods.inc"
#undef X
});
inline constexpr size_t kMethods = kMethodTable.size();

constexpr const MethodInfo& info_of(Method method) {
  return kMethodTable[static_cast<size_t>(method)];
}

// Null for a number or path that no method has.
constexpr const MethodInfo* find_method(uint16_t number) {
  return number < kMethods ? &kMethodTable[number] : nullptr;
}
const MethodInfo* find_method(std::string_view path);

// "Scheduler", "Ps", "Hub", "Peer".
std::string_view service_name(Service service);

}  // namespace starling
