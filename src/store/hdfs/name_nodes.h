// NameNodes speaks WebHDFS to the name nodes of one cluster: tries them in turn, repeats what is
// safe to repeat, and gives up at a deadline.
//
// Uses: base, libcurl. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/hdfs/file_system.h"
#include "store/hdfs/http.h"
#include "store/hdfs/reply.h"

namespace starling {

// Waits longer each time, a little differently each time, so that many clients do not come back at
// once.
class Backoff {
 public:
  Backoff(const HdfsOptions& options, uint64_t seed);
  // False when `deadline` would pass first; then it has not waited.
  bool wait(const Clock& clock, Deadline deadline);

 private:
  const Duration max_;
  Duration next_;
  uint64_t draws_ = 0;
  const uint64_t seed_;
};

struct HdfsCall {
  HttpMethod method = HttpMethod::kGet;
  std::string_view op;    // "GETFILESTATUS"
  std::string_view path;  // not encoded
  std::vector<std::pair<std::string, std::string>> parameters;
  std::string_view url;   // for messages
  std::string_view what;  // "stat", for messages
  bool is_once = false;   // each name node is asked once, whatever happens
};

// A reply that was not an error.
struct HdfsAnswer {
  std::string body;
  std::string location;
};

class NameNodes {
 public:
  static StatusOr<std::shared_ptr<NameNodes>> make(const Url& url, HdfsOptions options,
                                                   const Clock& clock);

  const HdfsOptions& options() const { return options_; }
  const Clock& clock() const { return clock_; }
  HttpPool& http() { return http_; }
  Deadline retry_deadline() const { return Deadline::in(clock_, options_.retry_for); }

  // Makes the call, repeated while nobody answers. `was_lost` is set when an earlier try may have
  // been carried out.
  StatusOr<HdfsAnswer> call(const HdfsCall& call, bool* was_lost = nullptr);
  StatusOr<HdfsFileStatus> stat(std::string_view path, std::string_view url, std::string_view what);
  // The same file under a new name, atomically. `file_id` recognises a rename whose answer was
  // lost.
  Status rename(std::string_view from, std::string_view to, Existing existing,
                std::string_view url);
  Status rename(std::string_view from, std::string_view to, Existing existing, uint64_t file_id,
                std::string_view url);

  // The address of a call at the name node that answered last, and the next one when that fails.
  std::string http_url(std::string_view op, std::string_view path,
                       const std::vector<std::pair<std::string, std::string>>& parameters) const;
  void try_next_node() { active_.fetch_add(1, std::memory_order_relaxed); }
  bool is_name_node(std::string_view peer) const;
  // What `excludedatanodes` takes for the data node whose web server is `peer`; the host alone when
  // nobody knows.
  std::string transfer_address(std::string_view peer);
  uint64_t next_seed() { return draws_.fetch_add(1, std::memory_order_relaxed); }

  // The reply of a failed request as a Status with its context. `peer` is who should have answered.
  Status error_of(const HttpReply& reply, std::string_view url, std::string_view what,
                  std::string_view peer) const;

 private:
  NameNodes(std::vector<std::string> hosts, HdfsOptions options, const Clock& clock);
  const std::string& active_host() const {
    return hosts_[active_.load(std::memory_order_relaxed) % hosts_.size()];
  }

  const std::vector<std::string> hosts_;  // host:port
  const HdfsOptions options_;
  const Clock& clock_;
  HttpPool http_;
  std::atomic<size_t> active_{0};
  std::atomic<uint64_t> draws_{0};
};

}  // namespace starling
