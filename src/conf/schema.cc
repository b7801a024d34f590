#include "conf/schema.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>
#include <optional>

namespace starling {
namespace {

using Kind = ConfValue::Kind;

size_t edits(std::string_view a, std::string_view b) {
  // Three rows of the table of distances between prefixes: the one before last is needed for swaps.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({change, last[j] + 1, now[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

// How far a word is from a known one. Half a word (token for token_file) is near.
size_t distance(std::string_view word, std::string_view known) {
  const bool prefix =
      word.size() >= 3 && known.size() >= 3 &&
      (known.substr(0, word.size()) == word || word.substr(0, known.size()) == known);
  return prefix ? std::min<size_t>(edits(word, known), 2) : edits(word, known);
}

std::string join(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

std::string range_text(const WholeRule& rule) {
  const std::string least = format_whole(rule.least, rule.unit);
  std::string text = rule.most >= kInfinite - 1
                         ? fmt::format("at least {}", least)
                         : fmt::format("{} to {}", least, format_whole(rule.most, rule.unit));
  if (rule.may_be_inf) text += " or inf";
  return text;
}

std::string range_text(const RealRule& rule) {
  const bool low = rule.least > -std::numeric_limits<double>::max();
  const bool high = rule.most < std::numeric_limits<double>::max();
  if (low && high) return fmt::format("{} to {}", format_real(rule.least), format_real(rule.most));
  if (low) return fmt::format("at least {}", format_real(rule.least));
  return high ? fmt::format("at most {}", format_real(rule.most)) : "";
}

std::string whole_type(Unit unit) {
  switch (unit) {
    case Unit::kNone:
      return "a whole number";
    case Unit::kBytes:
      return "a number of bytes";
    case Unit::kMicroseconds:
      return "a whole number of us";
    case Unit::kMilliseconds:
      return "a whole number of ms";
    case Unit::kSeconds:
      return "a whole number of s";
    case Unit::kMinutes:
      return "a whole number of minutes";
    case Unit::kHours:
      return "a whole number of hours";
    case Unit::kDays:
      return "a whole number of days";
  }
  return "";
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

std::string quoted_text(const std::string& text) {
  return ConfValue{.kind = Kind::kScalar, .text = text, .quoted = text.empty()}.flow();
}

std::string list_text(const std::vector<std::string>& texts) {
  ConfValue list{.kind = Kind::kList};
  for (const std::string& text : texts) list.items.push_back({.kind = Kind::kScalar, .text = text});
  return list.flow();
}

}  // namespace

namespace {

Status unknown_word(const Origin& origin, const std::string& path, const std::string& word,
                    const std::vector<std::string>& known) {
  if (known.empty()) return invalid_argument("{}: {} takes no values", origin.text, path);
  return invalid_argument("{}: {}: \"{}\" is not known; allowed: {}; nearest: {}", origin.text,
                          path, word, fmt::join(known, ", "), nearest(word, known));
}

// The values of a choice by name, also where the name of the only one was left out.
StatusOr<std::vector<ConfMember>> values_of(const std::string& path, const Choice& choice,
                                            const RuleWords& rule) {
  const ConfValue& params = choice.params;
  if (params.kind == Kind::kNull || params.kind == Kind::kMap) return params.members;
  const bool is_list = params.kind == Kind::kList;
  const std::string& name = is_list ? rule.list : rule.main;
  if (name.empty()) {
    return invalid_argument(
        "{}: {} is {}, a map of {} is needed", choice.origin.text, path, params.named(),
        rule.values.empty() ? "nothing" : fmt::format("{}", fmt::join(rule.values, ", ")));
  }
  return std::vector<ConfMember>{{name, params}};
}

}  // namespace

StatusOr<std::vector<std::pair<std::string, double>>> numbers_of(const std::string& path,
                                                                 const Choice& choice,
                                                                 std::span<const RuleWords> known) {
  const auto rule = std::find_if(known.begin(), known.end(),
                                 [&](const RuleWords& one) { return one.name == choice.name; });
  if (rule == known.end()) {
    std::vector<std::string> names;
    for (const RuleWords& one : known) names.push_back(one.name);
    return unknown_word(choice.origin, path, choice.name, names);
  }
  const std::string inner = join(path, choice.name);
  std::vector<std::pair<std::string, double>> out;
  const auto add = [&](const std::string& name, const ConfValue& value) -> Status {
    const std::optional<double> number = parse_real(value.text);
    if (value.kind != Kind::kScalar || value.quoted || !number.has_value()) {
      return invalid_argument("{}: {}.{} is {}, a number is needed", value.origin.text, inner, name,
                              value.named());
    }
    out.emplace_back(name, *number);
    return absl::OkStatus();
  };
  STARLING_ASSIGN_OR_RETURN(const std::vector<ConfMember> values, values_of(inner, choice, *rule));
  for (const auto& [key, value] : values) {
    if (std::count(rule->values.begin(), rule->values.end(), key) == 0) {
      return unknown_word(value.origin, inner, key, rule->values);
    }
    if (value.kind != Kind::kList || key != rule->list) {
      STARLING_RETURN_IF_ERROR(add(key, value));
      continue;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      STARLING_RETURN_IF_ERROR(add(fmt::format("{}{}", key.front(), i), value.items[i]));
    }
  }
  return out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  size_t fewest = std::numeric_limits<size_t>::max();
  std::string best;
  for (const std::string& candidate : known) {
    const size_t n = distance(word, candidate);
    if (n < fewest) {
      fewest = n;
      best = candidate;
    }
  }
  return best;
}

// What one bind collects.
struct Schema::Bind {
  std::vector<KeyInfo> known;  // of the outermost schema
  std::vector<std::string> problems;
  std::vector<Setting>* settings = nullptr;

  void problem(const ConfValue& value, std::string_view path, std::string_view why,
               std::string_view allowed = "") {
    std::string line = path.empty() ? fmt::format("{}: {}", value.origin.text, why)
                                    : fmt::format("{}: {}: {}", value.origin.text, path, why);
    if (!allowed.empty()) line += fmt::format("; allowed: {}", allowed);
    problems.push_back(std::move(line));
  }
  void setting(const std::string& path, std::string value, const ConfValue* from) {
    if (settings != nullptr)
      settings->push_back({path, std::move(value), from != nullptr ? from->origin : Origin{}});
  }
  // A line per leaf, because an override may have reached into the value.
  void leaves(const std::string& path, const ConfValue& value) {
    if (value.kind != Kind::kMap || value.members.empty())
      return setting(path, value.flow(), &value);
    for (const auto& [name, member] : value.members) leaves(join(path, name), member);
  }
  // The scalar's text, or a problem.
  std::optional<std::string> scalar(const ConfValue& value, const std::string& path,
                                    std::string_view type, std::string_view allowed = "") {
    if (value.kind == Kind::kScalar) return value.text;
    problem(value, path, fmt::format("{} is not {}", value.named(), type), allowed);
    return std::nullopt;
  }
  // The number, or a problem.
  std::optional<double> real(const ConfValue& value, const std::string& path,
                             const RealRule& rule) {
    const std::string allowed = range_text(rule);
    const auto text = scalar(value, path, "a number", allowed);
    if (!text) return std::nullopt;
    const std::optional<double> number = value.quoted ? std::nullopt : parse_real(*text);
    if (!number) {
      problem(value, path, fmt::format("\"{}\" is not a number", *text), allowed);
    } else if (*number < rule.least || *number > rule.most) {
      problem(value, path, fmt::format("{} is out of range", *text), allowed);
      return std::nullopt;
    }
    return number;
  }
};

void Schema::add(std::string key, bool* target, std::string doc) {
  const std::string type = "true or false";
  auto take = [target, type](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value != nullptr) {
      if (const auto text = bind.scalar(*value, path, type)) {
        const std::optional<bool> truth = parse_truth(*text);
        if (!truth) bind.problem(*value, path, fmt::format("\"{}\" is not {}", *text, type));
        *target = truth.value_or(*target);
      }
    }
    bind.setting(path, *target ? "true" : "false", value);
  };
  add_entry({.info = {std::move(key), type, "", *target ? "true" : "false", std::move(doc)},
             .take = std::move(take)});
}

void Schema::add(std::string key, int64_t* target, const WholeRule& rule) {
  KeyInfo info{std::move(key), whole_type(rule.unit), range_text(rule), "", rule.doc};
  if (!rule.required) info.initial = format_whole(*target, rule.unit);
  const bool required = rule.required;
  auto take = [target, rule, type = info.type, allowed = info.allowed](
                  const ConfValue* value, const std::string& path, Bind& bind) {
    if (value != nullptr) {
      const auto text = bind.scalar(*value, path, type, allowed);
      if (text) {
        std::optional<int64_t> number =
            value->quoted ? std::nullopt : parse_whole(*text, rule.unit);
        if (!number && rule.may_be_inf && *text == "inf") number = kInfinite;
        const bool infinite = number && *number == kInfinite && rule.may_be_inf;
        if (!number) {
          bind.problem(*value, path, fmt::format("\"{}\" is not {}", *text, type), allowed);
        } else if (!infinite && (*number < rule.least || *number > rule.most)) {
          bind.problem(*value, path, fmt::format("{} is out of range", *text), allowed);
        } else {
          *target = *number;
        }
      }
    }
    bind.setting(path, format_whole(*target, rule.unit), value);
  };
  add_entry({.info = std::move(info), .required = required, .take = std::move(take)});
}

void Schema::add(std::string key, uint64_t* target, std::string doc) {
  const std::string type = "a whole number";
  const std::string allowed = "0 to 18446744073709551615";
  auto take = [target, type, allowed](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value != nullptr) {
      if (const auto text = bind.scalar(*value, path, type, allowed)) {
        uint64_t number = 0;
        const auto [end, error] =
            std::from_chars(text->data(), text->data() + text->size(), number);
        if (error != std::errc() || end != text->data() + text->size() || value->quoted) {
          bind.problem(*value, path, fmt::format("\"{}\" is not {}", *text, type), allowed);
        } else {
          *target = number;
        }
      }
    }
    bind.setting(path, fmt::format("{}", *target), value);
  };
  add_entry({.info = {std::move(key), type, allowed, fmt::format("{}", *target), std::move(doc)},
             .take = std::move(take)});
}

void Schema::add(std::string key, double* target, const RealRule& rule) {
  KeyInfo info{std::move(key), "a number", range_text(rule), "", rule.doc};
  if (!rule.required) info.initial = format_real(*target);
  const bool required = rule.required;
  auto take = [target, rule](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value != nullptr) *target = bind.real(*value, path, rule).value_or(*target);
    bind.setting(path, format_real(*target), value);
  };
  add_entry({.info = std::move(info), .required = required, .take = std::move(take)});
}

void Schema::add(std::string key, std::string* target, const TextRule& rule) {
  std::string allowed = fmt::format("{}", fmt::join(rule.one_of, ", "));
  if (rule.is_name) allowed = "letters, digits, _ and -, at most 64 of them";
  KeyInfo info{std::move(key), "text", allowed, rule.required ? "" : *target, rule.doc};
  const bool required = rule.required;
  auto take = [target, rule, allowed](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value != nullptr) {
      if (const auto text = bind.scalar(*value, path, "text", allowed)) {
        const bool listed = std::count(rule.one_of.begin(), rule.one_of.end(), *text) > 0;
        if (!rule.one_of.empty() && !listed) {
          bind.problem(*value, path, fmt::format("\"{}\" is not known", *text),
                       fmt::format("{}; nearest: {}", allowed, nearest(*text, rule.one_of)));
        } else if (rule.is_name && !is_name(*text)) {
          bind.problem(*value, path, fmt::format("\"{}\" is not a name", *text), allowed);
        } else {
          *target = *text;
        }
      }
    }
    bind.setting(path, quoted_text(*target), value);
  };
  add_entry({.info = std::move(info), .required = required, .take = std::move(take)});
}

