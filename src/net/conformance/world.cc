#include "net/conformance/world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <future>

#include "net/fast/transport.h"
#include "net/grpc/transport.h"
#include "net/inproc/transport.h"

namespace starling::conformance {

std::unique_ptr<Transport> make_transport(const Maker& maker, Network& network) {
  std::unique_ptr<Transport> transport;
  if (maker.protocol == Protocol::kFast) transport = std::make_unique<FastTransport>(network);
  if (maker.protocol == Protocol::kGrpc) transport = std::make_unique<GrpcTransport>(network);
  if (maker.protocol == Protocol::kInproc) transport = std::make_unique<InprocTransport>();
  if (!maker.faulty) return transport;
  return std::make_unique<FaultyTransport>(std::move(transport), maker.faults);
}

void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

NetOptions options_for(const Maker& maker) {
  NetOptions options;
  options.token = kToken;
  maker.tune(options);
  return options;
}

// grpc++ in all its ways: Unix socket with pulled replies, Unix socket alone, TCP of both kinds.
std::vector<Maker> bare_makers() {
  std::vector<Maker> makers = {{.name = "inproc", .protocol = Protocol::kInproc},
                               {.name = "grpc", .protocol = Protocol::kGrpc},
                               {.name = "fast", .protocol = Protocol::kFast},
                               {.name = "fast_unix",
                                .protocol = Protocol::kFast,
                                .tune = [](NetOptions& options) { options.pull = false; }},
                               {.name = "fast_tcp",
                                .protocol = Protocol::kFast,
                                .tune =
                                    [](NetOptions& options) {
                                      options.unix_sockets = false;
                                      options.pull = false;
                                    }},
                               {.name = "fast_tcp6",
                                .protocol = Protocol::kFast,
                                .host = "::1",
                                .tune = [](NetOptions& options) { options.unix_sockets = false; }}};
  return makers;
}

std::vector<Maker> and_wrapped(std::vector<Maker> makers) {
  std::vector<Maker> both;
  for (Maker& maker : makers) {
    both.push_back(maker);
    maker.name += "_in_faulty";
    maker.faulty = true;
    both.push_back(std::move(maker));
  }
  return both;
}

std::vector<Maker> all_makers() { return and_wrapped(bare_makers()); }

std::vector<Maker> bare_remote_makers() {
  std::vector<Maker> makers = bare_makers();
  std::erase_if(makers, [](const Maker& maker) { return !maker.remote(); });
  return makers;
}

std::vector<Maker> distinct_remote_makers() {
  std::vector<Maker> makers = bare_remote_makers();
  std::erase_if(makers, [](const Maker& maker) {
    return maker.name == "fast_unix" || maker.name == "fast_tcp6";
  });
  return makers;
}

std::vector<Maker> fast_makers() {
  std::vector<Maker> makers = bare_makers();
  std::erase_if(makers, [](const Maker& maker) { return maker.protocol != Protocol::kFast; });
  return makers;
}

std::vector<Maker> ipv4_makers() {
  std::vector<Maker> makers = bare_makers();
  std::erase_if(
      makers, [](const Maker& maker) { return maker.name != "fast_tcp" && maker.name != "grpc"; });
  return makers;
}

std::vector<Maker> faulty_makers() {
  const std::vector<std::pair<std::string, FaultOptions>> profiles = {
      {"drops", {.drop_request = 0.1, .drop_reply = 0.1}},
      {"delays", {.delay = 0.5}},
      {"repeats", {.repeat = 0.3}},
      {"cuts", {.cut = 0.02}},
      {"everything",
       {.drop_request = 0.05, .drop_reply = 0.05, .repeat = 0.1, .delay = 0.2, .cut = 0.01}}};
  std::vector<Maker> makers;
  for (const Maker& bare : bare_makers()) {
    for (const auto& [name, faults] : profiles) {
      Maker maker = bare;
      maker.name += "_with_" + name;
      maker.faulty = true;
      maker.faults = faults;
      makers.push_back(std::move(maker));
    }
  }
  return makers;
}

std::unique_ptr<Network> make_network_of(const Maker& maker, NetOptions options, Metrics& metrics) {
  auto network = std::make_unique<Network>(std::move(options), Log(), metrics);
  network->add(maker.protocol, make_transport(maker, *network));
  return network;
}

std::vector<Protocol> all_protocols() {
  return {Protocol::kInproc, Protocol::kFast, Protocol::kGrpc};
}

Done Ends::take(uint64_t id) {
  return [this, id](StatusOr<Message> result) {
    MutexLock lock(mutex_);
    results_[id].push_back(std::move(result));
    order_.push_back(id);
    changed_.notify_all();
  };
}

bool Ends::wait(size_t count) const { return wait(count, kPatience); }

bool Ends::wait(size_t count, Duration time) const {
  const Deadline deadline = Deadline::in(RealClock(), time);
  MutexLock lock(mutex_);
  while (results_.size() < count) {
    if (!changed_.wait(mutex_, deadline)) return results_.size() >= count;
  }
  return true;
}

size_t Ends::count() const {
  MutexLock lock(mutex_);
  return results_.size();
}

int Ends::times(uint64_t id) const {
  MutexLock lock(mutex_);
  auto it = results_.find(id);
  return it == results_.end() ? 0 : static_cast<int>(it->second.size());
}

StatusOr<Message> Ends::at(uint64_t id) const {
  MutexLock lock(mutex_);
  auto it = results_.find(id);
  if (it == results_.end()) return internal_error("call {} has not ended", id);
  return it->second.front();
}

std::vector<uint64_t> Ends::order() const {
  MutexLock lock(mutex_);
  return order_;
}

size_t Ends::count_of(StatusCode code) const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [id, results] : results_) {
    count += results.front().status().code() == code ? 1 : 0;
  }
  return count;
}

