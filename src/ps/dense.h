// DenseVariable is one named dense tensor as far as its parts lie on this shard.
//
// Uses: base, wire, table. Threads: shard-local.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "ps/schema.h"
#include "table/dense_table.h"
#include "wire/message.h"

namespace starling {

class DenseVariable {
 public:
  // Makes the parts whose bucket `owns` says is ours. InvalidArgument: options out of range.
  static StatusOr<std::unique_ptr<DenseVariable>> make(const v1::DenseOptions& proto, uint64_t seed,
                                                       const std::function<bool(uint32_t)>& owns);

  // Before Freeze: makes the parts that are ours by a new map, and drops those that are not.
  void own(const std::function<bool(uint32_t)>& owns);

  const v1::DenseOptions& options() const { return proto_; }
  const DenseSplit& split() const { return split_; }
  uint64_t version() const { return version_; }
  void set_version(uint64_t version) { version_ = version; }
  uint64_t updates() const { return updates_; }  // the step of asynchronous schedules
  void set_updates(uint64_t updates) { updates_ = updates; }
  size_t memory_bytes() const;
  std::map<uint32_t, std::unique_ptr<DenseTable>>& parts() { return parts_; }

  // The elements of a part of a message lie in parts that are here, whole parts for gradients.
  // InvalidArgument: not so, or another number of values. DataLoss: a NaN or infinity where that is
  // refused.
  Status check_gradient(const Message& request, const v1::DenseGradPart& part) const;
  Status check_values(const Message& request, const v1::DenseValuesPart& part) const;

  // Operations, of messages that passed the check.
  // One step with all parts that the message has of this variable.
  void apply(const Message& request);
  void set(const Message& request, const v1::DenseValuesPart& part);
  // One step on the mean (or sum) over `ranks` of the gradients that the messages have of this
  // variable, added in their order. `clock` is the step for schedules.
  void apply_reduced(std::span<const Message* const> messages, size_t ranks, uint64_t clock);
  // All parts start anew.
  void clear();

  // InvalidArgument: elements that are not here. Unimplemented: anything but weights.
  Status check_pull(const v1::DensePullPart& part) const;
  // Appends the values asked for, which check_pull() has passed, to the reply.
  void pull(const v1::DensePullPart& part, Message& reply) const;
  void describe(v1::TableStat& out) const;

 private:
  explicit DenseVariable(const v1::DenseOptions& proto, uint64_t seed);
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  // All elements that the range means; without one all of the variable.
  StatusOr<Range> range_of(const v1::ElementRange* range) const;
  Status check_owned(const Range& range) const;
  StatusOr<std::unique_ptr<DenseTable>> make_part(uint32_t part) const;

  const v1::DenseOptions proto_;
  const uint64_t seed_;
  const DenseSplit split_;
  std::map<uint32_t, std::unique_ptr<DenseTable>> parts_;
  uint64_t version_ = 1;  // of all that is here; grows with each change
  uint64_t updates_ = 0;
};

}  // namespace starling
