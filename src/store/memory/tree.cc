#include "store/memory/tree.h"

#include <algorithm>
#include <cstring>

namespace starling {

StatusOr<MemoryPath> MemoryTree::parse(std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const Url parsed, parse_url(url));
  if (parsed.scheme != "mem") return invalid_argument("{}: not a file in memory", url);
  return path_components(parsed);
}

uint64_t MemoryTree::next_number() {
  MutexLock lock(mutex_);
  return ++numbers_;
}

MemoryNode* MemoryTree::find(const MemoryPath& path) {
  MemoryNode* node = &root_;
  for (const std::string& name : path) {
    const auto child = node->children.find(name);
    if (child == node->children.end()) return nullptr;
    node = child->second.get();
  }
  return node;
}

StatusOr<MemoryNode*> MemoryTree::make(const MemoryPath& path, size_t depth, std::string_view url) {
  MemoryNode* node = &root_;
  for (size_t i = 0; i < depth; ++i) {
    std::unique_ptr<MemoryNode>& child = node->children[path[i]];
    if (child == nullptr) {
      child = std::make_unique<MemoryNode>();
      child->changed = ++changes_;
    } else if (!child->is_directory()) {
      return failed_precondition("{}: make directories: {} is a file", url, path[i]);
    }
    node = child.get();
  }
  return node;
}

void MemoryTree::forget(const MemoryNode& node) {
  if (node.content != nullptr) {
    bytes_ -= node.content->bytes.size();
    node.content->is_linked = false;
  }
  for (const auto& [name, child] : node.children) forget(*child);
}

StatusOr<std::shared_ptr<MemoryContent>> MemoryTree::open(const MemoryPath& path,
                                                          std::string_view url) {
  MutexLock lock(mutex_);
  const MemoryNode* node = find(path);
  if (node == nullptr) return not_found("{}: open for reading: no such file", url);
  if (node->is_directory()) return failed_precondition("{}: open for reading: is a directory", url);
  return node->content;
}

StatusOr<std::shared_ptr<MemoryContent>> MemoryTree::create(const MemoryPath& path,
                                                            Existing existing,
                                                            std::string_view url) {
  MutexLock lock(mutex_);
  if (path.empty()) return failed_precondition("{}: open for writing: is a directory", url);
  STARLING_ASSIGN_OR_RETURN(MemoryNode* const parent, make(path, path.size() - 1, url));
  std::unique_ptr<MemoryNode>& node = parent->children[path.back()];
  if (node == nullptr) {
    node = std::make_unique<MemoryNode>();
    node->content = std::make_shared<MemoryContent>();
    node->changed = ++changes_;
  } else if (existing == Existing::kKeep) {
    return already_exists("{}: open for writing: exists already", url);
  } else if (node->is_directory()) {
    return failed_precondition("{}: open for writing: is a directory", url);
  }
  return node->content;
}

Status MemoryTree::check_target(const MemoryPath& path, Existing existing, std::string_view url) {
  MutexLock lock(mutex_);
  const MemoryNode* node = find(path);
  if (node == nullptr) return absl::OkStatus();
  if (node->is_directory()) return failed_precondition("{}: open for writing: is a directory", url);
  if (existing == Existing::kKeep)
    return already_exists("{}: open for writing: exists already", url);
  return absl::OkStatus();
}

StatusOr<FileInfo> MemoryTree::stat(const MemoryPath& path, std::string_view url) {
  MutexLock lock(mutex_);
  const MemoryNode* node = find(path);
  if (node == nullptr) return not_found("{}: stat: no such file or directory", url);
  FileInfo info;
  info.url = url;
  info.is_directory = node->is_directory();
  info.bytes = node->content == nullptr ? 0 : node->content->bytes.size();
  info.modified_ms = node->changed;
  return info;
}

StatusOr<std::vector<FileInfo>> MemoryTree::list(const MemoryPath& path, std::string_view url) {
  MutexLock lock(mutex_);
  const MemoryNode* node = find(path);
  if (node == nullptr) return not_found("{}: list: no such directory", url);
  if (!node->is_directory()) return failed_precondition("{}: list: not a directory", url);
  std::vector<FileInfo> entries;
  for (const auto& [name, child] : node->children) {
    FileInfo info;
    info.url = join_url(url, name);
    info.is_directory = child->is_directory();
    info.bytes = child->content == nullptr ? 0 : child->content->bytes.size();
    info.modified_ms = child->changed;
    entries.push_back(std::move(info));
  }
  return entries;
}

