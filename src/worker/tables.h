// The rules of a job's tables and variables: from its file to what Ps.Create takes.
//
// Uses: base, conf, wire, table, ps/client.h. Threads: free functions.
#pragma once

#include "base/status.h"
#include "conf/options.h"
#include "wire/message.h"

namespace starling {

// InvalidArgument names file, line and key: a rule or value that is not known, with the nearest
// that is, or a value out of its range.
StatusOr<v1::TableOptions> table_of(const TableSection& section, uint64_t seed);
// Of all dense variables; without a name where the job does not say. Codes as table_of().
StatusOr<v1::Rule> dense_optimizer_of(const JobOptions& job);
// Whether both can be had for everything in the job. Codes as table_of().
Status check_tables(const JobOptions& job);

}  // namespace starling
