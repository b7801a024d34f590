#include "table/initializer.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace starling {

struct InitializerKinds {
  using Options = InitializerOptions;

  static void constant(const Initializer& self, uint64_t, uint64_t, Key, std::span<float> out) {
    std::fill(out.begin(), out.end(), static_cast<float>(self.a_));
  }

  static void uniform(const Initializer& self, uint64_t seed, uint64_t stream, Key key,
                      std::span<float> out) {
    Rng rng(seed, stream, value(key));
    const auto low = static_cast<float>(self.a_);
    const auto width = static_cast<float>(self.b_ - self.a_);
    for (float& x : out) x = low + width * rng.uniform_float();
  }

  static void normal(const Initializer& self, uint64_t seed, uint64_t stream, Key key,
                     std::span<float> out) {
    Rng rng(seed, stream, value(key));
    for (float& x : out) x = static_cast<float>(self.a_ + self.b_ * rng.normal());
  }

  static void truncated(const Initializer& self, uint64_t seed, uint64_t stream, Key key,
                        std::span<float> out) {
    Rng rng(seed, stream, value(key));
    for (float& x : out) {
      double draw = rng.normal();
      while (std::abs(draw) > 2) draw = rng.normal();
      x = static_cast<float>(self.a_ + self.b_ * draw);
    }
  }

  static Initializer make(Initializer::Fill fill, double a, double b) {
    Initializer made;
    made.fill_ = fill;
    made.a_ = a;
    made.b_ = b;
    return made;
  }

  static Initializer zero_of(const Options&, size_t) { return make(constant, 0, 0); }
  static Initializer constant_of(const Options& o, size_t) { return make(constant, o.value, 0); }
  static Initializer uniform_of(const Options& o, size_t) { return make(uniform, o.low, o.high); }
  static Initializer normal_of(const Options& o, size_t) { return make(normal, o.mean, o.std); }
  static Initializer truncated_of(const Options& o, size_t) {
    return make(truncated, o.mean, o.std);
  }
  static Initializer xavier_of(const Options& o, size_t dim) {
    const double out = o.fan_out > 0 ? o.fan_out : static_cast<double>(dim);
    const double reach = std::sqrt(6 / (o.fan_in + out));
    return make(uniform, -reach, reach);
  }
};

namespace {

// The list. A new initializer is a function and a line here.
constexpr struct {
  std::string_view kind;
  Initializer (*make)(const InitializerOptions& options, size_t dim);
} kKinds[] = {{"zero", InitializerKinds::zero_of},
              {"constant", InitializerKinds::constant_of},
              {"uniform", InitializerKinds::uniform_of},
              {"normal", InitializerKinds::normal_of},
              {"truncated_normal", InitializerKinds::truncated_of},
              {"xavier", InitializerKinds::xavier_of}};

}  // namespace

StatusOr<Initializer> Initializer::make(const InitializerOptions& options, size_t dim,
                                        std::string_view what) {
  const double finite[] = {options.value, options.low, options.high, options.mean};
  for (const double x : finite) {
    if (!(std::abs(x) <= 1e30)) {
      return invalid_argument("{}: {} is no usable value, it must lie in [-1e30, 1e30]", what, x);
    }
  }
  if (!(options.std >= 0 && options.std <= 1e30)) {
    return invalid_argument("{}.std is {}, it must lie in [0, 1e30]", what, options.std);
  }
  if (options.low > options.high) {
    return invalid_argument("{}.low is {}, above high {}", what, options.low, options.high);
  }
  if (!(options.fan_in >= 1 && options.fan_in <= 1e30 && options.fan_out >= 0 &&
        options.fan_out <= 1e30)) {
    return invalid_argument("{}: fan_in {} must be >= 1 and fan_out {} >= 0", what, options.fan_in,
                            options.fan_out);
  }
  for (const auto& entry : kKinds) {
    if (entry.kind == options.kind) return entry.make(options, dim);
  }
  return invalid_argument("{}: no initializer is called '{}'", what, options.kind);
}

void Initializer::fill(uint64_t seed, uint64_t stream, Key key, std::span<float> out) const {
  fill_(*this, seed, stream, key, out);
}

}  // namespace starling