World::World(const Maker& maker, NetOptions options)
    : maker_(maker), network_(make_network_of(maker, std::move(options), metrics_)) {}

Address World::somewhere() const {
  if (!maker_.remote()) return {.protocol = maker_.protocol, .host = "server"};
  return {.protocol = maker_.protocol, .host = maker_.host};
}

Address World::somewhere_known() const {
  Address address = somewhere();
  if (maker_.remote()) address.port = free_port(address.host);
  return address;
}

LaneHandlers serving(Handler& handler) {
  LaneHandlers handlers{};
  handlers[static_cast<size_t>(Service::kPeer)] = &handler;
  handlers[static_cast<size_t>(Service::kPs)] = &handler;
  return handlers;
}

StatusOr<std::unique_ptr<Server>> World::try_serve(Handler& handler, uint32_t lanes, Address at) {
  ServerOptions options;
  options.role = Service::kPs;
  options.listen = {std::move(at)};
  options.handlers.assign(lanes, serving(handler));
  return Server::start(*network_, std::move(options));
}

std::unique_ptr<Server> World::serve(Handler& handler, uint32_t lanes) {
  return serve(handler, lanes, somewhere());
}

std::unique_ptr<Server> World::serve(Handler& handler, uint32_t lanes, Address at) {
  auto server = try_serve(handler, lanes, std::move(at));
  STARLING_CHECK(server.ok(), std::string(message_of(server.status())).c_str());
  return *std::move(server);
}

Target World::target(const Server& server, uint32_t lane) const {
  return {.address = *server.address(maker_.protocol), .lane = static_cast<LaneId>(lane)};
}

uint16_t free_port(const std::string& host) {
  const bool v6 = host.find(':') != std::string::npos;
  const int fd = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  STARLING_CHECK(fd >= 0, "no socket");
  sockaddr_storage address{};
  socklen_t bytes = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  address.ss_family = v6 ? AF_INET6 : AF_INET;
  void* where = v6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr)
                   : static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&address)->sin_addr);
  STARLING_CHECK(inet_pton(address.ss_family, host.c_str(), where) == 1, "not an address");
  STARLING_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0, "cannot bind");
  STARLING_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0, "no name");
  ::close(fd);
  return ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                  : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void turn(Lane& lane) {
  for (int round = 0; round < 2; ++round) {
    std::promise<void> ran;
    std::future<void> done = ran.get_future();
    lane.post([ran = std::move(ran)]() mutable { ran.set_value(); });
    done.wait();
  }
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

bool allow_files(size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= count) return true;
  limit.rlim_cur = count;
  if (limit.rlim_max < count) limit.rlim_max = count;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace starling::conformance
