// Variables are the dense values of one trainer: where its networks read them and where the
// gradients go.
//
// Kept by the ps, values are pulled every few steps and gradients travel with the push of a batch.
// Kept here, a step of the optimizer is made at once, and the ps gets the values and what the
// optimizer keeps (variables NAME.state) when told: at cuts and at the end. Workers have copies, or
// share one memory without locks (Hogwild): a reader may see values of two steps. Uses: base, conf,
// wire, table, ps/client.h. Threads: a worker calls with its own number; store() and snapshot()
// from any.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "conf/options.h"
#include "ps/client.h"
#include "table/dense_table.h"
#include "wire/message.h"

namespace starling {

class Variables {
 public:
  // `schema` outlives it. InvalidArgument: what synchronous jobs or several trainers cannot have.
  static StatusOr<std::unique_ptr<Variables>> make(const JobOptions& job, Communicator& ps,
                                                   const v1::CreateOption& schema, size_t workers);

  // What a worker's network is bound to.
  std::vector<std::span<float>> memory(size_t worker);
  // Before a worker's step: takes the newest values where they are due.
  Status refresh(size_t worker, Deadline deadline);
  // A step's gradients. True: they were applied here; false: they go with the push.
  StatusOr<bool> apply(std::span<const std::span<const float>> gradients, uint64_t step);
  // The values as they are now, into other memory.
  Status snapshot(const std::vector<std::span<float>>& out, Deadline deadline);
  // Values and states that are kept here go to the ps: before a cut, and at the end.
  Status store(Deadline deadline);

 private:
  Variables(const JobOptions& job, Communicator& ps, const v1::CreateOption& schema);
  struct Copy {
    std::vector<DenseCopy> pulled;
    std::vector<std::vector<float>> values;
    uint64_t steps = 0;
  };
  // Of the first so many variables of the schema.
  Copy empty_copy(int variables) const;
  Status pull(Copy& copy, Deadline deadline) const;
  Status take_initial(Deadline deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  const v1::CreateOption& schema_;
  Communicator& ps_;
  const uint64_t pull_every_;
  const bool is_kept_here_;
  const bool is_shared_;
  const int variables_;  // of the network; their states stand behind them in the schema

  // Private: one per worker, touched by it alone. Shared: the first is everybody's.
  std::vector<std::unique_ptr<Copy>> copies_;
  Mutex pull_mutex_;  // of the shared copy

  // Kept here. Whoever steps holds the mutex; shared readers do not.
  Mutex mutex_;
  bool has_initial_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<DenseTable>> tables_;
};

}  // namespace starling
