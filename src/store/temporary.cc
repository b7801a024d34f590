#include "store/temporary.h"

#include <vector>

namespace starling {
namespace {

constexpr std::string_view kPrefix = ".starling-";
constexpr std::string_view kSuffix = ".tmp";
constexpr size_t kIncarnationDigits = 16;

}  // namespace

std::string temporary_name(Incarnation incarnation, uint64_t number) {
  return fmt::format("{}{:016x}-{}{}", kPrefix, value(incarnation), number, kSuffix);
}

std::optional<Incarnation> incarnation_of_temporary(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name.size() < kIncarnationDigits + 2 + kSuffix.size() || name[kIncarnationDigits] != '-')
    return std::nullopt;
  uint64_t incarnation = 0;
  for (const char c : name.substr(0, kIncarnationDigits)) {
    if (c >= '0' && c <= '9') {
      incarnation = incarnation << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      incarnation = incarnation << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  name = name.substr(kIncarnationDigits + 1, name.size() - kIncarnationDigits - 1 - kSuffix.size());
  if (name.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return Incarnation{incarnation};
}

StatusOr<uint64_t> remove_abandoned(FileSystem& fs, std::string_view directory,
                                    const std::function<bool(Incarnation)>& is_fenced) {
  uint64_t removed = 0;
  std::vector<std::string> directories = {std::string(directory)};
  while (!directories.empty()) {
    const std::string at = std::move(directories.back());
    directories.pop_back();
    STARLING_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, fs.list_directory(at));
    for (const FileInfo& entry : entries) {
      if (entry.is_directory) {
        if (!entry.is_link) directories.push_back(entry.url);
        continue;
      }
      const std::optional<Incarnation> writer = incarnation_of_temporary(entry.name());
      if (!writer || !is_fenced(*writer)) continue;
      const Status status = fs.remove(entry.url, Recursive::kNo);
      if (status.code() == StatusCode::kNotFound) continue;
      STARLING_RETURN_IF_ERROR(status);
      ++removed;
    }
  }
  return removed;
}

}  // namespace starling
