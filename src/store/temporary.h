// Temporary names under which files are written before they are published, and the removal of
// abandoned ones.
//
// A name is `.starling-<incarnation, 16 hex digits>-<number, 16 hex digits>.tmp` beside the final
// name: of a fixed length, so that it never is too long where the final name is not. Uses: base.
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "store/file_system.h"

namespace starling {

std::string temporary_name(Incarnation incarnation, uint64_t number);

// Numbers the temporaries of one FileSystem. Starts anywhere, so that two FileSystems of one
// process, or a process that was given the incarnation of an earlier one, do not meet.
class TemporaryNames {
 public:
  explicit TemporaryNames(Incarnation incarnation);
  std::string next() {
    return temporary_name(incarnation_, next_.fetch_add(1, std::memory_order_relaxed));
  }

 private:
  const Incarnation incarnation_;
  std::atomic<uint64_t> next_;
};

// The writer's incarnation, or nothing when `name` is no temporary name.
std::optional<Incarnation> incarnation_of_temporary(std::string_view name);

// Removes the temporaries below `directory` whose writer `is_fenced`, and returns how many. Only
// the coordinator calls this, after fencing: a name alone does not tell whether its writer lives.
//
// NotFound: no such directory. Other codes as FileSystem::remove; what was removed before the error
// stays removed.
StatusOr<uint64_t> remove_abandoned(FileSystem& fs, std::string_view directory,
                                    const std::function<bool(Incarnation)>& is_fenced);

}  // namespace starling
