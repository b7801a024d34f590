#include "store/hdfs/http.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace starling {
namespace {

constexpr size_t kReplyBytesMax = 64 << 20;  // a page of a listing has 1,000 entries, 1 MiB
constexpr size_t kErrorBytesMax = 256 << 10;
constexpr long kReceiveBytes = 512 << 10;
constexpr long kSendBytes = 1 << 20;
constexpr size_t kIdleMax = 16;

long milliseconds_of(Duration time) {
  return std::max(1L, static_cast<long>(std::chrono::duration_cast<milliseconds>(time).count()));
}

HttpOutcome outcome_of(CURLcode result) {
  switch (result) {
    case CURLE_OK:
      return HttpOutcome::kReplied;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return HttpOutcome::kNotSent;
    default:
      return HttpOutcome::kLost;
  }
}

size_t collect(char* data, size_t size, size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > kReplyBytesMax) return 0;
  text.append(data, size * count);
  return size * count;
}

void fill(HttpReply& reply, CURL* handle, CURLcode result) {
  reply.outcome = outcome_of(result);
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &reply.code);
  const char* location = nullptr;
  curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &location);
  if (location != nullptr) reply.location = location;
  if (result != CURLE_OK) reply.error = curl_easy_strerror(result);
}

}  // namespace

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

HttpPool::HttpPool(HttpOptions options) : options_(std::move(options)) {
  // libcurl counts these calls; the last handle may outlive this pool, so none is undone.
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  STARLING_CHECK(ready == CURLE_OK, "libcurl cannot start");
}

CurlHandle HttpPool::make_handle() const {
  CurlHandle handle(curl_easy_init());
  STARLING_CHECK(handle != nullptr, "out of memory");
  CURL* h = handle.get();
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_PROXY, "");  // libcurl would look into the environment
  curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, milliseconds_of(options_.connect_timeout));
  curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, options_.is_https_only ? "https" : "http,https");
  if (!options_.ca_file.empty()) curl_easy_setopt(h, CURLOPT_CAINFO, options_.ca_file.c_str());
  return handle;
}

HttpReply HttpPool::call(HttpMethod method, const std::string& url, Duration timeout) {
  CurlHandle handle;
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      handle = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (handle == nullptr) handle = make_handle();
  CURL* h = handle.get();
  HttpReply reply;
  curl_easy_setopt(h, CURLOPT_URL, url.c_str());
  curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, milliseconds_of(timeout));
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, &collect);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, &reply.body);
  curl_easy_setopt(h, CURLOPT_HTTPGET, 1L);
  const char* verb = method == HttpMethod::kPut      ? "PUT"
                     : method == HttpMethod::kDelete ? "DELETE"
                                                     : nullptr;
  curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, verb);
  const CURLcode result = curl_easy_perform(h);
  fill(reply, h, result);
  MutexLock lock(mutex_);
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(handle));
  return reply;
}

HttpMulti::HttpMulti() : multi_(curl_multi_init()) {
  STARLING_CHECK(multi_ != nullptr, "out of memory");
}

void HttpMulti::add(CURL* handle, Done* done) {
  curl_easy_setopt(handle, CURLOPT_PRIVATE, done);
  STARLING_CHECK(curl_multi_add_handle(multi_.get(), handle) == CURLM_OK, "a stream is added once");
}

void HttpMulti::remove(CURL* handle) { curl_multi_remove_handle(multi_.get(), handle); }

void HttpMulti::perform() {
  int running = 0;
  curl_multi_perform(multi_.get(), &running);
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Done* done = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &done);
    (*done)(message->data.result);
  }
}

void HttpMulti::wait(Duration time) {
  curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(milliseconds_of(time)), nullptr);
  perform();
}

void HttpMulti::wake() { curl_multi_wakeup(multi_.get()); }

HttpDownload::HttpDownload(HttpPool& pool, HttpMulti& multi, std::span<std::byte> buffer,
                           uint64_t bytes_wanted)
    : multi_(multi), handle_(pool.make_handle()), buffer_(buffer), bytes_wanted_(bytes_wanted) {
  done_ = [this](CURLcode result) { finish(result); };
}

HttpDownload::~HttpDownload() { multi_.remove(handle_.get()); }

void HttpDownload::start(const std::string& url) {
  CURL* h = handle_.get();
  curl_easy_setopt(h, CURLOPT_URL, url.c_str());
  curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(h, CURLOPT_MAXREDIRS, 3L);
  curl_easy_setopt(h, CURLOPT_BUFFERSIZE, kReceiveBytes);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, &HttpDownload::on_body);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, this);
  multi_.add(h, &done_);
  multi_.perform();
}

size_t HttpDownload::on_body(char* data, size_t size, size_t count, void* self) {
  return static_cast<HttpDownload*>(self)->accept({data, size * count});
}

