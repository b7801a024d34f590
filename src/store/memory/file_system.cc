#include "store/memory/file_system.h"

#include <algorithm>

#include "store/memory/tree.h"
#include "store/temporary.h"

namespace starling {
namespace {

class MemoryReader final : public Reader {
 public:
  MemoryReader(std::string url, std::shared_ptr<MemoryTree> tree,
               std::shared_ptr<MemoryContent> content, ReadRange range)
      : url_(std::move(url)),
        tree_(std::move(tree)),
        content_(std::move(content)),
        at_(range.offset),
        left_(range.bytes) {}

  StatusOr<size_t> read(std::span<std::byte> into) override {
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(into.size(), left_));
    const size_t got = tree_->read(*content_, at_, into.first(wanted));
    at_ += got;
    left_ -= got;
    return got;
  }
  const std::string& url() const override { return url_; }

 private:
  const std::string url_;
  const std::shared_ptr<MemoryTree> tree_;
  const std::shared_ptr<MemoryContent> content_;
  uint64_t at_;
  uint64_t left_;
};

class MemoryWriter final : public Writer {
 public:
  MemoryWriter(std::string url, std::shared_ptr<MemoryTree> tree, MemoryPath path,
               MemoryPath temporary)
      : url_(std::move(url)),
        tree_(std::move(tree)),
        path_(std::move(path)),
        temporary_(std::move(temporary)) {}

  ~MemoryWriter() override {
    if (!done_) (void)tree_->remove(temporary_, Recursive::kNo, url_);
  }

  Status create(Existing existing) {
    existing_ = existing;
    STARLING_RETURN_IF_ERROR(tree_->check_target(path_, existing, url_));
    STARLING_ASSIGN_OR_RETURN(content_, tree_->create(temporary_, Existing::kKeep, url_));
    done_ = false;
    return absl::OkStatus();
  }

  Status write(std::span<const std::byte> bytes) override {
    if (failed_.ok() && done_) failed_ = failed_precondition("{}: write: already published", url_);
    if (failed_.ok()) failed_ = tree_->append(*content_, bytes, url_);
    return failed_;
  }

  Status publish() override {
    if (failed_.ok() && done_)
      failed_ = failed_precondition("{}: publish: already published", url_);
    if (failed_.ok()) failed_ = tree_->rename(temporary_, path_, existing_, url_);
    if (failed_.ok()) done_ = true;
    return failed_;
  }
  const std::string& url() const override { return url_; }

 private:
  const std::string url_;
  const std::shared_ptr<MemoryTree> tree_;
  const MemoryPath path_;
  const MemoryPath temporary_;
  Existing existing_ = Existing::kReplace;
  std::shared_ptr<MemoryContent> content_;
  bool done_ = true;  // no temporary is there
  Status failed_;
};

class MemoryAppendFile final : public AppendFile {
 public:
  MemoryAppendFile(std::string url, std::shared_ptr<MemoryTree> tree,
                   std::shared_ptr<MemoryContent> content)
      : url_(std::move(url)), tree_(std::move(tree)), content_(std::move(content)) {}

  Status append(std::span<const std::byte> bytes) override {
    return tree_->append(*content_, bytes, url_);
  }
  Status sync() override { return absl::OkStatus(); }
  Status truncate(uint64_t bytes) override {
    if (bytes > size())
      return invalid_argument("{}: truncate to {}: the file has {} bytes", url_, bytes, size());
    tree_->truncate(*content_, bytes);
    return absl::OkStatus();
  }
  uint64_t size() const override { return tree_->size(*content_); }
  const std::string& url() const override { return url_; }

 private:
  const std::string url_;
  const std::shared_ptr<MemoryTree> tree_;
  const std::shared_ptr<MemoryContent> content_;
};

}  // namespace

MemoryFileSystem::MemoryFileSystem(MemoryOptions options)
    : MemoryFileSystem(std::make_shared<MemoryTree>(options.bytes_max), options.incarnation) {}

MemoryFileSystem::MemoryFileSystem(std::shared_ptr<MemoryTree> tree, Incarnation incarnation)
    : tree_(std::move(tree)), incarnation_(incarnation) {}

MemoryFileSystem::~MemoryFileSystem() = default;

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::view_of(Incarnation incarnation) const {
  return std::unique_ptr<MemoryFileSystem>(new MemoryFileSystem(tree_, incarnation));
}

StatusOr<std::unique_ptr<Reader>> MemoryFileSystem::open_read(std::string_view url,
                                                              ReadRange range) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath path, MemoryTree::parse(url));
  STARLING_ASSIGN_OR_RETURN(std::shared_ptr<MemoryContent> content, tree_->open(path, url));
  if (const uint64_t bytes = tree_->size(*content); range.offset > bytes) {
    return out_of_range("{}: open for reading: offset {} lies past the end at {}", url,
                        range.offset, bytes);
  }
  return std::make_unique<MemoryReader>(std::string(url), tree_, std::move(content), range);
}

StatusOr<std::unique_ptr<Writer>> MemoryFileSystem::open_write(std::string_view url,
                                                               Existing existing) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath path, MemoryTree::parse(url));
  MemoryPath temporary = path;
  if (!temporary.empty()) temporary.back() = temporary_name(incarnation_, tree_->next_number());
  auto writer = std::make_unique<MemoryWriter>(std::string(url), tree_, path, std::move(temporary));
  STARLING_RETURN_IF_ERROR(writer->create(existing));
  return writer;
}

StatusOr<std::unique_ptr<AppendFile>> MemoryFileSystem::open_append(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath path, MemoryTree::parse(url));
  STARLING_ASSIGN_OR_RETURN(std::shared_ptr<MemoryContent> content,
                            tree_->create(path, Existing::kReplace, url));
  return std::make_unique<MemoryAppendFile>(std::string(url), tree_, std::move(content));
}

StatusOr<FileInfo> MemoryFileSystem::stat(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath path, MemoryTree::parse(url));
  return tree_->stat(path, url);
}

StatusOr<std::vector<FileInfo>> MemoryFileSystem::list_directory(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath path, MemoryTree::parse(url));
  return tree_->list(path, url);
}

Status MemoryFileSystem::make_directories(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath path, MemoryTree::parse(url));
  return tree_->make_directories(path, url);
}

Status MemoryFileSystem::rename(std::string_view from, std::string_view to, Existing existing) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath source, MemoryTree::parse(from));
  STARLING_ASSIGN_OR_RETURN(const MemoryPath target, MemoryTree::parse(to));
  return tree_->rename(source, target, existing, fmt::format("{} to {}", from, to));
}

Status MemoryFileSystem::remove(std::string_view url, Recursive recursive) {
  STARLING_ASSIGN_OR_RETURN(const MemoryPath path, MemoryTree::parse(url));
  return tree_->remove(path, recursive, url);
}

}  // namespace starling
