// STARLING_CHECK stops the process when our own code is wrong. Never for anything a peer, file or
// user sent.
//
// Uses: nothing. Threads: any.
#pragma once

namespace starling {

// Prints the place and the reason on stderr, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* why);

}  // namespace starling

// On in release builds too: an invariant that is only checked while developing is a hope.
#define STARLING_CHECK(condition, why)                               \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::starling::check_failed(__FILE__, __LINE__, #condition, why); \
  } while (false)