Status MemoryTree::make_directories(const MemoryPath& path, std::string_view url) {
  MutexLock lock(mutex_);
  const MemoryNode* node = find(path);
  if (node != nullptr && !node->is_directory()) {
    return already_exists("{}: make directories: a file has this name", url);
  }
  return make(path, path.size(), url).status();
}

Status MemoryTree::rename(const MemoryPath& from, const MemoryPath& to, Existing existing,
                          std::string_view url) {
  MutexLock lock(mutex_);
  if (from.empty() || to.empty())
    return invalid_argument("{}: rename: the root stays where it is", url);
  const MemoryNode* source = find(from);
  if (source == nullptr) return not_found("{}: rename: no such file or directory", url);
  if (to.size() > from.size() && std::equal(from.begin(), from.end(), to.begin())) {
    return invalid_argument("{}: rename: a directory cannot move into itself", url);
  }
  MemoryNode* source_parent = find(MemoryPath(from.begin(), from.end() - 1));
  MemoryNode* target_parent = find(MemoryPath(to.begin(), to.end() - 1));
  if (target_parent == nullptr) return not_found("{}: rename: the new parent does not exist", url);
  if (!target_parent->is_directory())
    return failed_precondition("{}: rename: the new parent is a file", url);
  if (const auto target = target_parent->children.find(to.back());
      target != target_parent->children.end()) {
    const MemoryNode& old = *target->second;
    if (existing == Existing::kKeep)
      return already_exists("{}: rename: the new name is taken", url);
    if (&old == source) return absl::OkStatus();
    if (old.is_directory() != source->is_directory()) {
      return failed_precondition("{}: rename: a file and a directory cannot replace each other",
                                 url);
    }
    if (!old.children.empty())
      return failed_precondition("{}: rename: the directory is not empty", url);
    forget(old);
  }
  std::unique_ptr<MemoryNode> node = std::move(source_parent->children[from.back()]);
  source_parent->children.erase(from.back());
  node->changed = ++changes_;
  target_parent->children[to.back()] = std::move(node);
  return absl::OkStatus();
}

Status MemoryTree::remove(const MemoryPath& path, Recursive recursive, std::string_view url) {
  MutexLock lock(mutex_);
  const MemoryNode* node = find(path);
  if (node == nullptr) return not_found("{}: remove: no such file or directory", url);
  if (path.empty()) return invalid_argument("{}: remove: the root stays", url);
  if (recursive == Recursive::kNo && !node->children.empty()) {
    return failed_precondition("{}: remove: the directory is not empty", url);
  }
  forget(*node);
  ++changes_;
  find(MemoryPath(path.begin(), path.end() - 1))->children.erase(path.back());
  return absl::OkStatus();
}

size_t MemoryTree::read(const MemoryContent& content, uint64_t offset, std::span<std::byte> into) {
  MutexLock lock(mutex_);
  if (offset >= content.bytes.size()) return 0;
  const size_t count =
      std::min<size_t>(into.size(), content.bytes.size() - static_cast<size_t>(offset));
  if (count > 0) std::memcpy(into.data(), content.bytes.data() + offset, count);
  return count;
}

uint64_t MemoryTree::size(const MemoryContent& content) {
  MutexLock lock(mutex_);
  return content.bytes.size();
}

Status MemoryTree::append(MemoryContent& content, std::span<const std::byte> bytes,
                          std::string_view url) {
  MutexLock lock(mutex_);
  if (content.is_linked && bytes.size() > bytes_max_ - bytes_) {
    return resource_exhausted("{}: write: {} bytes do not fit, {} of {} are in use", url,
                              bytes.size(), bytes_, bytes_max_);
  }
  if (content.is_linked) bytes_ += bytes.size();
  content.bytes.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  ++changes_;
  return absl::OkStatus();
}

void MemoryTree::truncate(MemoryContent& content, uint64_t bytes) {
  MutexLock lock(mutex_);
  if (content.is_linked) bytes_ -= content.bytes.size() - bytes;
  content.bytes.resize(static_cast<size_t>(bytes));
  ++changes_;
}

}  // namespace starling
