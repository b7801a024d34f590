// The orders in which samples are dealt: seeded permutations, fields shuffled on their own, samples
// of one id made one.
//
// Everything here depends on its arguments alone, never on time or threads, so any hub gets the
// same order.
// Uses: base. Threads: any; all are pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/sample.h"

namespace starling {

// What a shuffle is of. The same place gives the same order, another one an independent order.
struct ShufflePlace {
  uint64_t seed = 0;
  uint32_t epoch = 0;
  uint32_t item = 0;
  uint64_t block = 0;  // of the item, from 0
};

// A permutation of 0 .. n - 1, all equally likely: position i of the new order has sample [i].
std::vector<uint32_t> permutation(const ShufflePlace& place, uint32_t n);

// Copies of the samples, in the same order, with the values of each field of `fields` (of keys or
// numbers, by name) dealt to other samples by a permutation of its own; for feature importance.
// Blocks have at most `block_samples` each. InvalidArgument: no such field.
StatusOr<std::vector<SampleBlock>> slots_shuffle(std::span<const SampleRef> samples,
                                                 const std::vector<std::string>& fields,
                                                 const ShufflePlace& place, uint32_t block_samples);

// Samples of one id become one, at the place of the first: the keys of all by field, one behind the
// other up to keys_max, the numbers of the first. Samples without id stay alone. Blocks have at
// most `block_samples` each. InvalidArgument: the dataset has no ids.
StatusOr<std::vector<SampleBlock>> merge_by_id(std::span<const SampleRef> samples,
                                               uint32_t block_samples);

}  // namespace starling
