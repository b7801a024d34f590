#include "conf/load.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "conf/yaml.h"

namespace starling {
namespace {

constexpr std::string_view kPrefix = "STARLING_";

// Names that users know from elsewhere, with the same meaning.
struct Alias {
  const char* variable;
  const char* path;
  bool negated;
};
constexpr std::array<Alias, 6> kAliases = {{
    {"PS_ENABLE_POLLING", "ps.net.polling", false},
    {"WORKER_ENABLE_POLLING", "trainer.net.polling", false},
    {"NETWORK_PS_CORE_NUMBER", "cluster.shards", false},
    {"NETWORK_WORKER_CORE_NUMBER", "trainer.lanes", false},
    {"PS_DISABLE_PIN_CORES", "ps.net.pin_cores", true},
    {"WORKER_DISABLE_PIN_CORES", "trainer.net.pin_cores", true},
}};

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\n") - first + 1));
}

Status put_text(ConfValue& root, const std::string& path, const std::string& text,
                const Origin& origin) {
  const auto same = [&origin](int) { return origin; };
  STARLING_ASSIGN_OR_RETURN(ConfValue value, parse_yaml(text, same));
  return put(root, path, std::move(value));
}

// "a.b=c"
Status put_assignment(ConfValue& root, std::string_view assignment, std::string_view source) {
  const size_t equals = assignment.find('=');
  const std::string path = trimmed(assignment.substr(0, equals));
  if (equals == std::string_view::npos) {
    return invalid_argument("{}: \"{}\" is not an assignment; allowed: key=value", source,
                            assignment);
  }
  return put_text(root, path, std::string(assignment.substr(equals + 1)),
                  Origin{fmt::format("{} {}", source, path)});
}

Status put_alias(ConfValue& root, const Alias& alias, const std::string& text) {
  const Origin origin{fmt::format("environment {}", alias.variable)};
  if (!alias.negated) return put_text(root, alias.path, text, origin);
  const std::optional<bool> truth = parse_truth(text);
  if (!truth) {
    return invalid_argument("{}: {}: \"{}\" is not true or false", origin.text, alias.path, text);
  }
  return put_text(root, alias.path, *truth ? "false" : "true", origin);
}

// STARLING_DATA__BATCH_SIZE -> data.batch_size
std::string path_of(std::string_view variable) {
  std::string path;
  for (size_t i = kPrefix.size(); i < variable.size(); ++i) {
    if (variable.substr(i, 2) == "__") {
      path += '.';
      ++i;
    } else {
      path += static_cast<char>(std::tolower(static_cast<unsigned char>(variable[i])));
    }
  }
  return path;
}

Status put_environment(ConfValue& root, const Environment& environment) {
  for (const Alias& alias : kAliases) {
    const auto found = environment.find(alias.variable);
    if (found != environment.end()) STARLING_RETURN_IF_ERROR(put_alias(root, alias, found->second));
  }
  if (const auto found = environment.find("STARLING_SET"); found != environment.end()) {
    std::istringstream parts(found->second);
    for (std::string part; std::getline(parts, part, ';');) {
      if (trimmed(part).empty()) continue;
      STARLING_RETURN_IF_ERROR(put_assignment(root, part, "environment STARLING_SET"));
    }
  }
  for (const auto& [variable, text] : environment) {
    if (variable.rfind(kPrefix, 0) != 0 || variable == "STARLING_SET" ||
        variable == "STARLING_TOKEN")
      continue;
    if (variable.rfind("STARLING_TEST_", 0) == 0) continue;
    const Origin origin{fmt::format("environment {}", variable)};
    STARLING_RETURN_IF_ERROR(put_text(root, path_of(variable), text, origin));
  }
  return absl::OkStatus();
}

// Where a field says its table, for a message.
const Origin* origin_of(const std::vector<Setting>& settings, const std::string& path) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const Setting& setting) { return setting.path == path; });
  return found == settings.end() ? nullptr : &found->origin;
}

// What one key alone cannot say.
Status check_references(const Job& job) {
  std::vector<std::string> tables;
  for (const TableSection& table : job.options.tables) tables.push_back(table.name);
  std::set<std::string> names;
  for (size_t i = 0; i < job.options.fields.size(); ++i) {
    const FieldSection& field = job.options.fields[i];
    const auto where = [&](std::string_view key) {
      const Origin* origin = origin_of(job.settings, fmt::format("fields.{}.{}", i, key));
      return fmt::format("{}: fields.{}.{}", origin != nullptr ? origin->text : "", i, key);
    };
    if (!names.insert(field.name).second) {
      return invalid_argument("{}: there is another field \"{}\"", where("name"), field.name);
    }
    // Numbers have no table; keys without one take that of their name, or the only one there is.
    if (field.table.empty()) continue;
    if (std::count(tables.begin(), tables.end(), field.table) == 0) {
      return invalid_argument(
          "{}: there is no table \"{}\"; nearest: {}", where("table"), field.table,
          tables.empty() ? "none, tables is empty" : nearest(field.table, tables));
    }
  }
  return absl::OkStatus();
}

// Two keys of a role's net that only make sense together.
Status check_net(const std::vector<Setting>& settings, std::string_view role,
                 const NetSection& net) {
  // Names the key that was written; of two, the first.
  const auto where = [&](std::string_view key, std::string_view other) {
    for (const std::string_view one : {key, other}) {
      const std::string path = fmt::format("{}.net.{}", role, one);
      const Origin* origin = origin_of(settings, path);
      if (origin != nullptr && !(*origin == Origin())) {
        return fmt::format("{}: {}", origin->text, path);
      }
    }
    return fmt::format("default: {}.net.{}", role, key);
  };
  if (net.backoff_max_ms < net.backoff_min_ms) {
    return invalid_argument("{}: backoff_max_ms is {} and backoff_min_ms {}; allowed: min <= max",
                            where("backoff_max_ms", "backoff_min_ms"), net.backoff_max_ms,
                            net.backoff_min_ms);
  }
  if (net.tls.cert_file.empty() != net.tls.key_file.empty()) {
    return invalid_argument("{}: the other one of cert_file and key_file is missing",
                            where("tls.cert_file", "tls.key_file"));
  }
  return absl::OkStatus();
}

