// Temporary names under which files are written before they are published, and the removal of
// abandoned ones.
//
// A name is `.starling-<incarnation, 16 hex digits>-<number>.tmp` beside the final name: of a fixed
// length, so that it never is too long where the final name is not. Uses: base. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "store/file_system.h"

namespace starling {

std::string temporary_name(Incarnation incarnation, uint64_t number);

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
