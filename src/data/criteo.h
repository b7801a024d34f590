// The criteo format: label, 13 integers and 26 categories, separated by tabs; empty is missing.
//
// Uses: base. Threads: as Format.
#pragma once

#include <memory>
#include <vector>

#include "data/format.h"

namespace starling {

std::vector<FieldOptions> criteo_fields();
StatusOr<std::shared_ptr<const Format>> make_criteo(const FormatOptions& options,
                                                    std::vector<FieldOptions> fields);

}  // namespace starling
