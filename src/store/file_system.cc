#include "store/file_system.h"

#include <algorithm>

#include "store/pattern.h"
#include "store/url.h"

namespace starling {
namespace {

constexpr size_t kReadAllFirst = 16 << 10;

enum class PartKind { kLiteral, kPattern, kAnyDepth };

// One component of a pattern; the text of a literal one is unescaped.
struct Part {
  PartKind kind = PartKind::kLiteral;
  std::string text;
};

Part part_of(const std::string& component) {
  if (component == "**") return {PartKind::kAnyDepth, component};
  if (component.find_first_of("*?[") == std::string::npos)
    return {PartKind::kLiteral, unescape_pattern(component)};
  // An escaped wildcard costs a listing instead of a stat, no more.
  return {PartKind::kPattern, component};
}

// Walks a directory tree along the components of a pattern.
class PatternWalk {
 public:
  PatternWalk(FileSystem& fs, std::vector<Part> parts) : fs_(fs), parts_(std::move(parts)) {}

  Status walk(const std::string& directory, size_t at) {
    const Part& part = parts_[at];
    const bool is_last = at + 1 == parts_.size();
    if (part.kind == PartKind::kLiteral) return literal(join_url(directory, part.text), at);
    if (part.kind == PartKind::kAnyDepth) {
      if (!is_last) STARLING_RETURN_IF_ERROR(walk(directory, at + 1));
      return below(directory, at);
    }
    STARLING_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, entries_of(directory));
    for (const FileInfo& entry : entries) {
      if (!matches(part.text, entry.name())) continue;
      if (is_last) {
        found_.push_back(entry);
      } else if (entry.is_directory) {
        STARLING_RETURN_IF_ERROR(walk(entry.url, at + 1));
      }
    }
    return absl::OkStatus();
  }

  // Two ways through `**` may lead to one file.
  std::vector<FileInfo> take() {
    const auto by_url = [](const FileInfo& a, const FileInfo& b) { return a.url < b.url; };
    const auto same_url = [](const FileInfo& a, const FileInfo& b) { return a.url == b.url; };
    std::sort(found_.begin(), found_.end(), by_url);
    found_.erase(std::unique(found_.begin(), found_.end(), same_url), found_.end());
    return std::move(found_);
  }

 private:
  Status literal(const std::string& url, size_t at) {
    if (at + 1 < parts_.size()) return walk(url, at + 1);
    StatusOr<FileInfo> info = fs_.stat(url);
    if (info.status().code() == StatusCode::kNotFound) return absl::OkStatus();
    STARLING_RETURN_IF_ERROR(info.status());
    found_.push_back(*std::move(info));
    return absl::OkStatus();
  }

  Status below(const std::string& directory, size_t at) {
    const bool is_last = at + 1 == parts_.size();
    STARLING_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, entries_of(directory));
    for (const FileInfo& entry : entries) {
      if (entry.name().starts_with('.')) continue;
      if (is_last) found_.push_back(entry);
      if (entry.is_directory && !entry.is_link) STARLING_RETURN_IF_ERROR(walk(entry.url, at));
    }
    return absl::OkStatus();
  }

  // Nothing matches below a directory that is missing, or that is a file.
  StatusOr<std::vector<FileInfo>> entries_of(const std::string& directory) {
    StatusOr<std::vector<FileInfo>> entries = fs_.list_directory(directory);
    const StatusCode code = entries.status().code();
    if (code == StatusCode::kNotFound || code == StatusCode::kFailedPrecondition)
      return std::vector<FileInfo>{};
    return entries;
  }

  FileSystem& fs_;
  const std::vector<Part> parts_;
  std::vector<FileInfo> found_;
};

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> components;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (slash > 0) components.emplace_back(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return components;
}

}  // namespace

std::string FileInfo::name() const { return base_name(url); }

StatusOr<bool> FileSystem::exists(std::string_view url) {
  const StatusOr<FileInfo> info = stat(url);
  if (info.ok()) return true;
  if (info.status().code() == StatusCode::kNotFound) return false;
  return info.status();
}

StatusOr<std::vector<FileInfo>> FileSystem::list(std::string_view pattern) {
  STARLING_ASSIGN_OR_RETURN(Url url, parse_url(pattern));
  STARLING_RETURN_IF_ERROR(check_pattern(url.path));
  if (!is_pattern(url.path)) {
    STARLING_ASSIGN_OR_RETURN(FileInfo info, stat(pattern));
    return std::vector<FileInfo>{std::move(info)};
  }
  std::vector<Part> parts;
  std::string front = url.path.starts_with('/') ? "/" : "";
  for (const std::string& component : split(url.path)) {
    Part part = part_of(component);
    // The literal front is one directory; listing starts there.
    if (parts.empty() && part.kind == PartKind::kLiteral) {
      front = join_url(front, part.text);
    } else {
      parts.push_back(std::move(part));
    }
  }
  const bool is_relative = front.empty();
  url.path = is_relative ? "." : front;
  if (parts.empty()) {
    STARLING_ASSIGN_OR_RETURN(FileInfo info, stat(url.text()));
    return std::vector<FileInfo>{std::move(info)};
  }
  PatternWalk walk(*this, std::move(parts));
  STARLING_RETURN_IF_ERROR(walk.walk(url.text(), 0));
  std::vector<FileInfo> found = walk.take();
  if (is_relative) {
    for (FileInfo& info : found) info.url.erase(0, 2);  // "./", which the caller did not write
  }
  return found;
}

StatusOr<size_t> read_full(Reader& reader, std::span<std::byte> into) {
  size_t done = 0;
  while (done < into.size()) {
    STARLING_ASSIGN_OR_RETURN(const size_t got, reader.read(into.subspan(done)));
    if (got == 0) break;
    done += got;
  }
  return done;
}

StatusOr<std::string> read_all(Reader& reader, uint64_t bytes_max) {
  std::string all;
  while (true) {
    const size_t before = all.size();
    // Up to one byte more than is allowed.
    all.resize(std::min<uint64_t>(std::max(kReadAllFirst, 2 * before), bytes_max) + 1);
    const auto free = std::as_writable_bytes(std::span(all)).subspan(before);
    STARLING_ASSIGN_OR_RETURN(const size_t got, read_full(reader, free));
    all.resize(before + got);
    if (all.size() > bytes_max) {
      return resource_exhausted("{}: read: more than the {} bytes that are allowed", reader.url(),
                                bytes_max);
    }
    if (got < free.size()) return all;
  }
}

StatusOr<std::string> read_file(FileSystem& fs, std::string_view url, uint64_t bytes_max) {
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, fs.open_read(url));
  return read_all(*reader, bytes_max);
}

Status write_file(FileSystem& fs, std::string_view url, std::string_view bytes, Existing existing) {
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer, fs.open_write(url, existing));
  STARLING_RETURN_IF_ERROR(writer->write(bytes_of(bytes)));
  return writer->publish();
}

}  // namespace starling
