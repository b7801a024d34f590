// BatchAssembler makes batches of samples: what each shard is fed, and what the trainer gets.
//
// Keys are de-duplicated per table and packed by shard; each field travels as unique rows or as
// pooled sums, whichever is fewer bytes. The tensors are those of FeedSampleOption and BatchLease
// (proto/starling/v1), in their types, shapes and orders.
// Uses: base. Threads: an assembler belongs to one thread at a time; a Batch is a value.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/placement.h"
#include "base/status.h"
#include "base/tensor.h"
#include "data/sample.h"

namespace starling {

// A table as far as batches need it.
struct BatchTable {
  std::string name;
  uint32_t dim = 1;
  Placement placement;
};

struct BatchOptions {
  // Every field travels as rows: staleness 0.
  bool rows_only = false;
};

// Of FieldLayout: one field's keys on one shard.
struct ShardField {
  uint32_t field = 0;  // in SampleSchema.keys
  bool pooled = false;
  Tensor samples;                 // uint32[S]
  std::optional<Tensor> offsets;  // uint32[S + 1]; none: every segment has one key
  Tensor positions;               // uint32[offsets[S]]
};

// Of FeedPart: one table's keys on one shard.
struct ShardPart {
  uint32_t table = 0;     // in the assembler's tables
  Tensor keys;            // uint64[U]
  uint32_t row_keys = 0;  // the first of them travel as rows
  std::vector<ShardField> fields;
};

// Of FeedSampleOption: what one shard is fed. A shard without keys has no parts and is fed all the
// same, so that it knows the batch.
struct ShardFeed {
  std::vector<ShardPart> parts;  // tables in the order of their first field
};

// Of TrainerTable.
struct BatchRows {
  uint32_t table = 0;
  std::vector<uint32_t> shards;    // that have keys of the table, ascending
  std::vector<uint32_t> row_keys;  // per such shard
};

// Of TrainerField.
struct BatchField {
  uint32_t field = 0;
  bool pooled = false;
  std::optional<Tensor> offsets;    // uint32[samples + 1]; none: each sample has one key
  std::optional<Tensor> positions;  // uint32[offsets[samples]], of rows
  std::vector<Tensor> samples;      // of pooled: per entry of BatchRows.shards, uint32[S]
};

struct Batch {
  uint32_t samples = 0;
  std::optional<Tensor> dense;                   // float[samples, dense]
  std::optional<Tensor> labels;                  // float[samples, labels]
  std::optional<Tensor> weights, shows, clicks;  // float[samples]
  std::optional<Tensor> groups;                  // uint64[samples]
  std::vector<std::string> ids;                  // (samples), of datasets with ids
  std::vector<ShardFeed> shards;                 // (shards)
  std::vector<BatchRows> tables;                 // in the order of the feeds' parts
  std::vector<BatchField> fields;                // in the order of SampleSchema.keys

  size_t feed_bytes() const;     // of all tensors that go to shards
  size_t trainer_bytes() const;  // of all tensors that go to the trainer
};

// bucket -> shard, of one version of the map.
struct BucketOwners {
  std::span<const uint32_t> owner;  // (kBuckets)
  uint32_t shards = 0;
};

class BatchAssembler {
 public:
  // InvalidArgument: a field's table is not in `tables`.
  static StatusOr<BatchAssembler> make(std::shared_ptr<const SampleSchema> schema,
                                       std::vector<BatchTable> tables, BatchOptions options = {});
  BatchAssembler(BatchAssembler&&) noexcept;
  BatchAssembler& operator=(BatchAssembler&&) noexcept;
  ~BatchAssembler();

  const std::vector<BatchTable>& tables() const;

  // The batch of `samples`, at least one, in this order. InvalidArgument: a key lies outside of the
  // range of its table; the message names field and key.
  StatusOr<Batch> assemble(std::span<const SampleRef> samples, const BucketOwners& owners);

 private:
  class Work;
  explicit BatchAssembler(std::unique_ptr<Work> work);
  std::unique_ptr<Work> work_;
};

}  // namespace starling
