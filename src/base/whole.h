// Whole numbers that come as a double, as the values of a rule do.
//
// Uses: std. Threads: any.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <string_view>

#include "base/status.h"

namespace starling {

// InvalidArgument names `what`, the value and the range when it is no T: a fraction, NaN, infinite
// or out of T's range, where a cast would be undefined.
template <std::unsigned_integral T>
StatusOr<T> whole_of(double value, std::string_view what) {
  // The largest T may not be a double; one more, a power of two, is.
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (!(value >= 0 && value < end) || value != std::trunc(value)) {
    return invalid_argument("{} is {}, it must be a whole number in [0, {}]", what, value,
                            std::numeric_limits<T>::max());
  }
  return static_cast<T>(value);
}

}  // namespace starling
