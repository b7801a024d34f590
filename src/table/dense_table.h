// A dense table is a named tensor, or one shard's range of its flat elements, with an optimizer of
// its own.
//
// Uses: base. Threads: shard-local. One shard thread owns a table; nobody else touches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "table/kernels.h"
#include "table/options.h"

namespace starling {

enum class Reduction { kSum, kMean };

class DenseTable {
 public:
  // InvalidArgument when an option is out of range; the message names it. Clipping by norm is
  // refused for a part of a tensor: only who sees the whole gradient can do it.
  static StatusOr<std::unique_ptr<DenseTable>> make(const DenseOptions& options);

  const DenseOptions& options() const { return options_; }
  uint64_t begin() const { return begin_; }
  size_t size() const { return weights_.size(); }
  std::span<const float> weights() const { return weights_; }
  std::span<const float> state() const { return state_; }
  uint64_t operation() const { return operation_; }
  uint64_t nonfinite() const {
    return nonfinite_;
  }  // pushes left out because of a NaN or infinite gradient
  size_t memory_bytes() const;

  // -- Operations. InvalidArgument: spans of another length than the range, or a refused gradient.
  // --
  Status set(std::span<const float> weights);
  Status restore(std::span<const float> weights, std::span<const float> state);
  // One optimizer step.
  Status push(std::span<const float> gradient, uint64_t step);

  // -- The reservoir of a synchronous step --
  // Keeps a rank's gradient. AlreadyExists: that rank's is there. ResourceExhausted: ranks_max
  // wait.
  Status stage(Rank rank, std::span<const float> gradient);
  size_t staged() const { return staged_.size(); }
  // One step on the sum or mean of what is there, added in rank order. FailedPrecondition: nothing
  // is.
  Status apply_staged(Reduction reduction, uint64_t step);
  void drop_staged() { staged_.clear(); }

 private:
  explicit DenseTable(const DenseOptions& options);
  Status check_gradient(std::span<const float> gradient) const;
  bool is_finite(std::span<const float> gradient) const;
  void step(std::span<const float> gradient, uint64_t step);

  const DenseOptions options_;
  const Kernels& kernels_;
  RuleSettings rule_;
  uint64_t begin_ = 0;
  std::vector<float> weights_;
  std::vector<float> state_;
  std::vector<float> scratch_;  // 2 x size: a clipped gradient, one with decay
  std::map<Rank, std::vector<float>> staged_;
  uint64_t operation_ = 0;
  uint64_t nonfinite_ = 0;
};

}  // namespace starling
