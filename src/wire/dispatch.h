// dispatch() calls a handler's overload for a method: one jump through a constexpr table, every
// entry of it checked by the compiler. A handler of service S has `on(MethodTag<M>, args...)` for
// every method M of S; one that lacks an overload does not compile.
//
// Uses: base, the generated messages. Threads: runs on the caller's.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "wire/method.h"

namespace starling {

template <Method M>
struct MethodTag {
  static constexpr const MethodInfo& info() { return info_of(M); }
};

// True when a process that serves S answers this method.
template <Service S>
constexpr bool serves(Method method) {
  return static_cast<size_t>(method) < kMethods && info_of(method).service == S;
}

namespace internal {

template <typename H, Method M, typename... Args>
concept Handles = requires(H& handler, Args&&... args) {
  handler.on(MethodTag<M>{}, std::forward<Args>(args)...);
};

template <Service S, typename H, size_t I, typename... Args>
constexpr bool handles_at() {
  constexpr auto kMethod = static_cast<Method>(I);
  if constexpr (serves<S>(kMethod)) {
    return Handles<H, kMethod, Args...>;
  } else {
    return true;
  }
}

template <Service S, typename H, typename... Args>
constexpr bool handles_all() {
  return []<size_t... I>(std::index_sequence<I...>) {
    return (handles_at<S, H, I, Args...>() && ...);
  }
  (std::make_index_sequence<kMethods>{});
}

template <typename H, typename... Args>
using Entry = void (*)(H&, Args&&...);

template <Service S, typename H, size_t I, typename... Args>
constexpr Entry<H, Args...> entry_at() {
  constexpr auto kMethod = static_cast<Method>(I);
  if constexpr (serves<S>(kMethod)) {
    // The compiler's error shows H and I, the number of the method that has no handler.
    static_assert(Handles<H, kMethod, Args...>,
                  "the handler has no on(MethodTag<M>, args...) for this method of its service");
    return [](H& handler, Args&&... args) {
      handler.on(MethodTag<kMethod>{}, std::forward<Args>(args)...);
    };
  } else {
    return nullptr;
  }
}

template <Service S, typename H, typename... Args>
inline constexpr auto kEntries = []<size_t... I>(std::index_sequence<I...>) {
  return std::array<Entry<H, Args...>, kMethods>{entry_at<S, H, I, Args...>()...};
}
(std::make_index_sequence<kMethods>{});

}  // namespace internal

// H can serve S with these arguments: it has an overload for every method of S.
template <typename H, Service S, typename... Args>
concept Serves = internal::handles_all<S, H, Args...>();

// Calls handler.on(MethodTag<method>, args...). The method must be one that S serves: ask
// serves<S>() first and answer the others with wrong_service().
template <Service S, typename H, typename... Args>
void dispatch(H& handler, Method method, Args&&... args) {
  STARLING_CHECK(serves<S>(method), "dispatch of a method that the service does not have");
  internal::kEntries<S, H, Args...>[static_cast<size_t>(method)](handler,
                                                                 std::forward<Args>(args)...);
}

// Unimplemented: "method Ps.Pull called on a Hub" for a known number, "unknown method 999 called on
// a Hub" otherwise.
Status wrong_service(uint16_t method, Service called_on);

// InvalidArgument: the request carries the option of another RPC; the message names the method and
// both options. One without an option is as one whose fields are all missing.
Status check_option(Method method, const v1::TensorMessage& request);

}  // namespace starling
