// The walk of a batch through the index, in blocks: while one block is worked on, the rows of the
// next and the index lines of the one after are on their way from memory.
//
// Uses: base. Threads: shard-local, as Table. For Table's own source files.
#pragma once

#include <algorithm>
#include <array>

#include "table/table.h"

namespace starling {

// Calls visit(block) for blocks of keys in order.
template <class Visit>
void Table::probe(std::span<const Key> keys, const RowHints* hints, const ProbeView& view,
                  HintCounts& counts, Visit&& visit) const {
  ProbeRing ring;
  if (hints == nullptr) {
    kernels_.start_probes(view, keys, ring);
  } else {
    kernels_.prefetch_rows(view, hints->rows.data(), std::min(kMatchAhead, keys.size()));
  }
  for (size_t first = 0; first < keys.size(); first += kBlock) {
    const size_t at = first % kProbeRing;
    const size_t n = std::min(kBlock, keys.size() - first);
    ProbedBlock block{keys.subspan(first, n), first, ring.data + at, ring.rows + at, true};
    if (hints == nullptr) {
      if (!kernels_.probe_block(view, keys, first, ring)) [[unlikely]] {
        settle(view, wrong_rows(block), block);
      }
    } else {
      const size_t next = std::min(first + kMatchAhead, keys.size());
      kernels_.prefetch_rows(view, hints->rows.data() + next, std::min(kBlock, keys.size() - next));
      const uint32_t wrong = take_hints(*hints, block);
      const auto probed = static_cast<uint32_t>(std::popcount(wrong));
      counts.probed += probed;
      counts.kept += n - probed;
      settle(view, wrong, block);
    }
    visit(block);
  }
}

}  // namespace starling
