#include "net/conformance/parrot.h"

#include <cstring>

namespace starling::conformance {
namespace {

// Word `i` of the tensor of `id`: neighbours and ids differ, so that a shifted or swapped copy
// shows.
uint64_t word_of(uint64_t id, size_t i) { return id * 0x9e3779b97f4a7c15 + i * 0x10001; }

}  // namespace

Deadline patience() { return Deadline::in(RealClock(), kPatience); }

Message ask(std::string_view command, uint64_t id, uint64_t number) {
  Message message;
  message.meta.set_name(std::string(command));
  message.meta.mutable_header()->set_request_id(id);
  message.meta.mutable_header()->set_number(number);
  return message;
}

Message ask_with(std::string_view command, uint64_t id, size_t bytes) {
  Message message = ask(command, id);
  message.tensors.push_back(tensor_of(id, bytes));
  return message;
}

Tensor tensor_of(uint64_t id, size_t bytes) {
  Tensor tensor = Tensor::allocate(DType::kUInt8, {static_cast<int64_t>(bytes)});
  uint8_t* out = tensor.mutable_values<uint8_t>().data();
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = word_of(id, i);
    std::memcpy(out + i, &word, std::min(sizeof(word), bytes - i));
  }
  return tensor;
}

bool is_tensor_of(const Tensor& tensor, uint64_t id, size_t bytes) {
  if (tensor.dtype() != DType::kUInt8 || tensor.bytes() != bytes) return false;
  const uint8_t* in = tensor.values<uint8_t>().data();
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = word_of(id, i);
    if (std::memcmp(in + i, &word, std::min(sizeof(word), bytes - i)) != 0) return false;
  }
  return true;
}

Parrot::~Parrot() {
  std::vector<Thread> threads;
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
}

void Parrot::handle(Request request, Reply reply) {
  Message& message = request.message;
  const std::string& command = message.meta.name();
  const uint64_t id = message.meta.header().request_id();
  const uint64_t number = message.meta.header().number();
  MutexLock lock(mutex_);
  handled_.push_back(id);
  ++times_[id];
  if (command == kEcho) {
    reply.send(std::move(message));
  } else if (command == kHold) {
    held_.push_back({std::move(message), std::move(reply)});
  } else if (command == kFail) {
    reply.fail(Status(static_cast<StatusCode>(number), fmt::format("as request {} asked", id)));
  } else if (command == kMake) {
    Message made = ask(command, id);
    made.tensors.push_back(tensor_of(id, number));
    reply.send(std::move(made));
  } else if (command == kThread) {
    threads_.emplace_back(ThreadOptions{.name = "parrot"},
                          [shared = std::make_shared<std::pair<Message, Reply>>(std::move(message),
                                                                                std::move(reply))] {
                            shared->second.send(std::move(shared->first));
                          });
  } else if (command == kWait) {
    const Deadline deadline = patience();
    changed_.notify_all();
    while (!open_ && changed_.wait(mutex_, deadline)) {
    }
    reply.send(std::move(message));
  } else if (command == kCount) {
    reply.send(ask(command, id, static_cast<uint64_t>(times_[number])));
  }
  changed_.notify_all();
}

void Parrot::on_peer(const Peer& peer, bool came) {
  MutexLock lock(mutex_);
  (came ? came_ : gone_).push_back(peer);
  changed_.notify_all();
}

std::vector<uint64_t> Parrot::handled() const {
  MutexLock lock(mutex_);
  return handled_;
}

int Parrot::times(uint64_t id) const {
  MutexLock lock(mutex_);
  auto it = times_.find(id);
  return it == times_.end() ? 0 : it->second;
}

std::vector<Peer> Parrot::came() const {
  MutexLock lock(mutex_);
  return came_;
}

std::vector<Peer> Parrot::gone() const {
  MutexLock lock(mutex_);
  return gone_;
}

std::vector<Tensor> Parrot::seen() const {
  MutexLock lock(mutex_);
  std::vector<Tensor> all;
  for (const Held& held : held_) {
    all.insert(all.end(), held.message.tensors.begin(), held.message.tensors.end());
  }
  return all;
}

size_t Parrot::held() const {
  MutexLock lock(mutex_);
  return held_.size();
}

size_t Parrot::held_cancelled() const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const Held& held : held_) count += held.reply.cancelled() ? 1 : 0;
  return count;
}

std::deque<Parrot::Held> Parrot::take_held() {
  MutexLock lock(mutex_);
  return std::exchange(held_, {});
}

void Parrot::release() {
  std::deque<Held> held = take_held();
  for (; !held.empty(); held.pop_back()) held.back().reply.send(std::move(held.back().message));
}

void Parrot::drop_held() { take_held().clear(); }

void Parrot::open() {
  MutexLock lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

bool Parrot::wait_for(const Function<bool() const>& done) const {
  const Deadline deadline = patience();
  const RealClock clock;
  while (!done()) {
    if (deadline.passed(clock.now())) return false;
    MutexLock lock(mutex_);
    // Cancellations come without an event.
    changed_.wait(mutex_, Deadline::in(clock, milliseconds(20)));
  }
  return true;
}

}  // namespace starling::conformance
