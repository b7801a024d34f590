#include "store/file_systems.h"

#include "base/check.h"

namespace starling {

FileSystems::FileSystems() = default;
FileSystems::~FileSystems() = default;

std::unique_ptr<FileSystems> FileSystems::standard(const StoreOptions& options,
                                                   const Clock& clock) {
  auto all = std::make_unique<FileSystems>();
  all->add("file", [options](const Url&) -> StatusOr<std::unique_ptr<FileSystem>> {
    return std::make_unique<LocalFileSystem>(LocalOptions{.incarnation = options.incarnation});
  });
  all->add("mem", [options](const Url&) -> StatusOr<std::unique_ptr<FileSystem>> {
    MemoryOptions memory = options.memory;
    memory.incarnation = options.incarnation;
    return std::make_unique<MemoryFileSystem>(memory);
  });
  for (const char* scheme : {"hdfs", "webhdfs", "swebhdfs"}) {
    all->add(scheme, [options, &clock](const Url& url) {
      HdfsOptions hdfs = options.hdfs;
      hdfs.incarnation = options.incarnation;
      return HdfsFileSystem::make(url, std::move(hdfs), clock);
    });
  }
  return all;
}

void FileSystems::add(std::string scheme, Maker maker) {
  const bool is_new = makers_.emplace(std::move(scheme), std::move(maker)).second;
  STARLING_CHECK(is_new, "two makers for one scheme");
}

StatusOr<FileSystem*> FileSystems::find(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_url(url));
  const auto maker = makers_.find(parsed.scheme);
  if (maker == makers_.end()) {
    std::string known;
    for (const auto& [scheme, unused] : makers_) known += (known.empty() ? "" : ", ") + scheme;
    return invalid_argument("{}: no store for {}://; there are {}", url, parsed.scheme, known);
  }
  MutexLock lock(mutex_);
  std::unique_ptr<FileSystem>& fs = made_[{parsed.scheme, parsed.authority}];
  if (fs == nullptr) {
    StatusOr<std::unique_ptr<FileSystem>> made = maker->second(parsed);
    if (!made.ok()) {
      made_.erase({parsed.scheme, parsed.authority});
      return made.status();
    }
    fs = *std::move(made);
  }
  return fs.get();
}

StatusOr<std::unique_ptr<Reader>> FileSystems::open_read(std::string_view url, ReadRange range) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const fs, find(url));
  return fs->open_read(url, range);
}

StatusOr<std::unique_ptr<Writer>> FileSystems::open_write(std::string_view url, Existing existing) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const fs, find(url));
  return fs->open_write(url, existing);
}

StatusOr<std::unique_ptr<AppendFile>> FileSystems::open_append(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const fs, find(url));
  return fs->open_append(url);
}

StatusOr<FileInfo> FileSystems::stat(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const fs, find(url));
  return fs->stat(url);
}

StatusOr<std::vector<FileInfo>> FileSystems::list_directory(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const fs, find(url));
  return fs->list_directory(url);
}

Status FileSystems::make_directories(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const fs, find(url));
  return fs->make_directories(url);
}

Status FileSystems::rename(std::string_view from, std::string_view to, Existing existing) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const source, find(from));
  STARLING_ASSIGN_OR_RETURN(FileSystem* const target, find(to));
  if (source != target) return invalid_argument("{} to {}: rename: two different stores", from, to);
  return source->rename(from, to, existing);
}

Status FileSystems::remove(std::string_view url, Recursive recursive) {
  STARLING_ASSIGN_OR_RETURN(FileSystem* const fs, find(url));
  return fs->remove(url, recursive);
}

}  // namespace starling
