#include "store/hdfs/file_system.h"

#include <algorithm>

#include "store/hdfs/name_nodes.h"
#include "store/hdfs/reader.h"
#include "store/hdfs/writer.h"

namespace starling {
namespace {

FileInfo info_of(std::string url, const HdfsFileStatus& status) {
  FileInfo info;
  info.url = std::move(url);
  info.is_directory = status.is_directory;
  info.is_link = status.is_link;
  info.bytes = status.bytes;
  info.modified_ms = status.modified_ms;
  return info;
}

// What creates below a file: nothing can exist there, and nothing be made.
Status as_creation_error(const Status& status) {
  if (status.code() != StatusCode::kNotFound) return status;
  return Status(StatusCode::kFailedPrecondition, status.message());
}

}  // namespace

StatusOr<std::unique_ptr<FileSystem>> HdfsFileSystem::make(const Url& url, HdfsOptions options,
                                                           const Clock& clock) {
  STARLING_ASSIGN_OR_RETURN(std::shared_ptr<NameNodes> nodes,
                            NameNodes::make(url, std::move(options), clock));
  std::unique_ptr<HdfsFileSystem> fs(new HdfsFileSystem(std::move(nodes)));
  fs->authority_ = url.authority;
  return std::unique_ptr<FileSystem>(std::move(fs));
}

HdfsFileSystem::HdfsFileSystem(std::shared_ptr<NameNodes> nodes)
    : nodes_(std::move(nodes)), temporaries_(nodes_->options().incarnation) {}

HdfsFileSystem::~HdfsFileSystem() = default;

StatusOr<std::string> HdfsFileSystem::path_of(std::string_view url) const {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_url(url));
  const bool known_scheme =
      parsed.scheme == "hdfs" || parsed.scheme == "webhdfs" || parsed.scheme == "swebhdfs";
  if (!known_scheme || parsed.authority != authority_)
    return invalid_argument("{}: not a file of {}", url, authority_);
  STARLING_ASSIGN_OR_RETURN(const std::vector<std::string> components, path_components(parsed));
  std::string path;
  for (const std::string& component : components) path += "/" + component;
  return path.empty() ? "/" : path;
}

StatusOr<std::unique_ptr<Reader>> HdfsFileSystem::open_read(std::string_view url, ReadRange range) {
  STARLING_ASSIGN_OR_RETURN(const std::string path, path_of(url));
  return HdfsReader::open(nodes_, path, url, range);
}

StatusOr<std::unique_ptr<Writer>> HdfsFileSystem::open_write(std::string_view url,
                                                             Existing existing) {
  STARLING_ASSIGN_OR_RETURN(const std::string path, path_of(url));
  StatusOr<std::unique_ptr<Writer>> writer =
      HdfsWriter::open(nodes_, path, url, existing, temporaries_.next());
  if (!writer.ok()) return as_creation_error(writer.status());
  return writer;
}

StatusOr<std::unique_ptr<AppendFile>> HdfsFileSystem::open_append(std::string_view url) {
  return unimplemented(
      "{}: open for appending: HDFS files cannot grow durably; keep logs on a local disk", url);
}

StatusOr<FileInfo> HdfsFileSystem::stat(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const std::string path, path_of(url));
  STARLING_ASSIGN_OR_RETURN(const HdfsFileStatus status, nodes_->stat(path, url, "stat"));
  return info_of(std::string(url), status);
}

StatusOr<std::vector<FileInfo>> HdfsFileSystem::list_directory(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const std::string path, path_of(url));
  std::vector<FileInfo> entries;
  std::string last;
  while (true) {
    HdfsCall request{
        .op = "LISTSTATUS_BATCH", .path = path, .parameters = {}, .url = url, .what = "list"};
    if (!last.empty()) request.parameters.emplace_back("startAfter", last);
    STARLING_ASSIGN_OR_RETURN(const HdfsAnswer answer, nodes_->call(request));
    StatusOr<HdfsListing> page = parse_listing(answer.body);
    if (!page.ok()) return with_context(page.status(), fmt::format("{}: list", url));
    for (const HdfsFileStatus& status : page->entries) {
      // A file lists itself, under no name.
      if (status.name.empty()) return failed_precondition("{}: list: not a directory", url);
      entries.push_back(info_of(join_url(url, status.name), status));
    }
    if (page->remaining == 0) break;
    if (page->entries.empty() || page->entries.back().name <= last) {
      return unavailable("{}: list: the name node's pages do not advance", url);
    }
    last = page->entries.back().name;
  }
  std::sort(entries.begin(), entries.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.url < b.url; });
  return entries;
}

Status HdfsFileSystem::make_directories(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const std::string path, path_of(url));
  const HdfsCall request{.method = HttpMethod::kPut,
                         .op = "MKDIRS",
                         .path = path,
                         .parameters = {},
                         .url = url,
                         .what = "make directories"};
  return as_creation_error(nodes_->call(request).status());
}

Status HdfsFileSystem::rename(std::string_view from, std::string_view to, Existing existing) {
  STARLING_ASSIGN_OR_RETURN(const std::string source, path_of(from));
  STARLING_ASSIGN_OR_RETURN(const std::string target, path_of(to));
  return nodes_->rename(source, target, existing, fmt::format("{} to {}", from, to));
}

Status HdfsFileSystem::remove(std::string_view url, Recursive recursive) {
  STARLING_ASSIGN_OR_RETURN(const std::string path, path_of(url));
  HdfsCall request{.method = HttpMethod::kDelete,
                   .op = "DELETE",
                   .path = path,
                   .parameters = {},
                   .url = url,
                   .what = "remove"};
  request.parameters = {{"recursive", recursive == Recursive::kYes ? "true" : "false"}};
  bool was_lost = false;
  STARLING_ASSIGN_OR_RETURN(const HdfsAnswer answer, nodes_->call(request, &was_lost));
  const std::optional<bool> removed = parse_boolean(answer.body);
  if (!removed) return unavailable("{}: remove: the name node's answer is not a boolean", url);
  // After a lost answer, nothing left to remove means that the lost try removed it.
  if (!*removed && !was_lost) return not_found("{}: remove: no such file or directory", url);
  return absl::OkStatus();
}

}  // namespace starling
