// Checks of enums that a peer sent: proto3 keeps every number, also one that no name stands for.
//
// Uses: base, protobuf. Threads: any.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>

#include <string_view>

#include "base/status.h"

namespace starling {

// InvalidArgument names `what`, the number and the enum that has no such value.
template <typename Enum>
Status check_enum(Enum value, std::string_view what) {
  const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
  if (type->FindValueByNumber(value) != nullptr) return absl::OkStatus();
  return invalid_argument("{} is {}, which {} does not have", what, static_cast<int>(value),
                          type->name());
}

}  // namespace starling
