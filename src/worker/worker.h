// Worker is one rank of a job without its network: it gives the next batch with its embeddings,
// takes their gradients, and keeps everything in between: leases, reading ahead, clocks, repeats.
//
// While the caller computes on one batch, the next ones are read and looked up and the pushes of
// those before are on their way; how many is `ahead`, and never more than the staleness allows.
// Uses: base, wire, net, client.h of ps and hub. Threads: one caller, which waits here; answers
// come on the clients' lanes; cancel() from any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/client.h"
#include "ps/client.h"
#include "worker/layout.h"

namespace starling {

struct WorkerOptions {
  v1::StartSampleOption dataset;  // as every hub was told; one that comes back is told again
  uint32_t rank = 0;
  uint64_t start_clock = 0;
  std::optional<uint32_t> staleness;  // none: without bound
  bool trains = true;                 // false: batches are looked up and never pushed
  // Batches that are read and looked up before they are asked for, and pushes that may be on their
  // way. At staleness n at most n lookups run ahead; reading does in any case.
  uint32_t ahead = 2;
  Duration attempt = seconds(60);  // of one lookup or push, its repeats included
};

// A batch in the hands of a caller, from next() until push(), done() or drop().
struct StepBatch {
  v1::BatchId id;
  uint64_t step = 0;  // in the order of the job, for schedules
  uint64_t clock = 0;
  uint32_t rank = 0;       // as whom it is trained
  uint64_t staleness = 0;  // clocks by which the slowest rank was behind when it was looked up
  StepLayout layout;
  std::optional<Tensor> dense;                   // float[samples, dense]
  std::optional<Tensor> labels;                  // float[samples, labels]
  std::optional<Tensor> weights, shows, clicks;  // float[samples]
  std::optional<Tensor> groups;                  // uint64[samples]
  std::vector<std::string> ids;                  // (samples), of datasets with ids
};

// The gradient of a dense variable, all of it.
struct WorkerVariable {
  const v1::DenseOptions* options = nullptr;
  Tensor gradient;  // float[elements]
};

struct WorkerCounts {
  uint64_t batches = 0;        // pushed and acknowledged, or done
  uint64_t samples = 0;        // of these
  uint64_t repeated = 0;       // had been applied before, by another trainer
  uint64_t refused = 0;        // for their content
  uint64_t given_back = 0;     // could not be trained by the map they were fed by
  uint64_t ticks_empty = 0;    // steps without data
  uint64_t staleness_max = 0;  // of any lookup
  Duration waited{};           // in next() and push()
};

class Worker {
 public:
  // Both outlive it; the job's tables are known to `ps`.
  Worker(HubClient& hubs, Communicator& ps, WorkerOptions options);
  // Batches that are held are given back by the end of their leases.
  ~Worker();

  // The next batch; null: the data has ended (every batch that this worker had is reported).
  // DeadlineExceeded: none came. Unavailable: a ps died, or there is no hub. Others: as hub and ps
  // say; the worker is of no more use.
  StatusOr<std::unique_ptr<StepBatch>> next(Deadline deadline);

  // Sends the gradients of a batch on their way and returns when no more than `ahead` are. `dense`:
  // gradients of variables, which go with them.
  Status push(std::unique_ptr<StepBatch> batch, const StepLayout::Gradients& gradients,
              const std::vector<WorkerVariable>& dense, Deadline deadline);
  // The batch is done without a push: of evaluations.
  void done(std::unique_ptr<StepBatch> batch);
  // The batch is never dealt again: its loss or gradient is not a number. Its tick is sent.
  void refuse(std::unique_ptr<StepBatch> batch);

  // Waits until every push is acknowledged and every batch reported.
  Status flush(Deadline deadline);
  // Steps without data, for a rank that leaves at an announced clock.
  Status tick_until(uint64_t clock, Deadline deadline);

  // Every wait of the caller, now and later, ends with Cancelled. From any thread.
  void cancel();

  uint64_t clock() const;                    // of the next step
  v1::DatasetCounts dataset_counts() const;  // of all hubs, as each told last
  WorkerCounts counts() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace starling
