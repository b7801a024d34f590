#include "store/hdfs/http.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace starling {
namespace {

constexpr size_t kReplyBytesMax = 64 << 20;  // a page of a listing has 1,000 entries, 1 MiB
constexpr size_t kErrorBytesMax = 256 << 10;
constexpr long kReceiveBytes = 512 << 10;
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
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return HttpOutcome::kNotSent;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return HttpOutcome::kUntrusted;
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

// SIZE_MAX when the head gives none.
size_t content_length(std::string_view head) {
  constexpr std::string_view kName = "content-length:";
  for (size_t at = head.find("\r\n"); at != std::string_view::npos;
       at = head.find("\r\n", at + 2)) {
    const std::string_view line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
    if (line.size() < kName.size()) continue;
    const bool is_it = std::equal(kName.begin(), kName.end(), line.begin(), [](char a, char b) {
      return a == std::tolower(static_cast<unsigned char>(b));
    });
    if (is_it)
      return static_cast<size_t>(
          std::strtoull(std::string(line.substr(kName.size())).c_str(), nullptr, 10));
  }
  return SIZE_MAX;
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
  const size_t direct = std::min(begin_ == end_ ? direct_.size() : 0, bytes.size());
  const std::string_view rest = bytes.substr(direct);
  if (rest.size() > buffer_.size() - (end_ - begin_)) {
    is_paused_ = true;
    return CURL_WRITEFUNC_PAUSE;
  }
  if (direct > 0) std::memcpy(direct_.data(), bytes.data(), direct);
  direct_ = direct_.subspan(direct);
  const size_t at = end_ % buffer_.size();
  const size_t first = std::min(rest.size(), buffer_.size() - at);
  std::memcpy(buffer_.data() + at, rest.data(), first);
  std::memcpy(buffer_.data(), rest.data() + first, rest.size() - first);
  end_ += rest.size();
  received_ += bytes.size();
  return bytes.size();
}

size_t HttpDownload::take(std::span<std::byte> into) {
  const size_t count = std::min(into.size(), end_ - begin_);
  const size_t at = begin_ % buffer_.size();
  const size_t first = std::min(count, buffer_.size() - at);
  std::memcpy(into.data(), buffer_.data() + at, first);
  std::memcpy(into.data() + first, buffer_.data(), count - first);
  begin_ += count;
  if (is_paused_ && end_ - begin_ <= buffer_.size() / 2) {
    is_paused_ = false;
    curl_easy_pause(handle_.get(), CURLPAUSE_CONT);
  }
  return count;
}

void HttpDownload::aim(std::span<std::byte> into) { direct_ = into; }

size_t HttpDownload::hit(std::span<std::byte> into) {
  const size_t count = into.size() - direct_.size();
  direct_ = {};
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

HttpUpload::HttpUpload(HttpPool& pool, const std::string& url, const Clock& clock)
    : handle_(pool.make_handle()), url_(url), clock_(clock) {}

bool HttpUpload::start(Duration stall) {
  CURL* h = handle_.get();
  curl_easy_setopt(h, CURLOPT_URL, url_.c_str());
  curl_easy_setopt(h, CURLOPT_CONNECT_ONLY, 1L);
  const CURLcode result = curl_easy_perform(h);
  if (result == CURLE_OK) curl_easy_getinfo(h, CURLINFO_ACTIVESOCKET, &socket_);
  if (result != CURLE_OK || socket_ == CURL_SOCKET_BAD) {
    // Whatever went wrong, no byte of the request has left.
    const bool is_untrusted = outcome_of(result) == HttpOutcome::kUntrusted;
    end(is_untrusted ? HttpOutcome::kUntrusted : HttpOutcome::kNotSent, curl_easy_strerror(result));
    return false;
  }
  // A larger buffer lets the data node's disk pause without stopping us.
  constexpr int kBufferBytes = 4 << 20;
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof(kBufferBytes));
  std::string_view rest = url_;
  rest.remove_prefix(std::min(rest.find("://") + 3, rest.size()));
  const size_t slash = std::min(rest.find_first_of("/?"), rest.size());
  const std::string head = fmt::format(
      "PUT {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: starling\r\nAccept: */*\r\n"
      "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
      rest.substr(slash), rest.substr(0, slash));
  return send_all(std::as_bytes(std::span(head)), stall);
}

bool HttpUpload::wait(short events, Duration time) const {
  pollfd ready{socket_, events, 0};
  return ::poll(&ready, 1, static_cast<int>(std::min(milliseconds_of(time), 1000L))) > 0;
}

void HttpUpload::end(HttpOutcome outcome, std::string error) {
  reply_.outcome = outcome;
  reply_.error = std::move(error);
  is_done_ = true;
}

bool HttpUpload::send_all(std::span<const std::byte> bytes, Duration stall) {
  Deadline deadline = Deadline::in(clock_, stall);
  while (!bytes.empty()) {
    size_t sent = 0;
    const CURLcode result = curl_easy_send(handle_.get(), bytes.data(), bytes.size(), &sent);
    if (result == CURLE_OK) {
      bytes = bytes.subspan(sent);
      deadline = Deadline::in(clock_, stall);
    } else if (result != CURLE_AGAIN) {
      // The reason may lie in what the other side sent before it closed.
      await_answer(stall);
      if (reply_.outcome != HttpOutcome::kReplied) reply_.error = curl_easy_strerror(result);
      return false;
    } else {
      const Duration left = deadline.left(clock_.now());
      if (left == Duration::zero()) {
        end(HttpOutcome::kLost, "nothing moved before the deadline");
        return false;
      }
      wait(POLLOUT | POLLIN, left);
      if (receive()) return false;
    }
  }
  return true;
}

bool HttpUpload::send(std::span<const std::byte> bytes, Duration stall) {
  if (is_done_) return false;
  if (bytes.empty()) return true;
  if (receive()) return false;
  const std::string head = fmt::format("{}{:x}\r\n", has_body_ ? "\r\n" : "", bytes.size());
  has_body_ = true;
  return send_all(std::as_bytes(std::span(head)), stall) && send_all(bytes, stall);
}

const HttpReply& HttpUpload::finish(Duration stall) {
  if (is_done_) return reply_;
  const std::string tail = has_body_ ? "\r\n0\r\n\r\n" : "0\r\n\r\n";
  if (send_all(std::as_bytes(std::span(tail)), stall)) await_answer(stall);
  return reply_;
}

void HttpUpload::await_answer(Duration stall) {
  const Deadline deadline = Deadline::in(clock_, stall);
  while (!receive()) {
    const Duration left = deadline.left(clock_.now());
    if (is_closed_ || left == Duration::zero()) {
      end(HttpOutcome::kLost,
          is_closed_ ? "the connection was closed without an answer" : "no answer by the deadline");
      return;
    }
    wait(POLLIN, left);
  }
}

bool HttpUpload::receive() {
  std::array<char, 4096> bytes{};
  while (!is_closed_ && received_.size() < kErrorBytesMax) {
    size_t got = 0;
    const CURLcode result = curl_easy_recv(handle_.get(), bytes.data(), bytes.size(), &got);
    if (result == CURLE_AGAIN) break;
    is_closed_ = result != CURLE_OK || got == 0;
    received_.append(bytes.data(), got);
  }
  return parse_answer();
}

bool HttpUpload::parse_answer() {
  while (true) {
    const size_t head_end = received_.find("\r\n\r\n");
    if (head_end == std::string::npos) return false;
    const std::string head = received_.substr(0, head_end + 2);
    // "HTTP/1.1 201 Created"
    const size_t space = head.find(' ');
    const long code = head.starts_with("HTTP/1.") && space != std::string::npos
                          ? std::atol(head.c_str() + space)
                          : 0;
    if (code >= 100 && code < 200) {  // a go-ahead that nobody asked for
      received_.erase(0, head_end + 4);
      continue;
    }
    const std::string_view body = std::string_view(received_).substr(head_end + 4);
    const size_t length = content_length(head);
    // Without a length the body ends with the connection.
    if (body.size() < length && !is_closed_ && received_.size() < kErrorBytesMax) return false;
    reply_.code = code;
    reply_.body = body;
    end(HttpOutcome::kReplied, "");
    return true;
  }
}

}  // namespace starling