void Schema::add(std::string key, std::vector<std::string>* target, std::string doc) {
  auto take = [target](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value != nullptr && value->kind == Kind::kList) {
      target->clear();
      for (size_t i = 0; i < value->items.size(); ++i) {
        const std::string item = join(path, fmt::format("{}", i));
        if (const auto text = bind.scalar(value->items[i], item, "text")) target->push_back(*text);
      }
    } else if (value != nullptr) {
      if (const auto text = bind.scalar(*value, path, "text or a list of texts")) *target = {*text};
    }
    bind.setting(path, list_text(*target), value);
  };
  add_entry({.info = {std::move(key), "a list of texts", "", list_text(*target), std::move(doc)},
             .take = std::move(take)});
}

void Schema::add(std::string key, std::vector<double>* target, const RealRule& rule) {
  const auto shown = [target] {
    std::vector<std::string> texts;
    for (const double number : *target) texts.push_back(format_real(number));
    return list_text(texts);
  };
  KeyInfo info{std::move(key), "a list of numbers", range_text(rule), shown(), rule.doc};
  auto take = [target, rule, shown](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value != nullptr) {
      const bool is_list = value->kind == Kind::kList;
      const std::vector<ConfValue> items = is_list ? value->items : std::vector{*value};
      target->clear();
      for (size_t i = 0; i < items.size(); ++i) {
        const std::string at = is_list ? join(path, fmt::format("{}", i)) : path;
        if (const auto number = bind.real(items[i], at, rule)) target->push_back(*number);
      }
    }
    bind.setting(path, shown(), value);
  };
  add_entry({.info = std::move(info), .take = std::move(take)});
}

