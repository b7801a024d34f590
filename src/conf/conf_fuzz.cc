// Any bytes as YAML, and what they say as options of every type; any bytes as one key with its
// value. A mistake is told and harms nothing; what was read is written and read again as the same.
#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "conf/schema.h"
#include "conf/yaml.h"
#include "fuzz/fuzz.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

Origin line(int number) { return {std::to_string(number)}; }

// One option of each type.
struct Options {
  bool flag = false;
  int64_t bytes = 0;
  int64_t wait_ms = 0;
  uint64_t seed = 0;
  double rate = 0;
  std::string name;
  std::vector<std::string> files;
  Choice rule;
  std::vector<Choice> rules;
};

Schema schema_of(Options& options) {
  Schema schema;
  schema.add("flag", &options.flag, "");
  schema.add("bytes", &options.bytes, WholeRule{.unit = Unit::kBytes, .may_be_inf = true});
  schema.add("wait_ms", &options.wait_ms, WholeRule{.most = 1000, .unit = Unit::kMilliseconds});
  schema.add("seed", &options.seed, "");
  schema.add("rate", &options.rate, RealRule{.least = 0, .most = 1});
  schema.add("name", &options.name, TextRule{.is_name = true});
  schema.add("files", &options.files, "");
  schema.add("rule", &options.rule, "");
  schema.add("rules", &options.rules, "");
  return schema;
}

// What --print-config shows and --set takes.
bool is_plain(const ConfValue& value) {
  const auto is_text = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  };
  return is_text(value.text) && std::all_of(value.items.begin(), value.items.end(), is_plain) &&
         std::all_of(value.members.begin(), value.members.end(), [&](const ConfMember& member) {
           return is_text(member.key) && is_plain(member.value);
         });
}

void check_yaml(std::span<const std::byte> bytes) {
  const StatusOr<ConfValue> value = parse_yaml(std::string(text_of(bytes)), line);
  if (!value.ok()) {
    STARLING_CHECK(value.status().code() == StatusCode::kInvalidArgument, "it says what is wrong");
    return;
  }
  const std::string flow = value->flow();
  const StatusOr<ConfValue> again = parse_yaml(flow, line);
  STARLING_CHECK(!is_plain(*value) || (again.ok() && again->flow() == flow), "a value survives");
  Options options;
  const Status status = schema_of(options).bind(*value, "");
  STARLING_CHECK(status.ok() || status.code() == StatusCode::kInvalidArgument,
                 "it says what is wrong");
  if (status.ok()) {
    STARLING_CHECK(options.wait_ms >= 0 && options.wait_ms <= 1000 && options.bytes >= 0 &&
                       options.rate >= 0 && options.rate <= 1,
                   "values in their bounds");
  }
}

// As --set and the lines of settings say a value: a.b.0=YAML.
void check_assignment(std::span<const std::byte> bytes) {
  const std::string text(text_of(bytes));
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return;
  StatusOr<ConfValue> value = parse_yaml(text.substr(equals + 1), line);
  if (!value.ok()) return;
  ConfValue root = parse_yaml("a: {b: [1, {c: 2}]}\nd: 3\n", line).value();
  const std::string flow = value->flow();
  const Status status = put(root, text.substr(0, equals), *std::move(value));
  STARLING_CHECK(status.ok() || status.code() == StatusCode::kInvalidArgument,
                 "it says what is wrong");
  STARLING_CHECK(!status.ok() || root.flow().find(flow) != std::string::npos,
                 "what was put is there");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  return {{"yaml",
           check_yaml,
           {"flag: yes\nbytes: 2GiB\nwait_ms: 0.5s\nname: a-b\n",
            "seed: 7\nrate: 1e-3\nfiles: [x, \"y z\", 'it''s']\n",
            "rule: {clip: {low: 0, high: 1}}\nrules:\n  unseen_days: 30\n  capacity: 1000\n",
            "# note\n- a: |\n    two\n    lines\n- ~\n"}},
          {"assignment", check_assignment, {"a.b.1.c=512", "d.e=[x, {y: 'z'}]", "a.f.g-h=~"}}};
}
