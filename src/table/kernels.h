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
  size_t inner_bytes;    // the same; 0 where the first and the last of these bytes have all lines
  size_t match_ahead;    // how many keys before its row is compared a key's tag is matched
  Placement placement;
};

// Keys are hashed in blocks of this many (docs/design/table-index.md).
inline constexpr size_t kProbeBlock = 8;
// How many keys before its tag is matched a key is hashed.
inline constexpr size_t kHashAhead = 4 * kProbeBlock;
inline constexpr size_t kMatchAheadMax = 8 * kProbeBlock;
inline constexpr size_t kProbeRing = 16 * kProbeBlock;
static_assert(kHashAhead + kMatchAheadMax + kProbeBlock <= kProbeRing);

// Lines of rows that are on their way at a time.
inline constexpr size_t kLinesAhead = 128;

// Keys that were late are looked for together, this many at a time.
inline constexpr size_t kLateBlock = 64;

// Keys on their way through the index; key k of a batch is at k mod kProbeRing.
struct ProbeRing {
  alignas(64) uint64_t hashes[kProbeRing];
  const IndexGroup* groups[kProbeRing];
  // The first row whose tag fits, not yet compared; kNoRow or a wrong one where the key has none.
  std::byte* data[kProbeRing];
  RowNumber rows[kProbeRing];
};

// One pass over a batch.
struct ProbePass {
  std::span<const Key> keys;
  const RowNumber* hints = nullptr;  // (keys), or null: the index says where rows are
  // (keys): positions of keys whose row was not the first that fitted, ascending. What follows is
  // not done for them.
  uint32_t* late = nullptr;
  size_t late_count = 0;
  uint32_t stamp = 0;  // of the rows, from now on; 0 leaves theirs
  // Rows whose stamp is not above it are late too: free ones, and during a snapshot those that it
  // may still have to copy.
  uint32_t stamp_floor = 0;
};

// What a pass says of keys whose rows it found.
struct FoundRows {
  RowNumber* rows = nullptr;   // (keys of the call), or null
  std::byte** data = nullptr;  // (keys of the call), or null; null where a key is late
};

struct Kernels {
  // Asks for the cache line of the key's group.
  void (*ask_for_group)(const ProbeView& view, Key key);
  // Finds the rows of the keys at n places, kLateBlock at most, in all slots of their group and the
  // next that fit; kNoRow where there is none. Bit i of the result: key i may be further on.
  uint64_t (*look_again)(const ProbeView& view, const Key* keys, std::span<const uint32_t> places,
                         RowNumber* rows);
  // Finds the rows of the keys [first, end) of the pass. A batch is found in one call or in
  // several: the first starts at 0, each at a multiple of kProbeBlock, all with the same ring.
  // Returns how many keys of the batch are late so far.
  size_t (*find)(const ProbeView& view, const ProbePass& pass, size_t first, size_t end,
                 ProbeRing& ring, const FoundRows& found);
  // Copies the dim floats of each key's row to out (keys, dim). Returns how many keys are late.
  size_t (*gather)(const ProbeView& view, const ProbePass& pass, size_t dim, float* out);
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
