// Any text as the name of a file: an error, or a URL that says the same, whose parts are parts of
// it.
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "store/url.h"

namespace {

void check(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  const starling::StatusOr<starling::Url> url = starling::parse_url(text);
  if (!url.ok()) return;
  STARLING_CHECK(url->text() == text, "a URL says what was said");
  const auto components = starling::path_components(*url);
  if (!components.ok() || components->empty()) return;
  STARLING_CHECK(starling::base_name(url->path) == components->back(),
                 "the last component is the name");
  starling::Url parent = *url;
  parent.path = starling::parent_path(url->path);
  const auto above = starling::path_components(parent);
  STARLING_CHECK(parent.path == "." || (above.ok() && above->size() + 1 == components->size()),
                 "a parent has one component less");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  return {{"url",
           check,
           {"plain", "a/b//c/", "/", "/data/part-0.gz", "file:///tmp/x", "file://localhost/tmp/x",
            "hdfs://name:9000/user/a b/%41", "mem://jobs/cut-1/manifest", "../up/./here"}}};
}
