// The walk of a batch through the index, in blocks: while one block is worked on, the rows of the
// next and the index lines of the one after are on their way from memory.
//
// Uses: base. Threads: shard-local, as Table. For Table's own source files.
#pragma once

#include <algorithm>
#include <array>

#include "table/table.h"

namespace starling {

// Calls visit(first, probes, all_found) for blocks of keys in order; probes[i] is of keys[first +
// i], and its row is kNoRow (data: row 0) where the key has none.
template <class Visit>
void Table::probe(std::span<const Key> keys, const RowHints* hints, size_t touched_bytes,
                  HintCounts& counts, Visit&& visit) const {
  const ProbeView view = probe_view(touched_bytes);
  std::array<Probe, kProbeRing> ring;
  if (hints == nullptr) kernels_.start_probes(view, keys, ring.data());
  for (size_t first = 0; first < keys.size(); first += kBlock) {
    const auto block = keys.subspan(first, std::min(kBlock, keys.size() - first));
    Probe* probes = ring.data() + first % kProbeRing;
    HintCheck check;
    if (hints == nullptr) {
      check.wrong = kernels_.probe_block(view, keys, first, ring.data());
    } else {
      const auto next = std::min(first + kBlock, keys.size());
      kernels_.prefetch_rows(view, hints->rows.data() + next, std::min(kBlock, keys.size() - next));
      check = probe_hints(block, *hints, first, probes);
      const auto probed = static_cast<uint32_t>(std::popcount(check.wrong));
      counts.probed += probed;
      counts.kept += block.size() - probed;
    }
    const bool settled = check.wrong == 0 || settle(block, check.wrong, probes);
    const bool all_found = settled && !check.missing;
    visit(first, std::span<Probe>(probes, block.size()), all_found);
  }
}

}  // namespace starling
