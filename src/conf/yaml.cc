#include "conf/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>

namespace starling {
namespace {

constexpr size_t kDepthMax = 64;

// Builds the value from the parser's events. Keeps the first error and ignores what follows it.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::function<Origin(int)>& origin_of) : origin_of_(origin_of) {}

  void OnDocumentStart(const YAML::Mark& mark) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    take(ConfValue{.origin = origin(mark)}, mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    refuse_anchor(mark, anchor);
    // The parser tags plain scalars "?" and quoted ones "!".
    const bool quoted = tag == "!";
    if (!quoted && (text == "~" || text == "null")) return OnNull(mark, anchor);
    take(ConfValue{.kind = ConfValue::Kind::kScalar,
                   .text = text,
                   .quoted = quoted,
                   .origin = origin(mark)},
         mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(ConfValue::Kind::kList, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(ConfValue::Kind::kMap, mark, anchor);
  }
  void OnMapEnd() override { close(); }

  StatusOr<ConfValue> result() && {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  struct Level {
    ConfValue value;
    std::string key;  // of the member that comes next, when has_key
    Origin key_origin;
    bool has_key = false;
    YAML::Mark mark;
  };

  Origin origin(const YAML::Mark& mark) const { return origin_of_(mark.line + 1); }

  void fail(const YAML::Mark& mark, std::string_view why) {
    if (status_.ok()) status_ = invalid_argument("{}: {}", origin(mark).text, why);
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) fail(mark, "anchors and aliases (& and *) are not read");
  }

  void open(ConfValue::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    if (levels_.size() >= kDepthMax) fail(mark, fmt::format("more than {} levels", kDepthMax));
    if (!status_.ok()) return;
    levels_.push_back({.value = ConfValue{.kind = kind, .origin = origin(mark)}, .mark = mark});
  }

  void close() {
    if (!status_.ok()) return;
    Level level = std::move(levels_.back());
    levels_.pop_back();
    take(std::move(level.value), level.mark);
  }

  void take(ConfValue value, const YAML::Mark& mark) {
    if (!status_.ok()) return;
    if (levels_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& level = levels_.back();
    if (level.value.kind == ConfValue::Kind::kList) {
      level.value.items.push_back(std::move(value));
    } else if (level.has_key) {
      level.has_key = false;
      // What is not on one line is known by the line of its key.
      if (value.kind != ConfValue::Kind::kScalar) value.origin = level.key_origin;
      level.value.members.push_back({std::move(level.key), std::move(value)});
    } else {
      take_key(level, std::move(value), mark);
    }
  }

  void take_key(Level& level, ConfValue key, const YAML::Mark& mark) {
    if (key.kind != ConfValue::Kind::kScalar)
      return fail(mark, fmt::format("{} cannot be a key", key.named()));
    if (const ConfValue* first = level.value.find(key.text)) {
      return fail(mark, fmt::format("{}: given twice, first at {}", key.text, first->origin.text));
    }
    level.key = std::move(key.text);
    level.key_origin = key.origin;
    level.has_key = true;
  }

  const std::function<Origin(int)>& origin_of_;
  std::vector<Level> levels_;
  ConfValue root_;
  Status status_;
};

}  // namespace

StatusOr<ConfValue> parse_yaml(const std::string& text,
                               const std::function<Origin(int)>& origin_of) {
  Builder builder(origin_of);
  // yaml-cpp reports by exceptions; they end here.
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return ConfValue{.origin = origin_of(1)};
    Builder next(origin_of);
    if (parser.HandleNextDocument(next)) {
      return invalid_argument("{}: more than one document", origin_of(1).text);
    }
  } catch (const YAML::Exception& error) {
    return invalid_argument("{}: bad YAML: {}", origin_of(error.mark.line + 1).text, error.msg);
  }
  return std::move(builder).result();
}

}  // namespace starling