size_t HttpDownload::accept(std::string_view bytes) {
  long code = 0;
  curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &code);
  if (code != 200) {
    const size_t free = kErrorBytesMax - std::min(kErrorBytesMax, reply_.body.size());
    reply_.body.append(bytes.substr(0, free));
    return bytes.size();
  }
  if (bytes.size() > bytes_wanted_ - received_) {
    has_too_much_ = true;
    return 0;
  }
  if (bytes.size() > buffer_.size() - end_) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (bytes.size() > buffer_.size() - end_) {
      is_paused_ = true;
      return CURL_WRITEFUNC_PAUSE;
    }
  }
  std::memcpy(buffer_.data() + end_, bytes.data(), bytes.size());
  end_ += bytes.size();
  received_ += bytes.size();
  return bytes.size();
}

size_t HttpDownload::take(std::span<std::byte> into) {
  const size_t count = std::min(into.size(), end_ - begin_);
  if (count > 0) std::memcpy(into.data(), buffer_.data() + begin_, count);
  begin_ += count;
  if (begin_ == end_) begin_ = end_ = 0;
  if (is_paused_ && end_ - begin_ <= buffer_.size() / 2) {
    is_paused_ = false;
    curl_easy_pause(handle_.get(), CURLPAUSE_CONT);
  }
  return count;
}

void HttpDownload::finish(CURLcode result) {
  fill(reply_, handle_.get(), result);
  is_done_ = true;
  multi_.remove(handle_.get());
}

std::string HttpDownload::peer() const {
  const char* url = nullptr;
  curl_easy_getinfo(handle_.get(), CURLINFO_EFFECTIVE_URL, &url);
  if (url == nullptr) return "";
  std::string_view text = url;
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos)
    text.remove_prefix(scheme + 3);
  return std::string(text.substr(0, text.find_first_of("/?")));
}

HttpUpload::HttpUpload(HttpPool& pool, const std::string& url) : handle_(pool.make_handle()) {
  CURL* h = handle_.get();
  // Without it curl waits a second for a go-ahead that tells nothing: the other side gives it
  // before it looks.
  headers_.reset(curl_slist_append(nullptr, "Expect:"));
  headers_.reset(curl_slist_append(headers_.release(), "Content-Type: application/octet-stream"));
  curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers_.get());
  curl_easy_setopt(h, CURLOPT_URL, url.c_str());
  curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, kSendBytes);
  curl_easy_setopt(h, CURLOPT_READFUNCTION, &HttpUpload::on_need);
  curl_easy_setopt(h, CURLOPT_READDATA, this);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, &HttpUpload::on_body);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, this);
  done_ = [this](CURLcode result) { complete(result); };
  multi_.add(h, &done_);
}

HttpUpload::~HttpUpload() { multi_.remove(handle_.get()); }

size_t HttpUpload::on_need(char* into, size_t size, size_t count, void* self) {
  auto& upload = *static_cast<HttpUpload*>(self);
  upload.is_asked_ = true;
  if (upload.pending_.empty()) {
    if (upload.is_ending_) return 0;
    upload.is_paused_ = true;
    return CURL_READFUNC_PAUSE;
  }
  const size_t bytes = std::min(size * count, upload.pending_.size());
  std::memcpy(into, upload.pending_.data(), bytes);
  upload.pending_ = upload.pending_.subspan(bytes);
  return bytes;
}

size_t HttpUpload::on_body(char* data, size_t size, size_t count, void* self) {
  auto& upload = *static_cast<HttpUpload*>(self);
  const size_t free = kErrorBytesMax - std::min(kErrorBytesMax, upload.reply_.body.size());
  upload.reply_.body.append(data, std::min(free, size * count));
  return size * count;
}

void HttpUpload::complete(CURLcode result) {
  fill(reply_, handle_.get(), result);
  is_done_ = true;
}

bool HttpUpload::drive(const std::function<bool()>& is_enough, Duration stall) {
  curl_off_t moved = -1;
  Deadline deadline = Deadline::in(clock_, stall);
  multi_.perform();
  while (!is_done_ && !is_enough()) {
    const TimePoint now = clock_.now();
    curl_off_t total = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_SIZE_UPLOAD_T, &total);
    if (total != moved) {
      moved = total;
      deadline = Deadline(now + stall);
    } else if (deadline.passed(now)) {
      reply_.outcome = is_asked_ ? HttpOutcome::kLost : HttpOutcome::kNotSent;
      reply_.error = fmt::format("nothing moved for {} ms",
                                 std::chrono::duration_cast<milliseconds>(stall).count());
      is_done_ = true;
      return false;
    }
    multi_.wait(std::min<Duration>(deadline.left(now), seconds(1)));
  }
  return !is_done_;
}

bool HttpUpload::start(Duration timeout) {
  return drive([this] { return is_asked_; }, timeout);
}

bool HttpUpload::send(std::span<const std::byte> bytes, Duration stall) {
  pending_ = bytes;
  if (is_paused_) {
    is_paused_ = false;
    curl_easy_pause(handle_.get(), CURLPAUSE_CONT);
  }
  const bool sent = drive([this] { return pending_.empty(); }, stall);
  pending_ = {};
  return sent;
}

HttpReply HttpUpload::finish(Duration timeout) {
  is_ending_ = true;
  if (is_paused_) {
    is_paused_ = false;
    curl_easy_pause(handle_.get(), CURLPAUSE_CONT);
  }
  drive([] { return false; }, timeout);
  return reply_;
}

}  // namespace starling
