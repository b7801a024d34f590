#include "store/local/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "store/local/reader.h"
#include "store/local/system.h"
#include "store/local/writer.h"

namespace starling {
namespace {

FileInfo info_of(std::string url, const struct stat& info) {
  FileInfo file;
  file.url = std::move(url);
  file.is_directory = S_ISDIR(info.st_mode);
  file.bytes = file.is_directory ? 0 : static_cast<uint64_t>(info.st_size);
  file.modified_ms =
      static_cast<int64_t>(info.st_mtim.tv_sec) * 1000 + info.st_mtim.tv_nsec / 1'000'000;
  return file;
}

}  // namespace

StatusOr<std::unique_ptr<Reader>> LocalFileSystem::open_read(std::string_view url,
                                                             ReadRange range) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_local(url));
  return LocalReader::open(parsed, range);
}

StatusOr<std::unique_ptr<Writer>> LocalFileSystem::open_write(std::string_view url,
                                                              Existing existing) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_local(url));
  return LocalWriter::open(parsed, existing, temporaries_.next());
}

StatusOr<std::unique_ptr<AppendFile>> LocalFileSystem::open_append(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_local(url));
  return LocalAppendFile::open(parsed);
}

StatusOr<FileInfo> LocalFileSystem::stat(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_local(url));
  struct stat info {};
  if (::stat(parsed.path.c_str(), &info) != 0)
    return system_error(errno == ENOTDIR ? ENOENT : errno, url, "stat");
  FileInfo file = info_of(std::string(url), info);
  if (::lstat(parsed.path.c_str(), &info) == 0) file.is_link = S_ISLNK(info.st_mode);
  return file;
}

StatusOr<std::vector<FileInfo>> LocalFileSystem::list_directory(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_local(url));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(parsed.path.c_str()), &::closedir);
  if (directory == nullptr) return system_error(errno, url, "list");
  std::vector<FileInfo> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) {
      if (errno != 0) return system_error(errno, url, "list");
      break;
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info {};
    // Gone since it was listed, or a link to nothing.
    if (::fstatat(::dirfd(directory.get()), entry->d_name, &info, 0) != 0) continue;
    FileInfo file = info_of(join_url(url, name), info);
    file.is_link = entry->d_type == DT_LNK;
    entries.push_back(std::move(file));
  }
  std::sort(entries.begin(), entries.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.url < b.url; });
  return entries;
}

Status LocalFileSystem::make_directories(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_local(url));
  return make_directories_durable(parsed.path, url);
}

Status LocalFileSystem::rename(std::string_view from, std::string_view to, Existing existing) {
  STARLING_ASSIGN_OR_RETURN(const Url source, parse_local(from));
  STARLING_ASSIGN_OR_RETURN(const Url target, parse_local(to));
  STARLING_RETURN_IF_ERROR(
      rename_path(source.path, target.path, existing, fmt::format("{} to {}", from, to)));
  const std::string source_directory = parent_path(source.path);
  const std::string target_directory = parent_path(target.path);
  // The new name first: a power cut between the two may show both names, never neither.
  STARLING_RETURN_IF_ERROR(sync_directory(target_directory, to));
  return source_directory == target_directory ? absl::OkStatus()
                                              : sync_directory(source_directory, from);
}

Status LocalFileSystem::remove(std::string_view url, Recursive recursive) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_local(url));
  if (::unlink(parsed.path.c_str()) != 0) {
    if (errno == ENOTDIR) return system_error(ENOENT, url, "remove");
    if (errno != EISDIR && errno != EPERM) return system_error(errno, url, "remove");
    if (recursive == Recursive::kYes) {
      STARLING_RETURN_IF_ERROR(remove_tree(parsed.path, url));
    } else if (::rmdir(parsed.path.c_str()) != 0) {
      return system_error(errno == EEXIST ? ENOTEMPTY : errno, url, "remove");
    }
  }
  return sync_directory(parent_path(parsed.path), url);
}

}  // namespace starling
