#include "store/hdfs/writer.h"

#include <algorithm>

namespace starling {
namespace {

constexpr size_t kGatherBytes = 1 << 20;

std::string peer_of(std::string_view location) {
  if (const size_t scheme = location.find("://"); scheme != std::string_view::npos)
    location.remove_prefix(scheme + 3);
  return std::string(location.substr(0, location.find_first_of("/?")));
}

// CREATE would make the parents too, but the data node finds a wrong one, or a lack of rights, only
// while bytes flow.
Status prepare_parent(NameNodes& nodes, std::string_view parent, std::string_view url) {
  HdfsCall request{.method = HttpMethod::kPut,
                   .op = "MKDIRS",
                   .path = parent,
                   .parameters = {},
                   .url = url,
                   .what = "open for writing"};
  const Status made = nodes.call(request).status();
  if (made.code() == StatusCode::kAlreadyExists)
    return Status(StatusCode::kFailedPrecondition, made.message());
  STARLING_RETURN_IF_ERROR(made);
  request.method = HttpMethod::kGet;
  request.op = "CHECKACCESS";
  request.parameters = {{"fsaction", "-wx"}};
  return nodes.call(request).status();
}

}  // namespace

StatusOr<std::unique_ptr<Writer>> HdfsWriter::open(std::shared_ptr<NameNodes> nodes,
                                                   std::string_view path, std::string_view url,
                                                   Existing existing,
                                                   const std::string& temporary) {
  const StatusOr<HdfsFileStatus> old = nodes->stat(path, url, "open for writing");
  if (old.ok()) {
    if (old->is_directory) return failed_precondition("{}: open for writing: is a directory", url);
    if (existing == Existing::kKeep)
      return already_exists("{}: open for writing: exists already", url);
  } else if (old.status().code() != StatusCode::kNotFound) {
    return old.status();
  }
  const std::string parent = parent_path(path);
  STARLING_RETURN_IF_ERROR(prepare_parent(*nodes, parent, url));
  std::unique_ptr<HdfsWriter> writer(new HdfsWriter(std::move(nodes), std::string(path),
                                                    join_url(parent, temporary), std::string(url)));
  writer->existing_ = existing;
  STARLING_RETURN_IF_ERROR(writer->connect());
  return std::unique_ptr<Writer>(std::move(writer));
}

HdfsWriter::HdfsWriter(std::shared_ptr<NameNodes> nodes, std::string path, std::string temporary,
                       std::string url)
    : nodes_(std::move(nodes)),
      path_(std::move(path)),
      temporary_(std::move(temporary)),
      url_(std::move(url)) {}

HdfsWriter::~HdfsWriter() {
  if (is_published_ || upload_ == nullptr) return;
  // The data node makes its file some time after it has taken the connection, and its answer says
  // that it has: a removal before that would find nothing, and the file come after it.
  if (!upload_->is_done()) upload_->finish(nodes_->options().call_timeout);
  upload_.reset();
  // One try: a temporary that stays behind is found by its name later.
  nodes_->http().call(HttpMethod::kDelete, nodes_->http_url("DELETE", temporary_, {}),
                      nodes_->options().call_timeout);
}

Status HdfsWriter::connect() {
  const Deadline deadline = nodes_->retry_deadline();
  Backoff backoff(nodes_->options(), nodes_->next_seed());
  std::string excluded;
  while (true) {
    HdfsCall request{.method = HttpMethod::kPut,
                     .op = "CREATE",
                     .path = temporary_,
                     .parameters = {},
                     .url = url_,
                     .what = "open for writing"};
    request.parameters = {{"overwrite", "false"}};
    const HdfsOptions& options = nodes_->options();
    if (options.block_bytes > 0)
      request.parameters.emplace_back("blocksize", fmt::format("{}", options.block_bytes));
    if (options.replication > 0)
      request.parameters.emplace_back("replication", fmt::format("{}", options.replication));
    if (!excluded.empty()) request.parameters.emplace_back("excludedatanodes", excluded);
    request.is_once = !excluded.empty();
    const StatusOr<HdfsAnswer> answer = nodes_->call(request);
    if (!answer.ok()) {
      // With none left to try, those that failed may be back.
      const bool may_return =
          !excluded.empty() && answer.status().code() == StatusCode::kUnavailable;
      if (!may_return || !backoff.wait(nodes_->clock(), deadline)) return answer.status();
      excluded.clear();
      continue;
    }
    if (answer->location.empty())
      return unavailable("{}: open for writing: the name node names no data node", url_);
    peer_ = peer_of(answer->location);
    upload_ = std::make_unique<HttpUpload>(nodes_->http(), answer->location, nodes_->clock());
    // A refusal that is already there is reported by write().
    const bool is_sent = upload_->start(nodes_->options().stall_timeout);
    const HttpOutcome outcome = upload_->reply().outcome;
    if (is_sent || outcome == HttpOutcome::kReplied || outcome == HttpOutcome::kLost)
      return absl::OkStatus();
    Status status = upload_error();
    upload_.reset();
    if (status.code() != StatusCode::kUnavailable) return status;
    excluded += (excluded.empty() ? "" : ",") + nodes_->transfer_address(peer_);
    if (!backoff.wait(nodes_->clock(), deadline)) return status;
  }
}

Status HdfsWriter::upload_error() const {
  const HttpReply& reply = upload_->reply();
  if (reply.outcome == HttpOutcome::kReplied && reply.code < 400) {
    return unavailable("{}: write: {} answered HTTP {} before the end of the file", url_, peer_,
                       reply.code);
  }
  return nodes_->error_of(reply, url_, fmt::format("write at {}", written_), peer_);
}

Status HdfsWriter::send(std::span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  if (upload_->is_done() || !upload_->send(bytes, nodes_->options().stall_timeout))
    return upload_error();
  written_ += bytes.size();
  return absl::OkStatus();
}

Status HdfsWriter::write(std::span<const std::byte> bytes) {
  STARLING_RETURN_IF_ERROR(failed_);
  if (is_published_) return failed_ = failed_precondition("{}: write: already published", url_);
  if (pending_.size() + bytes.size() < kGatherBytes) {
    pending_.reserve(kGatherBytes);
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  failed_ = send(pending_);
  pending_.clear();
  if (failed_.ok()) failed_ = send(bytes);
  return failed_;
}

Status HdfsWriter::publish() {
  STARLING_RETURN_IF_ERROR(failed_);
  if (is_published_) return failed_precondition("{}: publish: already published", url_);
  failed_ = publish_once();
  is_published_ = failed_.ok();
  return failed_;
}

Status HdfsWriter::publish_once() {
  STARLING_RETURN_IF_ERROR(send(pending_));
  pending_ = {};
  const HttpReply& reply = upload_->finish(nodes_->options().stall_timeout);
  if (reply.outcome != HttpOutcome::kReplied || reply.code != 201) return upload_error();
  STARLING_ASSIGN_OR_RETURN(const HdfsFileStatus status, nodes_->stat(temporary_, url_, "publish"));
  if (status.bytes != written_) {
    return data_loss("{}: publish: HDFS holds {} of the {} bytes written", url_, status.bytes,
                     written_);
  }
  return nodes_->rename(temporary_, path_, existing_, status.file_id, url_);
}

}  // namespace starling
