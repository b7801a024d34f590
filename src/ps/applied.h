// Applied remembers which numbered operations a shard has applied, so that a repeat is answered and
// not applied again: one table for client sessions and for the job's batch stream.
//
// Uses: base. Threads: shard-local. No clock, no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace starling {

inline constexpr uint64_t kSessionWindow = 4096;  // open numbers of one session
inline constexpr size_t kSessionsMax = 65536;
inline constexpr size_t kItemsMax = 65536;  // work items with a watermark

enum class Seen { kNew, kRepeat };

// Numbers of client sessions. A number is one message, whatever parts it has.
class AppliedNumbers {
 public:
  struct Operation {
    uint64_t session = 0;
    uint64_t number = 0;
    uint64_t acked_below = 0;
    uint64_t content_hash = 0;
  };
  // Says what to do with an operation; changes nothing. InvalidArgument: the same number came with
  // other content, or the operation has no number. ResourceExhausted: beyond the window, or too
  // many sessions. FailedPrecondition: fenced. A number that was refused for its content is
  // answered with that refusal again.
  StatusOr<Seen> check(const Operation& operation) const;
  // The operation has been applied, or refused for its content for good.
  void record(const Operation& operation, const Status& outcome = absl::OkStatus());
  // The session may not speak again. Kept as a name only, the oldest fences are forgotten first.
  void fence(uint64_t session);

  size_t sessions() const { return sessions_.size(); }
  size_t open_numbers() const;

  // For cuts.
  struct Record {
    uint64_t content_hash;
    Status outcome;
  };
  struct Session {
    uint64_t acked_below = 0;
    std::map<uint64_t, Record> applied;  // at or above acked_below
  };
  const std::map<uint64_t, Session>& all() const { return sessions_; }
  const std::vector<uint64_t>& fences() const { return fences_; }
  void restore(uint64_t id, Session session) { sessions_[id] = std::move(session); }

 private:
  std::map<uint64_t, Session> sessions_;
  std::set<uint64_t> fenced_;
  std::vector<uint64_t> fences_;  // in the order of fencing
};

// Parts (tables and variables) of batches. The same batch may come from another trainer with other
// values: its id alone counts.
class AppliedBatches {
 public:
  // At or below its item's watermark: everything about the batch is over.
  bool is_done(const BatchId& batch) const;
  // False when the part is new. A refusal for content is remembered as the part's outcome.
  bool is_applied(const BatchId& batch, const std::string& part) const;
  Status outcome(const BatchId& batch, const std::string& part) const;
  void record(const BatchId& batch, const std::string& part,
              const Status& outcome = absl::OkStatus());

  // Never moves back. ResourceExhausted: too many items at once.
  Status raise(uint32_t epoch, uint32_t item, uint64_t done_below, bool finished);
  struct Watermark {
    uint32_t epoch;
    uint32_t item;
    uint64_t done_below;
    bool finished;
    bool operator==(const Watermark&) const = default;
  };
  std::vector<Watermark> watermarks() const;
  size_t open_batches() const;

  // For cuts: what is applied above the watermarks.
  struct Part {
    BatchId batch;
    std::string part;
    Status outcome;
  };
  std::vector<Part> parts() const;

 private:
  struct Item {
    uint64_t done_below = 0;
    bool finished = false;
    std::map<uint64_t, std::map<std::string, Status>>
        parts;  // by batch number, above the watermark
  };
  const Item* find(const BatchId& batch) const;

  std::map<std::pair<uint32_t, uint32_t>, Item> items_;  // by (epoch, item)
};

}  // namespace starling
