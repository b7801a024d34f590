#include "bench/ps/served.h"

#include <fmt/format.h>

#include "ps/server.h"
#include "scheduler/memory_ledger.h"
#include "scheduler/server.h"

namespace starling::bench {
namespace {

constexpr Duration kPatience = seconds(60);

Deadline soon() { return Deadline::in(RealClock(), kPatience); }

// Answers a peer's call with nothing.
class Echo final : public Handler {
 public:
  void handle(Request, Reply reply) override { reply.send(Message()); }
};

}  // namespace

struct Servers::Parts {
  Metrics metrics;
  Echo echo;
  MemoryJournal journal;
  std::unique_ptr<Network> network;
  std::unique_ptr<SchedulerServer> scheduler;
  std::unique_ptr<PsServer> ps;
  std::unique_ptr<Server> echoing;
};

v1::CreateOption bench_tables() {
  v1::CreateOption option;
  v1::TableOptions* table = option.add_tables();
  table->set_name("t");
  table->set_dim(kDim);
  table->mutable_optimizer()->set_name("adagrad");
  return option;
}

StatusOr<std::unique_ptr<Servers>> Servers::start(Protocol protocol) {
  std::unique_ptr<Servers> servers(new Servers());
  servers->parts_ = std::make_unique<Parts>();
  Parts& parts = *servers->parts_;
  parts.network = make_network(NetOptions(), Log(), parts.metrics);
  const auto at = [protocol](const char* name) {
    return protocol == Protocol::kInproc ? Address{.protocol = protocol, .host = name}
                                         : Address{.protocol = protocol, .host = "127.0.0.1"};
  };
  SchedulerServerOptions scheduler;
  scheduler.listen = {at("scheduler")};
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<MemoryLedger> ledger,
                            MemoryLedger::open(parts.journal));
  STARLING_ASSIGN_OR_RETURN(
      parts.scheduler,
      SchedulerServer::start(*parts.network, std::move(scheduler), std::move(ledger), nullptr));
  PsServerOptions ps;
  ps.name = "ps-0";
  ps.scheduler = servers->scheduler();
  ps.listen = {at("ps-0")};
  ps.incarnation = 1;
  STARLING_ASSIGN_OR_RETURN(parts.ps, PsServer::start(*parts.network, std::move(ps)));
  STARLING_RETURN_IF_ERROR(parts.ps->wait_joined(soon()));
  ServerOptions echo;
  echo.listen = {at("echo")};
  echo.handlers.resize(1);
  echo.handlers[0][static_cast<size_t>(Service::kPeer)] = &parts.echo;
  STARLING_ASSIGN_OR_RETURN(parts.echoing, Server::start(*parts.network, std::move(echo)));
  return servers;
}

Servers::~Servers() {
  parts_->echoing.reset();
  parts_->ps.reset();
  parts_->scheduler.reset();
}

const Address& Servers::scheduler() const { return parts_->scheduler->addresses().front(); }
const Address& Servers::echo() const { return parts_->echoing->addresses().front(); }
Network& Servers::network() { return *parts_->network; }

StatusOr<std::unique_ptr<Served>> Served::start(Protocol protocol) {
  std::unique_ptr<Served> served(new Served());
  Address scheduler;
  if (protocol == Protocol::kInproc) {
    STARLING_ASSIGN_OR_RETURN(served->servers_, Servers::start(protocol));
    served->network_ = &served->servers_->network();
    served->echo_ = served->servers_->echo();
    scheduler = served->servers_->scheduler();
  } else {
    served->own_network_ = make_network(NetOptions(), Log(), served->metrics_);
    served->network_ = served->own_network_.get();
    STARLING_ASSIGN_OR_RETURN(served->child_,
                              Child::start({"--serve", std::string(protocol_name(protocol))}));
    STARLING_ASSIGN_OR_RETURN(const std::string first, served->child_->read_line(kPatience));
    STARLING_ASSIGN_OR_RETURN(const std::string second, served->child_->read_line(kPatience));
    STARLING_ASSIGN_OR_RETURN(scheduler, Address::parse(first));
    STARLING_ASSIGN_OR_RETURN(served->echo_, Address::parse(second));
  }
  STARLING_RETURN_IF_ERROR(served->join(scheduler));
  return served;
}

Status Served::join(const Address& scheduler) {
  control_ = network_->make_lane("control", 0);
  lane_ = network_->make_driven_lane();
  SchedulerClientOptions options;
  options.scheduler = scheduler;
  options.role = v1::ROLE_CLIENT;
  options.name = "bench";
  options.incarnation = 2;
  scheduler_ = std::make_unique<SchedulerClient>(*network_, control_, options, nullptr);
  STARLING_ASSIGN_OR_RETURN(const v1::RegisterReply reply, scheduler_->join_wait(soon()));
  PsClientOptions mine;
  mine.role = v1::ROLE_CLIENT;
  mine.incarnation = 2;
  ps_ = std::make_unique<PsClient>(*network_, lane_, mine, scheduler_.get());
  ps_->joined(reply);
  STARLING_RETURN_IF_ERROR(ps_->create(bench_tables(), soon()));
  STARLING_RETURN_IF_ERROR(ps_->freeze({}, soon()).status());
  plain_ = std::make_unique<Client>(*network_, lane_);
  return absl::OkStatus();
}

Status Served::exchange_nothing() {
  return plain_->call_wait({.address = echo_}, Method::kPeerCall, Message(), soon()).status();
}

Served::~Served() {
  plain_.reset();
  ps_.reset();
  if (control_ != nullptr) control_->stop();
  scheduler_.reset();
}

}  // namespace starling::bench
