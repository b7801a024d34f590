// gRPC at its leanest: one long bidirectional stream of raw bytes, slices that reference memory, a
// completion queue turned by the very thread that works.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <deque>
#include <set>

#include "base/thread.h"
#include "transport/kind.h"
#include "transport/rpc_status.h"

namespace starling::bench {
namespace {

constexpr const char* kMethod = "/starling.bench.Stream/Exchange";
// Slices up to here are copied, as that is cheaper than counting references.
constexpr size_t kCopyBytesMax = 4096;

grpc::Slice slice_of(const Buffer& buffer) {
  if (buffer.size() <= kCopyBytesMax) return {buffer.data(), buffer.size()};
  auto* kept = new Buffer(buffer);
  return {kept->mutable_data(), kept->size(), [](void* p) { delete static_cast<Buffer*>(p); },
          kept};
}

grpc::ByteBuffer bytes_of(const Buffer& buffer, uint32_t pieces) {
  std::vector<grpc::Slice> slices;
  slices.reserve(pieces);
  const size_t piece = buffer.size() / pieces;
  for (uint32_t i = 0; i < pieces; ++i) slices.push_back(slice_of(buffer.slice(i * piece, piece)));
  return {slices.data(), slices.size()};
}

// Copies [offset, offset + 8) of the message, which may lie across slices.
uint64_t word_at(const std::vector<grpc::Slice>& slices, size_t offset) {
  std::array<std::byte, sizeof(uint64_t)> word{};
  size_t have = 0;
  for (const grpc::Slice& slice : slices) {
    if (offset >= slice.size()) {
      offset -= slice.size();
      continue;
    }
    const size_t count = std::min(word.size() - have, slice.size() - offset);
    std::memcpy(word.data() + have, slice.begin() + offset, count);
    have += count;
    offset = 0;
    if (have == word.size()) break;
  }
  uint64_t number;
  std::memcpy(&number, word.data(), sizeof(number));
  return number;
}

// The stamp at both ends of a message, without making it one run of bytes.
StatusOr<uint64_t> stamp_of(const grpc::ByteBuffer& bytes, size_t expected_bytes) {
  if (bytes.Length() != expected_bytes) {
    return data_loss("{} bytes came, {} were expected", bytes.Length(), expected_bytes);
  }
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return data_loss("unreadable message");
  const uint64_t first = word_at(slices, 0);
  const uint64_t last = word_at(slices, expected_bytes - sizeof(uint64_t));
  if (first != last) return data_loss("stamp {} at the front, {} at the end", first, last);
  return first;
}

enum class Step : uint8_t { kStarted, kRead, kWritten, kFinished };

class ServerStream;
struct Event {
  ServerStream* stream;
  Step step;
};

// One stream of the server. Its first message is the Ask that all further ones keep to.
class ServerStream {
 public:
  explicit ServerStream(ReadyMemory& memory) : memory_(memory), io_(&context_) {}

  void request(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue& queue) {
    service.RequestCall(&context_, &io_, &queue, &queue, &started_);
  }
  // False when the stream has ended and nothing of it is under way.
  bool on(Step step, bool ok) {
    --pending_;
    if (step == Step::kWritten) writing_ = false;
    if (step == Step::kFinished || !ok) {
      ended_ = true;
    } else if (step == Step::kStarted) {
      read();
    } else if (step == Step::kRead) {
      on_message();
    }
    if (!ended_) write_next();
    if (ended_ && !finished_ && !writing_) {
      finished_ = true;
      replies_.clear();
      ++pending_;
      io_.Finish(status_, &done_);
    }
    return pending_ > 0;
  }

 private:
  void read() {
    ++pending_;
    io_.Read(&incoming_, &read_);
  }

  void on_message() {
    if (const Status status = answer(); !status.ok()) {
      status_ = to_grpc(status);
      ended_ = true;
      return;
    }
    read();
  }

  Status answer() {
    if (ask_.reply_bytes == 0) {
      grpc::Slice slice;
      if (!incoming_.DumpToSingleSlice(&slice).ok() || slice.size() != sizeof(ask_)) {
        return invalid_argument("a stream starts with what it asks for");
      }
      std::memcpy(&ask_, slice.begin(), sizeof(ask_));
      return ask_.check();
    }
    STARLING_ASSIGN_OR_RETURN(const uint64_t number, stamp_of(incoming_, ask_.request_bytes));
    replies_.push_back(bytes_of(memory_.take(ask_.reply_bytes, ask_.pieces, number), ask_.pieces));
    return absl::OkStatus();
  }

  void write_next() {
    if (writing_ || replies_.empty()) return;
    writing_ = true;
    ++pending_;
    io_.Write(replies_.front(), &written_);
    replies_.pop_front();
  }

