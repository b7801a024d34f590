// The options of a hub's datasets: from a job's file to StartSampleOption, and from that to what
// the parsers take. The one place where either is done.
//
// Uses: base, conf, wire, data. Threads: free functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "conf/options.h"
#include "data/batch.h"
#include "data/options.h"
#include "wire/message.h"

namespace starling {

// Batches of all datasets of a job share one space of ids, so those of evaluations have epochs of
// their own: the n-th evaluation reads epoch kEvalEpoch + n.
inline constexpr uint32_t kEvalEpoch = 1U << 30;

// What the trainers of the job ask hubs to read. InvalidArgument names the key of the job file and
// what is wrong.
StatusOr<v1::StartSampleOption> train_dataset(const JobOptions& job);
// The same for the files of data.test; `number`: the n-th evaluation of the job, from 0.
StatusOr<v1::StartSampleOption> test_dataset(const JobOptions& job, uint32_t number);

// Whether the rules of all fields are known. Codes as train_dataset().
Status check_fields(const JobOptions& job);

// The tables of a job as far as batches need them.
std::vector<BatchTable> batch_tables(const JobOptions& job);

// InvalidArgument: an enum that is not one.
StatusOr<FormatOptions> format_options(const v1::StartSampleOption& option);
StatusOr<std::vector<FieldOptions>> field_options(const v1::StartSampleOption& option);

}  // namespace starling
