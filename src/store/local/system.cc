#include "store/local/system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace starling {
namespace {

StatusCode code_of(int error) {
  switch (error) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case EIO:
    case EUCLEAN:
      return StatusCode::kDataLoss;
    case ENAMETOOLONG:
    case EINVAL:
    case ELOOP:
    case EXDEV:
      return StatusCode::kInvalidArgument;
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kUnavailable;
  }
}

struct DirectoryCloser {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, DirectoryCloser>;

bool is_dot(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

StatusOr<Directory> open_below(int parent, const char* name, std::string_view url) {
  const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return system_error(errno, url, "remove");
  DIR* directory = ::fdopendir(fd);
  if (directory == nullptr) {
    const int error = errno;
    ::close(fd);
    return system_error(error, url, "remove");
  }
  return Directory(directory);
}

// Unlinks all files of a directory until it meets a subdirectory, whose name it returns; empty when
// none is left.
StatusOr<std::string> unlink_files(DIR* directory, std::string_view url) {
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) {
      if (errno != 0) return system_error(errno, url, "remove");
      return std::string();
    }
    if (is_dot(entry->d_name)) continue;
    if (entry->d_type == DT_DIR) return std::string(entry->d_name);
    if (::unlinkat(::dirfd(directory), entry->d_name, 0) == 0 || errno == ENOENT) continue;
    if (errno == EISDIR) return std::string(entry->d_name);  // the file system gives no d_type
    return system_error(errno, url, "remove");
  }
}

}  // namespace

Status system_error(int error, std::string_view url, std::string_view operation) {
  return Status(code_of(error), fmt::format("{}: {}: {}", url, operation, std::strerror(error)));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    (void)close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

int Descriptor::close() {
  const int fd = std::exchange(fd_, -1);
  return fd >= 0 && ::close(fd) != 0 ? errno : 0;
}

StatusOr<Url> parse_local(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(Url parsed, parse_url(url));
  if (parsed.scheme != "file") return invalid_argument("{}: not a file of this machine", url);
  return parsed;
}

Status sync_directory(const std::string& path, std::string_view url) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) return system_error(errno, url, "open of the directory to sync");
  // EINVAL: a file system without durable directories, such as some network mounts.
  if (::fsync(directory.get()) != 0 && errno != EINVAL)
    return system_error(errno, url, "sync of the directory");
  return absl::OkStatus();
}

Status make_directories_durable(const std::string& path, std::string_view url) {
  std::vector<std::string> missing;
  std::string at = path;
  struct stat info {};
  while (::stat(at.c_str(), &info) != 0) {
    if (errno != ENOENT) return system_error(errno, url, "make directories");
    missing.push_back(at);
    at = parent_path(at);
  }
  if (!S_ISDIR(info.st_mode)) {
    if (missing.empty()) return already_exists("{}: make directories: a file has this name", url);
    return failed_precondition("{}: make directories: {} is a file", url, at);
  }
  while (!missing.empty()) {
    // Somebody else may make the same directories at the same time.
    if (::mkdir(missing.back().c_str(), 0777) != 0 && errno != EEXIST)
      return system_error(errno, url, "make directories");
    STARLING_RETURN_IF_ERROR(sync_directory(parent_path(missing.back()), url));
    missing.pop_back();
  }
  return absl::OkStatus();
}

Status make_parent_durable(const std::string& path, std::string_view url) {
  Status status = make_directories_durable(parent_path(path), url);
  if (status.code() != StatusCode::kAlreadyExists) return status;
  return failed_precondition("{}: make directories: the parent is a file", url);
}

Status rename_path(const std::string& from, const std::string& to, Existing existing,
                   std::string_view url) {
  if (existing == Existing::kReplace) {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      // The system says EEXIST or ENOTEMPTY, as it likes, for a directory that is not empty.
      return system_error(errno == EEXIST ? ENOTEMPTY : errno, url, "rename");
    }
    return absl::OkStatus();
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
    return absl::OkStatus();
  if (errno != EINVAL && errno != ENOSYS) return system_error(errno, url, "rename");
  // Some file systems cannot; a hard link never replaces either, but only files can have one.
  if (::link(from.c_str(), to.c_str()) != 0) return system_error(errno, url, "rename");
  if (::unlink(from.c_str()) != 0) return system_error(errno, url, "rename");
  return absl::OkStatus();
}

Status remove_tree(const std::string& path, std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(Directory directory, open_below(AT_FDCWD, path.c_str(), url));
  std::vector<std::string> names;  // of the subdirectories on the way down
  std::vector<std::pair<dev_t, ino_t>> above;
  while (true) {
    STARLING_ASSIGN_OR_RETURN(const std::string subdirectory, unlink_files(directory.get(), url));
    if (!subdirectory.empty()) {
      struct stat info {};
      if (::fstat(::dirfd(directory.get()), &info) != 0) return system_error(errno, url, "remove");
      STARLING_ASSIGN_OR_RETURN(Directory next,
                                open_below(::dirfd(directory.get()), subdirectory.c_str(), url));
      above.emplace_back(info.st_dev, info.st_ino);
      names.push_back(subdirectory);
      directory = std::move(next);
      continue;
    }
    if (names.empty()) break;
    STARLING_ASSIGN_OR_RETURN(Directory parent, open_below(::dirfd(directory.get()), "..", url));
    struct stat info {};
    if (::fstat(::dirfd(parent.get()), &info) != 0) return system_error(errno, url, "remove");
    if (std::pair(info.st_dev, info.st_ino) != above.back()) {
      return aborted("{}: remove: {} was moved away meanwhile", url, names.back());
    }
    directory = std::move(parent);
    // Reading starts again at the front: all that stood before this subdirectory is gone.
    if (::unlinkat(::dirfd(directory.get()), names.back().c_str(), AT_REMOVEDIR) != 0 &&
        errno != ENOENT) {
      return system_error(errno, url, "remove");
    }
    names.pop_back();
    above.pop_back();
  }
  directory.reset();
  if (::rmdir(path.c_str()) != 0) return system_error(errno, url, "remove");
  return absl::OkStatus();
}

}  // namespace starling
