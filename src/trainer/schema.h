// What a job file says of tables and the dense network, as the parameter servers are told.
//
// Uses: base, conf, wire. Threads: free functions.
#pragma once

#include "base/status.h"
#include "conf/options.h"
#include "trainer/model.h"
#include "wire/message.h"

namespace starling {

// The fields of a job with keys, with the dims of their tables, in the order of the hubs.
// InvalidArgument: a field's table is not in the job.
StatusOr<ModelShape> model_shape(const JobOptions& job, const v1::StartSampleReply& dataset);

// InvalidArgument names the key of the job file and what is wrong.
StatusOr<v1::CreateOption> create_option(const JobOptions& job,
                                         const std::vector<ModelVariable>& variables);

}  // namespace starling
