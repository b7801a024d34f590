#include "data/bad_lines.h"

#include "base/check.h"

namespace starling {

Status BadLines::take(std::string_view file, const ParseResult& result) {
  const uint64_t allowed = options_.skip ? options_.skip_max : 0;
  const uint64_t before = count_;
  count_ += result.counts.bad;
  if (count_ <= allowed || result.counts.bad == 0) return absl::OkStatus();
  const uint64_t at = before >= allowed ? 0 : allowed - before;
  STARLING_CHECK(at < result.bad.size(), "the parser kept fewer bad lines than kept_max()");
  const std::string what = result.bad[static_cast<size_t>(at)].describe(file);
  if (!options_.skip) return invalid_argument("{}", what);
  return invalid_argument("{}; more than bad_lines_max ({}) lines are bad", what,
                          options_.skip_max);
}

}  // namespace starling
