// The hot loops of a table, compiled for every vector target and chosen at run time.
//
// Uses: base. Threads: any; all are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "table/bucket_index.h"
#include "table/hash.h"
#include "table/pooling.h"
#include "table/rows.h"

namespace starling {

// What the probe loops need of a table, gathered once per batch.
struct ProbeView {
  const IndexBucket* buckets;
  std::byte* const* chunks;
  uint32_t shift;
  uint32_t mask;
  size_t stride;
  RowNumber end;         // of the rows
  size_t touched_bytes;  // of a row, from its start, that the caller will read or write
  bool two_lines;        // these never span more than two cache lines
  Placement placement;
  size_t dim;            // floats per row that are copied to `out`
  float* out = nullptr;  // (keys, dim), or null: nothing is copied
};

// A batch goes through the index in blocks of this many keys (docs/design/table-index.md).
inline constexpr size_t kProbeBlock = 8;
// How many keys before its row is compared a key's tag is matched, and hashed.
inline constexpr size_t kMatchAhead = 4 * kProbeBlock;
inline constexpr size_t kHashAhead = 8 * kProbeBlock;
inline constexpr size_t kProbeRing = 16 * kProbeBlock;

// Keys on their way through the index; key k of a batch is at k mod kProbeRing.
struct ProbeRing {
  alignas(64) uint64_t hashes[kProbeRing];
  const IndexGroup* groups[kProbeRing];
  // The first row whose tag fits, not yet compared; kNoRow or a wrong one where the key has none.
  std::byte* data[kProbeRing];
  RowNumber rows[kProbeRing];
};

struct Kernels {
  // Asks for the cache line of the key's group.
  void (*ask_for_group)(const ProbeView& view, Key key);
  // Begins the walk of a batch: hashes its first kHashAhead keys and matches the tags of the first
  // kMatchAhead.
  void (*start_probes)(const ProbeView& view, std::span<const Key> keys, ProbeRing& ring);
  // Matches the tags of the block kMatchAhead keys after `first` and asks for the rows, compares
  // the keys of the block at `first` with their rows and copies the weights, hashes the block
  // kHashAhead keys on and asks for its groups. True when every row of the block at `first` is its
  // key's.
  bool (*probe_block)(const ProbeView& view, std::span<const Key> keys, size_t first,
                      ProbeRing& ring);
  // Asks for the lines of n rows; a number past the end asks for row 0.
  void (*prefetch_rows)(const ProbeView& view, const RowNumber* rows, size_t n);
  // Copies the dim weights of each row to out (n, dim).
  void (*copy_rows)(std::byte* const* rows, size_t n, size_t dim, float* out);
  // ok[i] = 1 where all of values (n, dim)'s row i is finite. True when all are.
  bool (*finite_rows)(const float* values, size_t n, size_t dim, uint8_t* ok);
  // Clips to +-clip_value, then to the norm clip_norm; 0 means no clipping.
  void (*clip)(const float* from, size_t n, float clip_value, float clip_norm, float* to);
  void (*add)(const float* from, size_t n, float* to);
  // In the fixed 16-lane order.
  float (*square_sum)(const float* values, size_t n);
  void (*pool)(const SegmentLayout& layout, Pooling pooling, size_t dim, const float* rows,
               float* out);
  void (*scatter)(const SegmentLayout& layout, Pooling pooling, size_t dim, const float* gradients,
                  float* out);
};

// For the vector target chosen at run time.
const Kernels& kernels();

}  // namespace starling
