#include "store/hdfs/name_nodes.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/rng.h"

namespace starling {
namespace {

constexpr std::string_view kHttpPort = "9870";
constexpr std::string_view kHttpsPort = "9871";

std::string system_user() {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> storage{};
  if (::getpwuid_r(::geteuid(), &entry, storage.data(), storage.size(), &found) == 0 &&
      found != nullptr) {
    return found->pw_name;
  }
  return fmt::format("{}", ::geteuid());
}

std::vector<std::string> split_hosts(std::string_view authority) {
  std::vector<std::string> hosts;
  while (!authority.empty()) {
    const size_t comma = std::min(authority.find(','), authority.size());
    hosts.emplace_back(authority.substr(0, comma));
    authority.remove_prefix(std::min(comma + 1, authority.size()));
  }
  return hosts;
}

bool has_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  return colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
}

// Ports that name nodes use for RPC by habit: a silent one is more likely a mistake than a dead
// server.
bool is_habitual_rpc_port(std::string_view peer) {
  return peer.ends_with(":8020") || peer.ends_with(":9000") || peer.ends_with(":9820");
}

std::string port_hint(bool is_https) {
  return fmt::format("WebHDFS needs the name node's {} port ({}, {} by default)",
                     is_https ? "HTTPS" : "HTTP",
                     is_https ? "dfs.namenode.https-address" : "dfs.namenode.http-address",
                     is_https ? kHttpsPort : kHttpPort);
}

Status check_options(const HdfsOptions& options) {
  if (options.parallel_ranges < 1 || options.parallel_ranges > 64) {
    return invalid_argument("hdfs: parallel_ranges is {}, allowed are 1 to 64",
                            options.parallel_ranges);
  }
  if (options.range_bytes < (1 << 20) || options.range_bytes > (1 << 30)) {
    return invalid_argument("hdfs: range_bytes is {}, allowed are 1 MiB to 1 GiB",
                            options.range_bytes);
  }
  const Duration shortest =
      std::min({options.connect_timeout, options.call_timeout, options.stall_timeout,
                options.retry_for, options.backoff_min, options.backoff_max});
  if (shortest <= Duration::zero())
    return invalid_argument("hdfs: every timeout must be longer than nothing");
  return absl::OkStatus();
}

}  // namespace

Backoff::Backoff(const HdfsOptions& options, uint64_t seed)
    : max_(options.backoff_max), next_(options.backoff_min), seed_(seed) {}

bool Backoff::wait(const Clock& clock, Deadline deadline) {
  const double part = 0.5 + 0.5 * Rng(seed_, 0, draws_++).uniform();
  const Duration time(static_cast<int64_t>(static_cast<double>(next_.count()) * part));
  if (time >= deadline.left(clock.now())) return false;
  std::this_thread::sleep_for(time);
  next_ = std::min(next_ * 2, max_);
  return true;
}

StatusOr<std::shared_ptr<NameNodes>> NameNodes::make(const Url& url, HdfsOptions options,
                                                     const Clock& clock) {
  if (url.scheme == "swebhdfs") options.is_https = true;
  STARLING_RETURN_IF_ERROR(check_options(options));
  if (options.user.empty()) options.user = system_user();
  std::vector<std::string> hosts;
  if (const auto service = options.name_services.find(url.authority);
      service != options.name_services.end()) {
    hosts = service->second;
  } else {
    hosts = split_hosts(url.authority);
  }
  if (hosts.empty())
    return invalid_argument("{}: names no name node; write hdfs://host:port/path", url.text());
  for (std::string& host : hosts) {
    if (host.empty() || host.find_first_of("/?#@ \t\r\n") != std::string::npos) {
      return invalid_argument("{}: '{}' is no host", url.text(), host);
    }
    if (!has_port(host))
      host = fmt::format("{}:{}", host, options.is_https ? kHttpsPort : kHttpPort);
  }
  return std::shared_ptr<NameNodes>(new NameNodes(std::move(hosts), std::move(options), clock));
}

NameNodes::NameNodes(std::vector<std::string> hosts, HdfsOptions options, const Clock& clock)
    : hosts_(std::move(hosts)),
      options_(std::move(options)),
      clock_(clock),
      http_({.connect_timeout = options_.connect_timeout,
             .ca_file = options_.ca_file,
             .is_https_only = options_.is_https}),
      draws_(value(options_.incarnation)) {}

std::string NameNodes::http_url(
    std::string_view op, std::string_view path,
    const std::vector<std::pair<std::string, std::string>>& parameters) const {
  std::string url = fmt::format("{}://{}/webhdfs/v1{}?op={}", options_.is_https ? "https" : "http",
                                active_host(), percent_encode(path, true), op);
  // A token speaks for its user; both together are refused.
  if (options_.delegation_token.empty()) {
    url += fmt::format("&user.name={}", percent_encode(options_.user, false));
  } else {
    url += fmt::format("&delegation={}", percent_encode(options_.delegation_token, false));
  }
  for (const auto& [name, text] : parameters)
    url += fmt::format("&{}={}", name, percent_encode(text, false));
  return url;
}

