// The system calls of the local maker: errors as Status, descriptors that close themselves, durable
// directories.
//
// Uses: base. Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "store/file_system.h"
#include "store/url.h"

namespace starling {

// `url: operation: what the system said`, under the code that fits the errno.
Status system_error(int error, std::string_view url, std::string_view operation);

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { (void)close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // The errno of close(2), 0 when it went well or nothing was open.
  int close();

 private:
  int fd_ = -1;
};

// InvalidArgument when the URL is not one of this machine's files.
StatusOr<Url> parse_local(std::string_view url);

// Makes the names in a directory durable.
Status sync_directory(const std::string& path, std::string_view url);

// Makes `path` and its missing parents, each durable in its own parent.
Status make_directories_durable(const std::string& path, std::string_view url);

// The same for the parent of `path`. FailedPrecondition when that is a file.
Status make_parent_durable(const std::string& path, std::string_view url);

// One atomic rename; kKeep ends with AlreadyExists when the name is taken.
Status rename_path(const std::string& from, const std::string& to, Existing existing,
                   std::string_view url);

// Removes a directory and all below it. Depth is bounded by the disk alone: no recursion, two
// descriptors.
Status remove_tree(const std::string& path, std::string_view url);

}  // namespace starling
