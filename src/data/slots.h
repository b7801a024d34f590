// The formats whose values carry their field or count: multislot, libsvm and libffm.
//
// multislot: per slot `n v1 .. vn`, as Paddle writes it. libsvm: `label index:value ...`. libffm:
// `label field:index:value ...`. Keys are the numbers themselves unless a field is hashed.
// Uses: base. Threads: as Format.
#pragma once

#include <memory>
#include <vector>

#include "data/format.h"

namespace starling {

StatusOr<std::shared_ptr<const Format>> make_multislot(const FormatOptions& options,
                                                       std::vector<FieldOptions> fields);
StatusOr<std::shared_ptr<const Format>> make_libsvm(const FormatOptions& options,
                                                    std::vector<FieldOptions> fields);
StatusOr<std::shared_ptr<const Format>> make_libffm(const FormatOptions& options,
                                                    std::vector<FieldOptions> fields);

}  // namespace starling
