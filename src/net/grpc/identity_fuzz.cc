// Any bytes as the metadata by which a call over gRPC says who calls: what reads is written and
// read again as the same.
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "net/grpc/safety.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

bool read(std::string_view text, Identity* out) {
  const CallMetadata metadata = {{kIdentityKey, {text.data(), text.size()}}};
  return read_identity(metadata, out);
}

void check(std::span<const std::byte> bytes) {
  Identity identity;
  if (!read(text_of(bytes), &identity)) return;
  Identity again;
  const std::string text = identity_text(identity);
  STARLING_CHECK(read(text, &again) && identity_text(again) == text,
                 "an identity survives its text");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  return {{"identity",
           check,
           {identity_text({}), identity_text({.role = 4, .node = 77, .incarnation = UINT64_MAX}),
            "1.2.3"}}};
}
