// kSanitized says whether the address or the thread sanitizer watches this program, as g++ tells;
// tests whose size it only slows down are smaller then.
//
// Uses: nothing. Threads: any.
#pragma once

namespace starling {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace starling
