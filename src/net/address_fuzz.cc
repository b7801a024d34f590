// Any text as an address, which peers tell of one another: an error, or an address whose own text
// means the same.
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "net/address.h"

namespace {

void check(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  const starling::StatusOr<starling::Address> address = starling::Address::parse(text);
  if (!address.ok()) return;
  const starling::StatusOr<starling::Address> again =
      starling::Address::parse(address->to_string());
  STARLING_CHECK(again.ok() && *again == *address, "an address survives its own text");
  STARLING_CHECK(!starling::is_loopback(address->host) || !starling::is_wildcard(address->host),
                 "no host is both this machine and all of it");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  return {{"address",
           check,
           {"inproc://ps-0", "grpc://10.0.0.7:9000", "grpc++://host.name:1", "grpc++://[::1]:65535",
            "grpc://0.0.0.0:0", "grpc://localhost:77", "grpc++://[fe80::2%eth0]:5"}}};
}