StatusOr<std::string> read_text(const std::string& path) {
  // A folder opens like a file, and reads like an empty one.
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return not_found("{}: cannot be read: {}", path, std::strerror(EISDIR));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf() || file.peek() == std::ifstream::traits_type::eof())) {
    return not_found("{}: cannot be read: {}", path, std::strerror(errno));
  }
  return std::move(text).str();
}

// Every normalise without constants of its own takes those of the file that data.stats names.
Status take_stats(JobOptions& options) {
  const std::string& path = options.data.stats;
  if (path.empty()) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  const auto line_of = [&path](int line) { return Origin{fmt::format("{}:{}", path, line)}; };
  STARLING_ASSIGN_OR_RETURN(const ConfValue stats, parse_yaml(text, line_of));
  for (FieldSection& field : options.fields) {
    for (Choice& choice : field.transforms) {
      if (choice.name != "normalise" || !choice.params.members.empty()) continue;
      const ConfValue* found = stats.find(field.name);
      if (found == nullptr || found->kind != ConfValue::Kind::kMap) {
        return invalid_argument(
            "{}: fields.{}: {} has no constants of it; write them by "
            "`starling data stats JOB --write {}`",
            choice.origin.text, field.name, path, path);
      }
      choice.params = *found;
    }
  }
  return absl::OkStatus();
}

// The values of a file, with those of the environment and of flags over them, as a job.
StatusOr<Job> bind_job(ConfValue root, const Sources& sources) {
  STARLING_RETURN_IF_ERROR(put_environment(root, sources.environment));
  for (const std::string& set : sources.sets)
    STARLING_RETURN_IF_ERROR(put_assignment(root, set, "--set"));
  Job job;
  STARLING_RETURN_IF_ERROR(schema_of(job.options).bind(root, "", &job.settings));
  STARLING_RETURN_IF_ERROR(check_references(job));
  STARLING_RETURN_IF_ERROR(take_stats(job.options));
  STARLING_RETURN_IF_ERROR(check_net(job.settings, "scheduler", job.options.scheduler.net));
  STARLING_RETURN_IF_ERROR(check_net(job.settings, "ps", job.options.ps.net));
  STARLING_RETURN_IF_ERROR(check_net(job.settings, "hub", job.options.hub.net));
  STARLING_RETURN_IF_ERROR(check_net(job.settings, "trainer", job.options.trainer.net));
  if (const auto token = sources.environment.find("STARLING_TOKEN");
      token != sources.environment.end()) {
    if (token->second.empty()) {
      return invalid_argument(
          "environment STARLING_TOKEN: it is set and empty; unset it or name a token");
    }
    job.options.cluster.token = token->second;
    job.settings.push_back({"cluster.token", "(not shown)", Origin{"environment STARLING_TOKEN"}});
  }
  return job;
}

}  // namespace

Environment read_environment() {
  Environment all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      all.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

StatusOr<Job> load(const Sources& sources) {
  std::string yaml;
  if (!sources.file.empty()) {
    STARLING_ASSIGN_OR_RETURN(yaml, read_text(sources.file));
  }
  return load_text(yaml, sources);
}

StatusOr<Job> load_text(const std::string& yaml, const Sources& sources) {
  const auto line_of = [&sources](int line) {
    return Origin{fmt::format("{}:{}", sources.file.empty() ? "job" : sources.file, line)};
  };
  STARLING_ASSIGN_OR_RETURN(ConfValue root, parse_yaml(yaml, line_of));
  return bind_job(std::move(root), sources);
}

StatusOr<Job> load_settings(const std::string& lines, const Sources& sources) {
  ConfValue root{.kind = ConfValue::Kind::kMap};
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('=');
    const bool is_key =
        equals != std::string::npos && line.substr(0, equals).find(' ') == std::string::npos;
    // What was never given is printed as an empty text, which a name must not be.
    if (!is_key || line.substr(equals + 1) == "\"\"") continue;
    STARLING_RETURN_IF_ERROR(put_assignment(root, line, sources.file));
  }
  // The only list whose items have keys of their own.
  if (ConfValue* fields = root.find("fields"); fields != nullptr) {
    fields->kind = ConfValue::Kind::kList;
    for (ConfMember& field : fields->members) fields->items.push_back(std::move(field.value));
    fields->members.clear();
  }
  return bind_job(std::move(root), sources);
}

std::string print_settings(const Job& job) {
  size_t width = 0;
  for (const Setting& setting : job.settings) {
    width = std::max(width, std::min<size_t>(60, setting.path.size() + 1 + setting.value.size()));
  }
  std::string out;
  for (const Setting& setting : job.settings) {
    out += fmt::format("{:<{}}  # {}\n", fmt::format("{}={}", setting.path, setting.value), width,
                       setting.origin.text);
  }
  return out;
}

std::string print_keys() {
  JobOptions options;
  std::string out;
  for (const KeyInfo& key : schema_of(options).keys()) {
    out += fmt::format("{}: {}", key.path, key.type);
    if (!key.allowed.empty()) out += fmt::format(" ({})", key.allowed);
    if (!key.initial.empty()) out += fmt::format(", default {}", key.initial);
    out += fmt::format(". {}.\n", key.doc);
  }
  return out;
}

}  // namespace starling