  ReadyMemory& memory_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter io_;
  Event started_{this, Step::kStarted};
  Event read_{this, Step::kRead};
  Event written_{this, Step::kWritten};
  Event done_{this, Step::kFinished};
  Ask ask_;
  grpc::ByteBuffer incoming_;
  std::deque<grpc::ByteBuffer> replies_;
  grpc::Status status_;
  int pending_ = 1;  // the request for a call
  bool writing_ = false;
  bool ended_ = false;
  bool finished_ = false;
};

class StreamServing final : public Serving {
 public:
  static StatusOr<std::unique_ptr<Serving>> start() {
    auto serving = std::make_unique<StreamServing>();
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1).SetMaxSendMessageSize(-1);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &serving->port_);
    builder.RegisterAsyncGenericService(&serving->service_);
    serving->queue_ = builder.AddCompletionQueue();
    serving->server_ = builder.BuildAndStart();
    if (serving->server_ == nullptr) return unavailable("gRPC does not listen on loopback");
    StreamServing* self = serving.get();
    serving->thread_ = Thread({.name = "stream"}, [self] { self->run(); });
    return serving;
  }
  ~StreamServing() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    thread_.join();
  }
  std::string address() const override { return fmt::format("127.0.0.1:{}", port_); }

 private:
  void run() {
    std::set<ServerStream*> waiting;
    expect_one(&waiting);
    void* tag;
    bool ok;
    while (queue_->Next(&tag, &ok)) {
      const Event event = *static_cast<Event*>(tag);
      if (event.step == Step::kStarted) {
        waiting.erase(event.stream);
        if (!ok) {  // the server stops
          delete event.stream;
          continue;
        }
        expect_one(&waiting);
      }
      if (!event.stream->on(event.step, ok)) delete event.stream;
    }
    for (ServerStream* stream : waiting) delete stream;
  }

  void expect_one(std::set<ServerStream*>* waiting) {
    auto* stream = new ServerStream(memory_);
    waiting->insert(stream);
    stream->request(service_, *queue_);
  }

  ReadyMemory memory_;
  grpc::AsyncGenericService service_;
  int port_ = 0;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  Thread thread_;
};

class StreamCaller final : public Caller {
 public:
  explicit StreamCaller(const std::string& address) : stub_(unlimited_channel(address)) {}
  ~StreamCaller() override {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Status burst(const Load& load, TimePoint until, std::vector<Duration>* times) override {
    Stream stream(*this, load);
    Status status = stream.open();
    if (status.ok()) status = stream.run(until, times);
    status.Update(stream.close());
    return status;
  }

 private:
  struct Stream {
    Stream(StreamCaller& from, const Load& what)
        : caller(from), load(what), io(from.stub_.PrepareCall(&context, kMethod, &from.queue_)) {}

    Status wait(Step step) {
      while (true) {
        STARLING_ASSIGN_OR_RETURN(const Step came, next());
        if (came == step) return absl::OkStatus();
      }
    }
    StatusOr<Step> next() {
      void* tag;
      bool ok;
      if (!caller.queue_.Next(&tag, &ok)) return unavailable("the completion queue has ended");
      const auto step = static_cast<Step>(reinterpret_cast<uintptr_t>(tag));
      if (!ok && step != Step::kFinished) return unavailable("the stream has ended");
      return step;
    }
    static void* tag(Step step) { return reinterpret_cast<void*>(static_cast<uintptr_t>(step)); }

    Status open() {
      io->StartCall(tag(Step::kStarted));
      STARLING_RETURN_IF_ERROR(wait(Step::kStarted));
      const Ask ask = Ask::of(load);
      const grpc::Slice slice(&ask, sizeof(ask));
      io->Write(grpc::ByteBuffer(&slice, 1), tag(Step::kWritten));
      return wait(Step::kWritten);
    }

    void ask_next(TimePoint now) {
      const uint64_t number = ++caller.number_;
      open_calls.push_back({number, now});
      requests.push_back(bytes_of(caller.memory_.take(load.request_bytes, 1, number), 1));
      write_next();
    }
    void write_next() {
      if (writing || requests.empty()) return;
      writing = true;
      io->Write(requests.front(), tag(Step::kWritten));
      requests.pop_front();
    }

    Status run(TimePoint until, std::vector<Duration>* times) {
      for (uint32_t i = 0; i < load.in_flight; ++i) ask_next(caller.clock_.now());
      grpc::ByteBuffer reply;
      io->Read(&reply, tag(Step::kRead));
      while (true) {
        STARLING_ASSIGN_OR_RETURN(const Step step, next());
        if (step == Step::kWritten) {
          writing = false;
          write_next();
        }
        if (step != Step::kRead) continue;
        STARLING_ASSIGN_OR_RETURN(const uint64_t number, stamp_of(reply, load.reply_bytes));
        if (number != open_calls.front().number) {
          return data_loss("stamp {} came, {} was expected", number, open_calls.front().number);
        }
        const TimePoint now = caller.clock_.now();
        times->push_back(now - open_calls.front().start);
        open_calls.pop_front();
        if (now < until) ask_next(now);
        if (open_calls.empty()) break;
        io->Read(&reply, tag(Step::kRead));
      }
      return writing ? wait(Step::kWritten) : absl::OkStatus();
    }

    Status close() {
      context.TryCancel();
      grpc::Status ended;
      io->Finish(&ended, tag(Step::kFinished));
      while (true) {
        void* tag;
        bool ok;
        if (!caller.queue_.Next(&tag, &ok)) return unavailable("the completion queue has ended");
        if (static_cast<Step>(reinterpret_cast<uintptr_t>(tag)) == Step::kFinished) break;
      }
      if (ended.error_code() == grpc::StatusCode::CANCELLED) return absl::OkStatus();
      return from_grpc(ended);
    }

    struct OpenCall {
      uint64_t number;
      TimePoint start;
    };
    StreamCaller& caller;
    const Load load;
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> io;
    std::deque<OpenCall> open_calls;
    std::deque<grpc::ByteBuffer> requests;
    bool writing = false;
  };

  const RealClock clock_;
  ReadyMemory memory_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  uint64_t number_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Serving>> serve_stream() { return StreamServing::start(); }
StatusOr<std::unique_ptr<Caller>> call_stream(const std::string& address) {
  return std::make_unique<StreamCaller>(address);
}

}  // namespace starling::bench
