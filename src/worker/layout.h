// StepLayout is the batch of one lease as a worker sees it: it turns the rows and sums that the
// shards answer into one vector per field and sample, and the gradient of these vectors back into
// what each shard is pushed.
//
// A row's gradient is summed per field in the order of samples, then over fields in their order,
// so the bits do not depend on how many shards there are.
// Uses: base, wire. Threads: a value of one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "wire/message.h"

namespace starling {

class StepLayout {
 public:
  struct Field {
    std::string name;
    std::string table;
    uint32_t dim = 0;
    v1::Pooling pooling = v1::POOLING_SUM;
    // In the matrix of gather(). Sequences (POOLING_NONE) have no column there.
    size_t column = 0;
  };

  // `lease` and the tensors it points at come from a hub and are checked: InvalidArgument names
  // what does not fit. `shards`: of the map by which the batch was fed.
  static StatusOr<StepLayout> make(const v1::BatchLease& lease, const std::vector<Tensor>& tensors,
                                   uint32_t shards);

  uint32_t samples() const { return samples_; }
  const std::vector<Field>& fields() const { return told_; }
  // Columns of gather(): the dims of all pooled fields together.
  size_t width() const { return width_; }

  // The reply of every shard, in the order of the map. InvalidArgument: it is not what was fed.
  Status take(std::vector<Message> replies);

  // Writes every pooled field's vectors into `out` (samples, width): sums or means of the rows of
  // a segment in the order of its keys; zeros where a sample has no key.
  void gather(std::span<float> out) const;
  // A sequence: how many keys sample i has of `field`, and their vectors one behind the other in
  // `out` (keys of all samples, dim).
  std::vector<uint32_t> lengths(size_t field) const;
  void gather_sequence(size_t field, std::span<float> out) const;

  // The gradient of what was gathered.
  struct Gradients {
    std::span<const float> pooled;                  // (samples, width)
    std::vector<std::span<const float>> sequences;  // per field; those of pooled fields are empty
  };
  // One PushGrad option per shard with the gradients of its rows and sums, without header.
  std::vector<Message> pushes(const Gradients& gradients) const;

 private:
  struct Table {
    std::string name;
    uint32_t dim = 0;
    std::vector<uint32_t> shards;
    std::vector<uint32_t> row_keys;
    uint32_t rows = 0;  // of all shards
    // After take(): where each row is.
    std::vector<const float*> row;
    bool has_row_fields = false;
  };
  struct Part {  // of a field
    uint32_t table = 0;
    bool pooled = false;
    std::span<const uint32_t> offsets;  // (samples + 1); empty: one key each
    std::span<const uint32_t> positions;
    std::vector<std::span<const uint32_t>> segments;  // of pooled: per shard of the table
    std::vector<std::span<const float>> sums;         // after take(): per shard of the table
    uint32_t keys(uint32_t sample) const {
      return offsets.empty() ? 1 : offsets[sample + 1] - offsets[sample];
    }
    uint32_t begin(uint32_t sample) const { return offsets.empty() ? sample : offsets[sample]; }
  };
  class RowSums;

  Status add_table(const v1::TrainerTable& table, uint32_t shards);
  Status add_field(const v1::TrainerField& field, const std::vector<Tensor>& tensors);
  Status add_rows(const v1::TrainerField& field, const std::vector<Tensor>& tensors, Part& part);
  Status add_pooled(const v1::TrainerField& field, const std::vector<Tensor>& tensors, Part& part);
  Status take_part(uint32_t shard, const Message& reply, const v1::LookupPart& part);
  void gather_rows(size_t field, std::span<float> out) const;
  void gather_sums(size_t field, std::span<float> out) const;
  void push_rows(uint32_t table, const Gradients& gradients, std::vector<Message>& messages) const;
  void push_sums(size_t field, const Gradients& gradients, std::vector<Message>& messages) const;

  uint32_t samples_ = 0;
  uint32_t shards_ = 0;
  size_t width_ = 0;
  std::vector<Table> tables_;
  std::vector<Field> told_;
  std::vector<Part> parts_;   // beside told_
  std::vector<Tensor> kept_;  // what the spans point into
  std::vector<Message> replies_;
};

}  // namespace starling
