// What tests of hubs share: samples whose keys are known, hubs beside a World, and a trainer by
// script that counts on the ps how often each sample was trained.
//
// Uses: every role's door; for tests only. Threads: real lanes; a trainer belongs to its test.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "hub/client.h"
#include "hub/server.h"
#include "store/file_systems.h"
#include "tests/cluster/world.h"

namespace starling::cluster {

// Criteo lines [first, first + count); the first category of a line is its number.
std::string criteo_lines(uint32_t first, uint32_t count);
// Fields and tables of such lines: `ids` has one key per sample, `shared` is used by two fields.
void add_count_fields(v1::StartSampleOption& option);
v1::FieldOptions count_field(const std::string& name, const std::string& table);
v1::CreateOption count_tables();
std::vector<BatchTable> count_batch_tables();
// The keys of `ids` of these lines, in their order.
std::vector<uint64_t> id_keys(const std::string& lines);
// The keys of `shared` of all these lines, each once.
std::vector<uint64_t> shared_keys(const std::vector<std::string>& lines);
// Expects that every sample of `lines` was trained `times` times: the row of its id has counted.
void expect_trained(Node& node, const std::string& lines, float times);
// Expects that the scheduler has counted so many samples of dataset `train`, in all its epochs.
void expect_counted(Node& node, uint64_t trained, uint64_t skipped);

// Lines of a file that are trained in batches of 16, each once.
v1::StartSampleOption count_dataset(const std::string& files);

// A hub in this process.
std::unique_ptr<HubServer> start_hub(Network& network, const Address& scheduler, Protocol protocol,
                                     HubServerOptions options);

// A trainer by script: looks up, pushes a gradient that adds 1 to a row for each use, reports.
class Trainer : public SchedulerEvents {
 public:
  Trainer(Network& network, const Address& scheduler, const std::string& name, uint64_t number);
  ~Trainer() override;

  Status join();
  void on_event(const v1::Event& event) override;

  struct Limits {
    size_t steps_max = SIZE_MAX;  // then it stops, with what it holds
    bool reports = true;          // false: dies before its last report
    Duration pause{};             // of every step
  };
  // Trains until every hub is at the end. Cancelled: steps_max is reached.
  Status train(const std::string& dataset, const Limits& limits);
  Status train(const std::string& dataset) { return train(dataset, Limits()); }
  // The same at staleness 0: ticks with every clock, and leaves in order at the end.
  Status train_in_step(const std::string& dataset);
  // What a hub is told that has come anew and does not know the dataset.
  v1::StartSampleOption start_again;
  // One request to a hub, with what is done.
  StatusOr<Message> ask(uint32_t hub, const std::string& dataset, uint32_t batches_max);
  // Looks a leased batch up and pushes it.
  Status step(const Message& reply, const v1::BatchLease& lease);
  Status empty_tick();

  std::shared_ptr<LoopLane> lane;
  std::unique_ptr<SchedulerClient> scheduler;
  std::unique_ptr<PsClient> ps;
  std::unique_ptr<HubClient> hub;
  uint32_t rank = 0;
  uint64_t clock = 0;
  size_t steps = 0;
  size_t samples = 0;
  // Of every batch that it trained, in its order: id and first label.
  std::vector<std::pair<v1::BatchId, float>> trained;
  // What is done and not told, by hub.
  std::map<uint32_t, std::vector<v1::BatchId>> done;

 private:
  std::vector<ShardMessage> pushes(const Message& reply, const v1::BatchLease& lease,
                                   uint32_t as_rank, uint64_t at_clock) const;
};

// Hubs and trainers of a world, and files in memory for them; made after it and gone before it.
class HubJob {
 public:
  explicit HubJob(World& world, Protocol protocol = Protocol::kInproc);
  ~HubJob();

  // Files, name and incarnation are filled in.
  HubServer& add_hub(HubServerOptions options = {});
  // Joined; it knows every hub.
  Trainer& add_trainer();
  void write(const std::string& path, const std::string& text);

  const RealClock clock;
  const std::unique_ptr<FileSystems> files;
  std::vector<std::unique_ptr<HubServer>> hubs;
  std::vector<std::unique_ptr<Trainer>> trainers;

 private:
  World& world_;
  const Protocol protocol_;
};

}  // namespace starling::cluster
