// HTTP for the hdfs maker: short calls whose whole reply is kept, and streams that move while their
// owner waits.
//
// Uses: base, libcurl. Threads: HttpPool may be used from any thread; a stream and its HttpMulti
// have one owner.
#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace starling {

struct HttpOptions {
  Duration connect_timeout = seconds(5);
  std::string ca_file;         // PEM; the system's when empty
  bool is_https_only = false;  // a redirect may not leave TLS
};

enum class HttpMethod { kGet, kPut, kDelete };

enum class HttpOutcome {
  kReplied,
  kNotSent,    // no connection: the other side has not seen the request
  kLost,       // it may have been carried out
  kUntrusted,  // its certificate is not trusted: it has seen nothing, and a repeat is in vain
};

struct HttpReply {
  HttpOutcome outcome = HttpOutcome::kNotSent;
  long code = 0;
  std::string body;      // of short calls; of streams only when code is an error
  std::string location;  // where a redirect points
  std::string error;     // curl's words when there is no reply
};

// CURL and CURLM are both void to the outside, so each needs a closer of its own.
struct CurlCloser {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct CurlMultiCloser {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
using CurlHandle = std::unique_ptr<CURL, CurlCloser>;

// Keeps handles with their open connections for the next call.
class HttpPool {
 public:
  explicit HttpPool(HttpOptions options);

  const HttpOptions& options() const { return options_; }
  // One request without a body; redirects are reported, not followed.
  HttpReply call(HttpMethod method, const std::string& url, Duration timeout);
  // A handle with the options every request has.
  CurlHandle make_handle() const;

 private:
  const HttpOptions options_;
  Mutex mutex_;
  std::vector<CurlHandle> idle_ ABSL_GUARDED_BY(mutex_);
};

// Drives streams on the thread of whoever waits. Reuses connections between them.
class HttpMulti {
 public:
  HttpMulti();
  // Ends streams that are complete; what can move without waiting, moves.
  void perform();
  // As perform(), after waiting at most `time` for something to move.
  void wait(Duration time);
  // Ends a wait() on another thread.
  void wake();

  // Called when a stream has ended, with curl's result.
  using Done = std::function<void(CURLcode)>;
  void add(CURL* handle, Done* done);
  void remove(CURL* handle);

 private:
  std::unique_ptr<CURLM, CurlMultiCloser> multi_;
};

// One GET, redirects followed, whose body collects in a bounded buffer: a full one holds the sender
// back.
class HttpDownload {
 public:
  // `buffer` bounds what is held. More than `bytes_wanted` is an error.
  HttpDownload(HttpPool& pool, HttpMulti& multi, std::span<std::byte> buffer,
               uint64_t bytes_wanted);
  ~HttpDownload();
  HttpDownload(const HttpDownload&) = delete;
  HttpDownload& operator=(const HttpDownload&) = delete;

  void start(const std::string& url);
  // Empties the buffer into `into`, from the front.
  size_t take(std::span<std::byte> into);
  // While the buffer is empty, bytes that come go straight to `into`; hit() ends that and tells how
  // many did.
  void aim(std::span<std::byte> into);
  size_t hit(std::span<std::byte> into);

  bool is_done() const { return is_done_; }
  // How many bytes have come, taken or not.
  uint64_t received() const { return received_; }
  // The other side sent more than was asked for, and was cut off.
  bool has_too_much() const { return has_too_much_; }
  const HttpReply& reply() const { return reply_; }
  // Where the bytes came from, or should have: host:port of the last redirect.
  std::string peer() const;

 private:
  static size_t on_body(char* data, size_t size, size_t count, void* self);
  size_t accept(std::string_view bytes);
  void finish(CURLcode result);

  HttpMulti& multi_;
  const CurlHandle handle_;
  const std::span<std::byte> buffer_;
  const uint64_t bytes_wanted_;
  HttpMulti::Done done_;
  // The buffer is a ring: bytes begin_ to end_ of the stream of those that went through it.
  size_t begin_ = 0;
  size_t end_ = 0;
  std::span<std::byte> direct_;
  uint64_t received_ = 0;
  bool is_paused_ = false;
  bool is_done_ = false;
  bool has_too_much_ = false;
  HttpReply reply_;
};

// One PUT whose body is handed over piece by piece, each a chunk of the chunked encoding.
//
// libcurl connects and encrypts; the few lines of HTTP are our own, because a server that refuses a
// body closes at once, and only who reads after a failed send learns why.
class HttpUpload {
 public:
  // `clock` must outlive it.
  HttpUpload(HttpPool& pool, const std::string& url, const Clock& clock);

  // Connects and sends the head. False when the other side was not reached.
  bool start(Duration stall);
  // Hands `bytes` to the socket. False when the other side has answered or closed, or nothing moved
  // for `stall`.
  bool send(std::span<const std::byte> bytes, Duration stall);
  // Ends the body and waits for the answer.
  const HttpReply& finish(Duration stall);

  bool is_done() const { return is_done_; }
  const HttpReply& reply() const { return reply_; }

 private:
  bool send_all(std::span<const std::byte> bytes, Duration stall);
  // Reads what has come. True when the answer is whole.
  bool receive();
  bool parse_answer();
  // Waits for the answer after the last byte, or after a send that failed.
  void await_answer(Duration stall);
  // False when nothing came within `time`.
  bool wait(short events, Duration time) const;
  void end(HttpOutcome outcome, std::string error);

  const CurlHandle handle_;
  const std::string url_;
  const Clock& clock_;
  curl_socket_t socket_ = CURL_SOCKET_BAD;
  std::string received_;
  bool is_closed_ = false;  // by the other side
  bool is_done_ = false;
  bool has_body_ = false;
  HttpReply reply_;
};

// Percent-encodes all but unreserved characters; slashes stay when `keep_slashes`.
std::string percent_encode(std::string_view text, bool keep_slashes);

}  // namespace starling
