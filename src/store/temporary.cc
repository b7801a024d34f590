#include "store/temporary.h"

#include <random>
#include <vector>

namespace starling {
namespace {

constexpr std::string_view kPrefix = ".starling-";
constexpr std::string_view kSuffix = ".tmp";
constexpr size_t kDigits = 16;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string temporary_name(Incarnation incarnation, uint64_t number) {
  return fmt::format("{}{:016x}-{:016x}{}", kPrefix, value(incarnation), number, kSuffix);
}

TemporaryNames::TemporaryNames(Incarnation incarnation) : incarnation_(incarnation) {
  std::random_device device;
  next_ = uint64_t{device()} << 32 | device();
}

std::optional<Incarnation> incarnation_of_temporary(std::string_view name) {
  if (name.size() != kPrefix.size() + 2 * kDigits + 1 + kSuffix.size()) return std::nullopt;
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name = name.substr(kPrefix.size(), 2 * kDigits + 1);
  if (name[kDigits] != '-' || !is_hex(name.substr(kDigits + 1)) ||
      !is_hex(name.substr(0, kDigits))) {
    return std::nullopt;
  }
  uint64_t incarnation = 0;
  for (const char c : name.substr(0, kDigits)) {
    incarnation = incarnation << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
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