bool NameNodes::is_name_node(std::string_view peer) const {
  return std::find(hosts_.begin(), hosts_.end(), peer) != hosts_.end();
}

Status NameNodes::error_of(const HttpReply& reply, std::string_view url, std::string_view what,
                           std::string_view peer) const {
  if (reply.outcome == HttpOutcome::kReplied) {
    if (is_rpc_port_reply(reply.body)) {
      return invalid_argument("{}: {}: {} is the RPC port; {}", url, what, peer,
                              port_hint(options_.is_https));
    }
    const Status status = remote_error(reply.code, reply.body);
    return with_context(status, fmt::format("{}: {}", url, what));
  }
  std::string message = fmt::format("{}: {}: {}: {}", url, what, peer, reply.error);
  if (reply.outcome == HttpOutcome::kUntrusted) return unauthenticated("{}", message);
  if (is_habitual_rpc_port(peer))
    message += "; this looks like the RPC port; " + port_hint(options_.is_https);
  return unavailable("{}", message);
}

StatusOr<HdfsAnswer> NameNodes::call(const HdfsCall& call, bool* was_lost) {
  const Deadline deadline = retry_deadline();
  Backoff backoff(options_, next_seed());
  uint64_t tries = 0;
  while (true) {
    const std::string peer = active_host();
    const std::string address = http_url(call.op, call.path, call.parameters);
    const Duration left = deadline.left(clock_.now());
    HttpReply reply =
        http_.call(call.method, address,
                   std::min(options_.call_timeout, std::max<Duration>(left, milliseconds(1))));
    ++tries;
    if (reply.outcome == HttpOutcome::kReplied && reply.code >= 200 && reply.code < 400) {
      return HdfsAnswer{std::move(reply.body), std::move(reply.location)};
    }
    const Status status = error_of(reply, call.url, call.what, peer);
    if (status.code() != StatusCode::kUnavailable) return status;
    if (reply.outcome == HttpOutcome::kLost && was_lost != nullptr) *was_lost = true;
    try_next_node();
    // The other one of a pair is asked at once.
    if (tries % hosts_.size() != 0) continue;
    if (call.is_once || !backoff.wait(clock_, deadline)) {
      return with_context(status, fmt::format("gave up after {} tries", tries));
    }
  }
}

StatusOr<HdfsFileStatus> NameNodes::stat(std::string_view path, std::string_view url,
                                         std::string_view what) {
  const HdfsCall request{
      .op = "GETFILESTATUS", .path = path, .parameters = {}, .url = url, .what = what};
  STARLING_ASSIGN_OR_RETURN(const HdfsAnswer answer, call(request));
  StatusOr<HdfsFileStatus> status = parse_file_status(answer.body);
  if (!status.ok()) return with_context(status.status(), fmt::format("{}: {}", url, what));
  return status;
}

Status NameNodes::rename(std::string_view from, std::string_view to, Existing existing,
                         std::string_view url) {
  STARLING_ASSIGN_OR_RETURN(const HdfsFileStatus source, stat(from, url, "rename"));
  return rename(from, to, existing, source.file_id, url);
}

Status NameNodes::rename(std::string_view from, std::string_view to, Existing existing,
                         uint64_t file_id, std::string_view url) {
  // With options a rename fails where it cannot do what was asked. Without, it answers 200 `false`,
  // or moves the file into a directory of that name.
  HdfsCall request{.method = HttpMethod::kPut,
                   .op = "RENAME",
                   .path = from,
                   .parameters = {},
                   .url = url,
                   .what = "rename"};
  request.parameters = {{"destination", std::string(to)},
                        {"renameoptions", existing == Existing::kReplace ? "OVERWRITE" : "NONE"}};
  bool was_lost = false;
  Status status = call(request, &was_lost).status();
  if (status.ok() || !was_lost) return status;
  // A lost answer: the file itself tells whether the rename happened.
  const StatusOr<HdfsFileStatus> now = stat(to, url, "rename");
  return now.ok() && now->file_id == file_id ? absl::OkStatus() : status;
}

std::string NameNodes::transfer_address(std::string_view peer) {
  const std::string address =
      fmt::format("{}://{}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo",
                  options_.is_https ? "https" : "http", active_host());
  const HttpReply reply = http_.call(HttpMethod::kGet, address, options_.call_timeout);
  std::string found;
  if (reply.outcome == HttpOutcome::kReplied && reply.code == 200)
    found = parse_transfer_address(reply.body, peer);
  return found.empty() ? std::string(peer.substr(0, peer.rfind(':'))) : found;
}

}  // namespace starling