void Schema::add(std::string key, std::vector<Choice>* target, std::string doc) {
  auto take = [target](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value == nullptr) return;
    target->clear();
    if (value->kind == Kind::kScalar) {
      target->push_back({.name = value->text, .origin = value->origin});
    } else if (value->kind == Kind::kMap) {
      for (const auto& [name, params] : value->members)
        target->push_back({name, params, params.origin});
    } else {
      bind.problem(*value, path, fmt::format("{} is not a rule or a map of rules", value->named()));
    }
    bind.leaves(path, *value);
  };
  add_entry({.info = {std::move(key), "rules", "", "", std::move(doc)}, .take = std::move(take)});
}

void Schema::add(std::string key, Choice* target, std::string doc) {
  auto take = [target](const ConfValue* value, const std::string& path, Bind& bind) {
    if (value == nullptr) {
      if (!target->empty()) bind.setting(path, target->name, nullptr);
      return;
    }
    if (value->kind == Kind::kScalar) {
      *target = {.name = value->text, .origin = value->origin};
    } else if (value->kind == Kind::kMap && value->members.size() == 1) {
      *target = {value->members[0].key, value->members[0].value, value->members[0].value.origin};
    } else if (value->kind == Kind::kMap && !value->members.empty()) {
      bind.problem(
          *value, path,
          fmt::format("\"{}\" and \"{}\" are given", value->members[0].key, value->members[1].key),
          "one rule");
    } else {
      bind.problem(*value, path, fmt::format("{} is not a rule", value->named()),
                   "one rule, such as {name: {key: value}}");
    }
    bind.leaves(path, *value);
  };
  add_entry({.info = {std::move(key), "one rule", "", target->name, std::move(doc)},
             .take = std::move(take)});
}

