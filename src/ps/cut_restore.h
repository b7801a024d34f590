// Reads what one shard owns out of a cut, whatever number of shards wrote it, bit by bit.
//
// Uses: base, store, table, wire. Threads: any; it builds new tables and touches no shard, so that
// a shard goes on answering until Shard::adopt() and a failed restore changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "ps/checkpoint.pb.h"
#include "ps/dense.h"
#include "ps/manifest.h"
#include "ps/schema.h"
#include "store/file_system.h"
#include "table/table.h"
#include "wire/message.h"

namespace starling {

// What a shard is when it asks.
struct RestoreTarget {
  ShardSchema schema;
  std::vector<uint8_t> owns;  // (kBuckets)
  // Asked between records; anything but OK ends the restore with it. None: nobody asks.
  std::function<Status()> interrupted;
};

struct RestoredShard {
  uint64_t cut_id = 0;
  std::map<std::string, std::unique_ptr<Table>> tables;
  std::map<std::string, std::unique_ptr<DenseVariable>> variables;
  std::optional<ckpt::ShardState> state;  // of the whole job; none when only some names were read
  uint64_t rows = 0;
  uint64_t bytes = 0;                 // read
  std::vector<std::string> left_out;  // each with its reason
};

// NotFound: no such cut. FailedPrecondition: names that do not fit, all of them named (with
// `partial` they are left out). DataLoss: a damaged file, named; a cut before can be used.
StatusOr<RestoredShard> restore_shard(FileSystem& fs, const v1::RestoreOption& option,
                                      const RestoreTarget& target);

// Reads one table of a chain of cuts into `table`, as far as `owns` says. What rebuilding a chain
// and exporting a table share with a restore.
struct TableRead {
  uint64_t rows = 0;  // of records, replaced ones counted again
  uint64_t bytes = 0;
};
StatusOr<TableRead> read_table(FileSystem& fs, const std::vector<Cut>& chain, Table& table,
                               const std::vector<uint8_t>& owns,
                               const std::function<Status()>& interrupted = {});
// All parts of variables in a cut, by variable and first element.
StatusOr<std::map<std::string, std::map<uint64_t, struct DensePart>>> read_dense(FileSystem& fs,
                                                                                 const Cut& cut);

}  // namespace starling
