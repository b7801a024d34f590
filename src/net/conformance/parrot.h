// Parrot is the handler of the suite: it does what the request's name says and remembers what it
// did.
//
// Uses: net. Threads: any; handle() and on_peer() as the net calls them.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/sanitized.h"
#include "base/thread.h"
#include "net/server.h"

namespace starling::conformance {

// How long the suite waits for what must happen. Nothing is measured by it.
inline constexpr Duration kPatience = seconds(60);
Deadline patience();

// What a request may ask for, by its name.
inline constexpr std::string_view kEcho = "echo";      // the same message back
inline constexpr std::string_view kHold = "hold";      // kept until release()
inline constexpr std::string_view kDrop = "drop";      // the Reply dies unanswered
inline constexpr std::string_view kFail = "fail";      // the code in header.number
inline constexpr std::string_view kMake = "make";      // a tensor of header.number bytes
inline constexpr std::string_view kThread = "thread";  // as echo, from a thread of its own
inline constexpr std::string_view kWait = "wait";      // as echo, after open(); holds its thread
inline constexpr std::string_view kCount = "count";    // how often header.number was handled

// A request to do `command`; `id` names it in what the Parrot remembers.
Message ask(std::string_view command, uint64_t id, uint64_t number = 0);
// The same with one tensor whose bytes follow from the id.
Message ask_with(std::string_view command, uint64_t id, size_t bytes);
Tensor tensor_of(uint64_t id, size_t bytes);
// True when the tensor is the one that tensor_of(id, bytes) makes.
bool is_tensor_of(const Tensor& tensor, uint64_t id, size_t bytes);

class Parrot : public Handler {
 public:
  Parrot() = default;
  // Held replies fail with INTERNAL.
  ~Parrot() override;

  void handle(Request request, Reply reply) override;
  // Save is what runs on the pool.
  bool blocks(Method method) const override { return method == Method::kPsSave; }
  void on_peer(const Peer& peer, bool came) override;

  // The ids of the requests handled, in their order.
  std::vector<uint64_t> handled() const;
  int times(uint64_t id) const;
  std::vector<Peer> came() const;
  std::vector<Peer> gone() const;
  std::vector<Tensor> seen() const;  // the tensors of held requests

  size_t held() const;
  size_t held_cancelled() const;
  // Answers everything that is held, the last one first.
  void release();
  // Forgets everything that is held: the Replies die.
  void drop_held();
  // Lets `wait` requests go on, now and later.
  void open();

  // Waits until `done`, which is asked after each event; false when the patience is at its end.
  bool wait_for(const Function<bool() const>& done) const;

 private:
  struct Held {
    Message message;
    Reply reply;
  };
  std::deque<Held> take_held();

  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> handled_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int> times_ ABSL_GUARDED_BY(mutex_);
  std::deque<Held> held_ ABSL_GUARDED_BY(mutex_);
  std::vector<Peer> came_ ABSL_GUARDED_BY(mutex_);
  std::vector<Peer> gone_ ABSL_GUARDED_BY(mutex_);
  std::vector<Thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::conformance
