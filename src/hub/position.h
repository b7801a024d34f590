// Where a dataset stands at a cut, and how a job goes on from there: watermarks of the work queues,
// and what hubs say of themselves.
//
// Uses: base, wire. Threads: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/position.pb.h"
#include "wire/message.h"

namespace starling {

// Makes a dataset go on from a cut: `queues` and `positions` as the cut's manifest has them,
// `clock` at which the ranks go on. A cut that does not know the dataset lets it begin there.
//
// DataLoss: a position that no hub wrote.
Status resume_at(const std::vector<v1::WorkQueueInfo>& queues,
                 const std::vector<std::string>& positions, uint64_t clock,
                 v1::StartSampleOption& option);

// What a work queue says of an item, as a cut keeps it, and the way back into a queue. A finished
// item's samples are in no sum of a resumed job, so its mark leaves them out. Other marks that
// count no samples are those of a client that counts none: their batches are taken for full and
// trained, as all but the last of an item are.
v1::Watermark mark_of(uint32_t epoch, const v1::WorkProgress& progress);
v1::WorkProgress progress_of(const v1::Watermark& mark, uint32_t batch_size);

// Samples of a batch.
uint32_t batch_size_of(const v1::StartSampleOption& option);

// What StartSampleOption.position says of its dataset; nothing: an empty one.
// InvalidArgument: bytes that no hub wrote.
StatusOr<hubs::DatasetPosition> position_in(const v1::StartSampleOption& option);

// A number for the work items and all options that decide which samples a batch holds.
uint64_t content_of(const v1::StartSampleOption& option, const std::vector<v1::WorkItem>& items);

}  // namespace starling
