// World is a whole job in one process, over any transport: a scheduler, some ps, and nodes that
// train on them.
//
// Uses: every role's door; for tests only. Threads: real lanes; a World belongs to its test.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "net/makers.h"
#include "ps/client.h"
#include "ps/server.h"
#include "scheduler/client.h"
#include "scheduler/memory_ledger.h"
#include "scheduler/server.h"

namespace starling::cluster {

inline Deadline soon() { return Deadline::in(RealClock(), seconds(120)); }

// A registered process with a PsClient, on a lane with a thread.
class Node : public SchedulerEvents {
 public:
  Node(Network& network, const Address& scheduler, v1::Role role, const std::string& name,
       uint64_t number);
  ~Node() override;

  // Registers; the reply's ranks are in `ranks`.
  Status join();
  void on_event(const v1::Event& event) override;

  const uint64_t incarnation;
  std::vector<uint32_t> ranks;
  std::shared_ptr<LoopLane> lane;
  std::unique_ptr<SchedulerClient> scheduler;
  std::unique_ptr<PsClient> ps;
};

struct WorldOptions {
  Protocol protocol = Protocol::kInproc;
  uint32_t ps = 2;
  uint32_t shards = 2;
  std::optional<uint32_t> staleness;
  uint32_t trainers = 0;   // expected before training starts
  bool map_grows = false;  // a map with the first ps, another with each further one
  size_t memory_bytes_max = 0;
  std::string trace_path;
};

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();

  // One more ps, registered.
  void add_ps();
  Node& add(v1::Role role, const std::string& name);
  // A client by key, registered; the map is there.
  Node& client();
  PsServer& ps(size_t i) { return *ps_[i]; }
  void kill_ps(size_t i) { ps_[i].reset(); }
  Network& network() { return *network_; }
  const Address& scheduler() const { return scheduler_->addresses().front(); }

  // Creates on all shards and freezes; staleness as the options say.
  void make_tables(Node& node, const v1::CreateOption& option);
  // The job trains when this returns: every ps knows every rank.
  void start_training(Node& node, uint64_t schema_hash);
  uint64_t schema_hash = 0;

 private:
  Address listen(const std::string& name) const;
  void start_ps();

  const WorldOptions options_;
  Metrics metrics_;
  MemoryJournal journal_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<SchedulerServer> scheduler_;
  std::unique_ptr<FileSystem> files_;
  std::vector<std::unique_ptr<PsServer>> ps_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// Options and tensors in one line.
v1::Rule rule(const std::string& name, const std::map<std::string, double>& values = {});
v1::TableOptions table(const std::string& name, uint32_t dim, v1::Rule optimizer);
v1::DenseOptions variable(const std::string& name, int64_t elements, v1::Rule optimizer,
                          uint64_t split);
Tensor keys_of(const std::vector<uint64_t>& keys);
Tensor rows_of(size_t rows, size_t columns, const std::vector<float>& values);
Tensor floats_of(const std::vector<float>& values);
std::vector<float> floats(const Tensor& tensor);
std::vector<Protocol> all_protocols();
std::string protocol_title(const testing::TestParamInfo<Protocol>& info);

}  // namespace starling::cluster
