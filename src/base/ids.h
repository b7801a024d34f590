// Strong ids: numbers that cannot be mixed up.
//
// Uses: std. Threads: any; all are values.
#pragma once

#include <compare>
#include <cstdint>

namespace starling {

// A feature id, already hashed by the hub. Any uint64 is legal.
enum class Key : uint64_t {};
// The unit of placement, 0 .. kBuckets - 1.
enum class BucketId : uint16_t {};
// A lane of a process, counted from 0. On a ps a lane is a shard.
enum class LaneId : uint32_t {};
// The number of a training worker among all of the job.
enum class Rank : uint32_t {};
// A node as the scheduler numbers it.
enum class NodeId : uint32_t {};
// One life of a process: a node that comes back under its name has a new one.
enum class Incarnation : uint64_t {};
// A request that a state machine answers once, now or later; chosen by whoever runs the machine.
enum class Token : uint64_t {};

inline constexpr uint32_t kBuckets = 4096;

constexpr uint64_t value(Key key) { return static_cast<uint64_t>(key); }
constexpr uint16_t value(BucketId bucket) { return static_cast<uint16_t>(bucket); }
constexpr uint32_t value(LaneId lane) { return static_cast<uint32_t>(lane); }
constexpr uint32_t value(Rank rank) { return static_cast<uint32_t>(rank); }
constexpr uint32_t value(NodeId node) { return static_cast<uint32_t>(node); }
constexpr uint64_t value(Incarnation incarnation) { return static_cast<uint64_t>(incarnation); }

// Who made a batch and when does not matter: the same work gives the same id on any hub.
struct BatchId {
  uint32_t epoch = 0;
  uint32_t item = 0;    // work item of the epoch
  uint64_t number = 0;  // of the batch in its item, from 0
  auto operator<=>(const BatchId&) const = default;
};

}  // namespace starling
