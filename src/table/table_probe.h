// The walk of a batch through the index for work that no kernel does in one go: a block of rows at
// a time, while the rows and index lines of later keys are on their way from memory.
//
// Uses: base. Threads: shard-local, as Table. For Table's own source files.
#pragma once

#include <algorithm>

#include "table/table.h"

namespace starling {

// Calls visit(first, n, data, rows) for blocks of keys in order.
template <class Visit>
size_t Table::find_blocks(const ProbeView& view, ProbePass& pass, Visit&& visit) const {
  ProbeRing ring;
  std::byte* data[kBlock];
  RowNumber rows[kBlock];
  for (size_t first = 0; first < pass.keys.size(); first += kBlock) {
    const size_t n = std::min(kBlock, pass.keys.size() - first);
    pass.late_count = kernels_.find(view, pass, first, first + n, ring, {rows, data});
    visit(first, n, data, rows);
  }
  return pass.late_count;
}

}  // namespace starling
