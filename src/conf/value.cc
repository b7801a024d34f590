#include "conf/value.h"

#include <algorithm>
#include <charconv>

namespace starling {
namespace {

// Quotes for flow style where a plain scalar would be read as something else.
std::string flow_scalar(const std::string& text, bool quoted) {
  const bool plain = !text.empty() && !quoted &&
                     text.find_first_of(":#{}[],&*!|>'\"%@`?\n\t\\") == std::string::npos &&
                     text.front() != ' ' && text.back() != ' ';
  if (plain) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

bool is_path_part(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '+';
  });
}

}  // namespace

const ConfValue* ConfValue::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

ConfValue* ConfValue::find(std::string_view key) {
  return const_cast<ConfValue*>(std::as_const(*this).find(key));
}

std::string ConfValue::flow() const {
  switch (kind) {
    case Kind::kNull:
      return "~";
    case Kind::kScalar:
      return flow_scalar(text, quoted);
    case Kind::kList: {
      std::string out = "[";
      for (const ConfValue& item : items) out += (out.size() > 1 ? ", " : "") + item.flow();
      return out + "]";
    }
    case Kind::kMap: {
      std::string out = "{";
      for (const auto& [name, value] : members) {
        out += fmt::format("{}{}: {}", out.size() > 1 ? ", " : "", flow_scalar(name, false),
                           value.flow());
      }
      return out + "}";
    }
  }
  return "";
}

std::string ConfValue::named() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return fmt::format("\"{}\"", text);
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

Status put(ConfValue& root, std::string_view path, ConfValue value) {
  ConfValue* at = &root;
  std::string_view rest = path;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    if (!is_path_part(part)) {
      return invalid_argument(
          "{}: \"{}\" is not a key; write names with dots between, such as data.batch_size",
          value.origin.text, path);
    }
    if (at->kind == ConfValue::Kind::kList) {
      size_t index = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      if (error != std::errc() || end != part.data() + part.size() || index >= at->items.size()) {
        return invalid_argument("{}: {}: there is no item \"{}\", the list has {}, counted from 0",
                                value.origin.text, path, part, at->items.size());
      }
      at = &at->items[index];
    } else {
      // A scalar on the way gives way to the map that the path asks for; the schema judges the
      // result.
      if (at->kind != ConfValue::Kind::kMap) {
        *at = ConfValue{.kind = ConfValue::Kind::kMap, .origin = value.origin};
      }
      ConfValue* next = at->find(part);
      if (next == nullptr) {
        at->members.push_back({std::string(part), ConfValue{.origin = value.origin}});
        next = &at->members.back().value;
      }
      at = next;
    }
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  *at = std::move(value);
  return absl::OkStatus();
}

}  // namespace starling
