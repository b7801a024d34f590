#include "net/address.h"

#include <absl/strings/ascii.h>
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace starling {
namespace {

constexpr std::array<std::string_view, kProtocols> kNames = {"inproc", "grpc", "grpc++"};

StatusOr<uint16_t> parse_port(std::string_view text, std::string_view whole) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || port > 65535) {
    return invalid_argument("address {}: port '{}' is not a number from 0 to 65535", whole, text);
  }
  return static_cast<uint16_t>(port);
}

// What no name and no number of a host has would change its meaning on the way: a NUL byte ends it
// for the system, a bracket for the next reader.
bool is_host(std::string_view host) {
  return std::ranges::all_of(host,
                             [](char c) { return absl::ascii_isgraph(c) && c != '[' && c != ']'; });
}

}  // namespace

std::string_view protocol_name(Protocol protocol) {
  return kNames.at(static_cast<size_t>(protocol));
}

StatusOr<Protocol> parse_protocol(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Protocol>(i);
  }
  return invalid_argument("protocol '{}' is unknown; it is one of {}", name,
                          fmt::join(kNames, ", "));
}

StatusOr<Address> Address::parse(std::string_view text) {
  const size_t mark = text.find("://");
  if (mark == std::string_view::npos)
    return invalid_argument("address '{}' has no protocol://", text);
  Address address;
  STARLING_ASSIGN_OR_RETURN(address.protocol, parse_protocol(text.substr(0, mark)));
  const std::string_view rest = text.substr(mark + 3);
  if (address.protocol == Protocol::kInproc) {
    if (rest.empty()) return invalid_argument("address '{}' has no name", text);
    address.host = rest;
    return address;
  }
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return invalid_argument("address '{}' has no :port", text);
  std::string_view host = rest.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return invalid_argument("address '{}': an IPv6 host is written in brackets", text);
  }
  if (host.empty()) return invalid_argument("address '{}' has no host", text);
  if (!is_host(host)) return invalid_argument("address '{}': that is no name of a host", text);
  address.host = host;
  STARLING_ASSIGN_OR_RETURN(address.port, parse_port(rest.substr(colon + 1), text));
  return address;
}

std::string Address::to_string() const {
  if (protocol == Protocol::kInproc) return fmt::format("inproc://{}", host);
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(is_v6 ? "{}://[{}]:{}" : "{}://{}:{}"), protocol_name(protocol),
                     host, port);
}

bool is_loopback(std::string_view host) {
  const std::string text(host);
  if (text == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_wildcard(std::string_view host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

std::string Target::to_string() const {
  return fmt::format("{} lane {}", address.to_string(), value(lane));
}

}  // namespace starling
