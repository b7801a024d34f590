// Address says where a server listens and how to talk to it: `inproc://name`, `grpc://host:port`,
// `grpc++://host:port`.
//
// Uses: base. Threads: a value.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"

namespace starling {

enum class Protocol : uint8_t { kInproc, kGrpc, kFast };
inline constexpr int kProtocols = 3;

std::string_view protocol_name(Protocol protocol);  // "inproc", "grpc", "grpc++"
// InvalidArgument listing the known names.
StatusOr<Protocol> parse_protocol(std::string_view name);

struct Address {
  Protocol protocol = Protocol::kInproc;
  std::string host;   // a name or a numeric IPv4 or IPv6 address without brackets; for inproc the
                      // server's name
  uint16_t port = 0;  // 0: chosen by the kernel when listening; unused for inproc

  // InvalidArgument naming the part that is wrong.
  static StatusOr<Address> parse(std::string_view text);
  std::string to_string() const;
  auto operator<=>(const Address&) const = default;
};

// True for localhost, 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view host);
// True for "", 0.0.0.0 and ::.
bool is_wildcard(std::string_view host);

// One lane of one server: what a call is sent to.
struct Target {
  Address address;
  LaneId lane{0};

  std::string to_string() const;
  auto operator<=>(const Target&) const = default;
};

}  // namespace starling
