// Function is a callable that owns what it captures and need not be copyable.
//
// Uses: Abseil. Threads: a value; called by one thread at a time.
#pragma once

#include <absl/functional/any_invocable.h>

namespace starling {

template <typename Signature>
using Function = absl::AnyInvocable<Signature>;

}  // namespace starling