void Schema::add_section(std::string key, Schema section) {
  auto inner = [section](std::string_view path) { return section.keys(path); };
  auto take = [section = std::move(section)](const ConfValue* value, const std::string& path,
                                             Bind& bind) { section.bind_map(value, path, bind); };
  add_entry({.info = {std::move(key), "a map", "", "", ""},
             .take = std::move(take),
             .inner = std::move(inner)});
}

void Schema::add_list(std::string key, std::string doc, Schema model,
                      std::function<Schema()> grow) {
  auto inner = [model = std::move(model)](std::string_view path) {
    return model.keys(join(path, "*"));
  };
  auto take = [grow = std::move(grow)](const ConfValue* value, const std::string& path,
                                       Bind& bind) {
    if (value == nullptr || value->kind == Kind::kNull) return;
    if (value->kind != Kind::kList) {
      return bind.problem(*value, path, fmt::format("{} is not a list", value->named()));
    }
    for (size_t i = 0; i < value->items.size(); ++i) {
      grow().bind_map(&value->items[i], join(path, fmt::format("{}", i)), bind);
    }
  };
  add_entry({.info = {std::move(key), "a list", "", "", std::move(doc)},
             .take = std::move(take),
             .inner = std::move(inner)});
}

void Schema::add_map(std::string key, std::string doc, Schema model,
                     std::function<Schema(const std::string&)> grow) {
  auto inner = [model = std::move(model)](std::string_view path) {
    return model.keys(join(path, "*"));
  };
  auto take = [grow = std::move(grow)](const ConfValue* value, const std::string& path,
                                       Bind& bind) {
    if (value == nullptr || value->kind == Kind::kNull) return;
    if (value->kind != Kind::kMap) {
      return bind.problem(*value, path, fmt::format("{} is not a map", value->named()));
    }
    for (const auto& [name, member] : value->members) {
      if (!is_name(name)) {
        bind.problem(member, path, fmt::format("\"{}\" is not a name", name),
                     "letters, digits, _ and -, at most 64 of them");
        continue;
      }
      grow(name).bind_map(&member, join(path, name), bind);
    }
  };
  add_entry({.info = {std::move(key), "a map", "", "", std::move(doc)},
             .take = std::move(take),
             .inner = std::move(inner)});
}

