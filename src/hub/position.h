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

// What StartSampleOption.position says of its dataset; nothing: an empty one.
// InvalidArgument: bytes that no hub wrote.
StatusOr<hubs::DatasetPosition> position_in(const v1::StartSampleOption& option);

// A number for the work items and all options that decide which samples a batch holds.
uint64_t content_of(const v1::StartSampleOption& option, const std::vector<v1::WorkItem>& items);

}  // namespace starling
