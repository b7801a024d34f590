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
                  Visit&& visit) const {
  const ProbeView view = probe_view(touched_bytes);
  std::array<std::array<Probe, kBlock>, kProbeBlocks> ring;
  const size_t blocks = (keys.size() + kBlock - 1) / kBlock;
  const auto keys_of = [&keys](size_t block) {
    return keys.subspan(block * kBlock, std::min(kBlock, keys.size() - block * kBlock));
  };
  for (size_t b = 0; b < blocks + kMatchLag + kVisitLag; ++b) {
    if (b < blocks && hints == nullptr) {
      const auto block = keys_of(b);
      kernels_.hash_keys(view, block.data(), block.size(), ring[b % kProbeBlocks].data());
    }
    if (b >= kMatchLag && b - kMatchLag < blocks) {
      const size_t at = b - kMatchLag;
      const auto block = keys_of(at);
      Probe* probes = ring[at % kProbeBlocks].data();
      if (hints == nullptr) {
        kernels_.match_tags(view, probes, block.size());
      } else {
        probe_hints(block, hints->rows.data() + at * kBlock, touched_bytes, probes);
      }
    }
    if (b >= kMatchLag + kVisitLag) {
      const size_t at = b - kMatchLag - kVisitLag;
      const auto block = keys_of(at);
      Probe* probes = ring[at % kProbeBlocks].data();
      const bool all_found = settle(block, probes);
      visit(at * kBlock, std::span<Probe>(probes, block.size()), all_found);
    }
  }
}

}  // namespace starling