void Schema::bind_map(const ConfValue* value, const std::string& path, Bind& bind) const {
  if (value != nullptr && value->kind != Kind::kMap && value->kind != Kind::kNull) {
    return bind.problem(*value, path, fmt::format("{} is not a map", value->named()));
  }
  if (value != nullptr) refuse_unknown(*value, path, bind);
  for (const Entry& entry : entries_) {
    const ConfValue* member = value != nullptr ? value->find(entry.info.path) : nullptr;
    const std::string member_path = join(path, entry.info.path);
    if (member == nullptr && entry.required) {
      const ConfValue nowhere;
      bind.problem(value != nullptr ? *value : nowhere, member_path, "is missing",
                   entry.info.allowed);
      continue;
    }
    entry.take(member, member_path, bind);
  }
}

void Schema::refuse_unknown(const ConfValue& map, const std::string& path, Bind& bind) const {
  for (const auto& [key, value] : map.members) {
    const auto same = [&key = key](const Entry& entry) { return entry.info.path == key; };
    if (std::any_of(entries_.begin(), entries_.end(), same)) continue;
    // Close to a key of this map, or the very name of a key of another.
    std::string best;
    std::string allowed;
    size_t fewest = std::numeric_limits<size_t>::max();
    for (const Entry& entry : entries_) {
      const size_t n = distance(key, entry.info.path);
      if (n >= fewest) continue;
      fewest = n;
      best = join(path, entry.info.path);
      allowed = entry.info.allowed;
    }
    for (const KeyInfo& info : bind.known) {
      const bool same_name = info.path.substr(info.path.rfind('.') + 1) == key;
      if (!same_name || fewest <= 2) continue;
      fewest = 2;
      best = info.path;
      allowed = info.allowed;
    }
    std::string why = fmt::format("unknown key; nearest: {}", best);
    if (!allowed.empty()) why += fmt::format(" ({})", allowed);
    bind.problem(value, join(path, key), best.empty() ? "unknown key; none is allowed here" : why);
  }
}

Status Schema::bind(const ConfValue& value, std::string_view path,
                    std::vector<Setting>* settings) const {
  Bind bind{.known = keys(path), .settings = settings};
  bind_map(&value, std::string(path), bind);
  if (bind.problems.empty()) return absl::OkStatus();
  return invalid_argument("{}", fmt::join(bind.problems, "\n"));
}

std::vector<KeyInfo> Schema::keys(std::string_view path) const {
  std::vector<KeyInfo> all;
  for (const Entry& entry : entries_) {
    if (!entry.inner) {
      all.push_back(entry.info);
      all.back().path = join(path, entry.info.path);
      continue;
    }
    for (KeyInfo& info : entry.inner(join(path, entry.info.path))) all.push_back(std::move(info));
  }
  return all;
}

}  // namespace starling
