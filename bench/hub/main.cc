// From a file to the shards: a trainer that takes every batch of a Criteo file from the hubs of a
// job and reports it done at once, so that what is measured is reading, parsing, assembling and
// feeding. Prints one JSON line. bench/scenarios/hub.py starts the processes and makes the table.
//
//   hub_bench SCHEDULER FILE BATCH_SIZE
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <thread>

#include "hub/client.h"
#include "net/makers.h"
#include "ps/client.h"
#include "scheduler/client.h"

namespace starling {
namespace {

constexpr uint32_t kDim = 8;
constexpr int kCategories = 26;
constexpr uint32_t kBatchesMax = 16;
constexpr uint64_t kIncarnation = 0x68756262656e6368;

Deadline soon() { return Deadline::in(RealClock(), seconds(120)); }

// Registered, with clients of every role.
class Taker final : public SchedulerEvents {
 public:
  Taker(Network& network, const Address& address) : lane_(network.make_lane("taker", 0)) {
    SchedulerClientOptions options;
    options.scheduler = address;
    options.role = v1::ROLE_TRAINER;
    options.name = "taker";
    options.incarnation = kIncarnation;
    options.workers = 1;
    scheduler_ = std::make_unique<SchedulerClient>(network, lane_, options, this);
    ps_ = std::make_unique<PsClient>(
        network, lane_, PsClientOptions{.role = v1::ROLE_TRAINER, .incarnation = kIncarnation},
        scheduler_.get());
    HubClientOptions to_hubs;
    to_hubs.incarnation = kIncarnation;
    hub_ = std::make_unique<HubClient>(network, lane_, to_hubs);
  }
  ~Taker() override {
    lane_->stop();
    hub_.reset();
    ps_.reset();
    scheduler_.reset();
  }
  void on_event(const v1::Event& event) override {
    ps_->on_event(event);
    hub_->on_event(event);
  }

  Status join() {
    STARLING_ASSIGN_OR_RETURN(const v1::RegisterReply reply, scheduler_->join_wait(soon()));
    ps_->joined(reply);
    hub_->joined(reply);
    STARLING_RETURN_IF_ERROR(hub_->wait_for_hubs(1, soon()).status());
    return ps_->wait_for_map(soon()).status();
  }
  Status make_tables() {
    v1::CreateOption option;
    for (int i = 1; i <= kCategories; ++i) {
      v1::TableOptions* table = option.add_tables();
      table->set_name(fmt::format("C{}", i));
      table->set_dim(kDim);
      table->mutable_optimizer()->set_name("adagrad");
    }
    STARLING_RETURN_IF_ERROR(ps_->create(option, soon()));
    STARLING_ASSIGN_OR_RETURN(const uint64_t hash, ps_->freeze({}, soon()));
    for (const v1::JobState state : {v1::JOB_STATE_FROZEN, v1::JOB_STATE_TRAINING}) {
      v1::SetJobOption set;
      set.set_state(state);
      set.set_schema_hash(hash);
      STARLING_RETURN_IF_ERROR(scheduler_->set_job(set, soon()).status());
    }
    return absl::OkStatus();
  }
  // The samples that came.
  StatusOr<uint64_t> take(const std::string& file, uint32_t batch_size) {
    v1::StartSampleOption option;
    option.set_dataset("bench");
    option.set_purpose(v1::PURPOSE_EVAL);
    option.add_files(file);
    option.mutable_format()->set_name("criteo");
    option.set_batch_size(batch_size);
    option.set_shuffle_samples(16 * batch_size);
    STARLING_RETURN_IF_ERROR(hub_->start(option, soon()).status());
    const uint32_t hub = hub_->hubs().front();
    uint64_t samples = 0;
    Message request;
    while (true) {
      request.meta.mutable_read_sample()->set_dataset("bench");
      request.meta.mutable_read_sample()->set_batches_max(kBatchesMax);
      STARLING_ASSIGN_OR_RETURN(const Message reply, hub_->read(hub, std::move(request), soon()));
      request = Message();
      const v1::ReadSampleReply& told = reply.meta.read_sample_reply();
      for (const v1::BatchLease& lease : told.batches()) {
        samples += lease.samples();
        *request.meta.mutable_read_sample()->add_done() = lease.batch();
      }
      if (told.state() == v1::DATASET_STATE_END) return samples;
      if (told.batches().empty()) std::this_thread::sleep_for(milliseconds(1));
    }
  }

 private:
  std::shared_ptr<LoopLane> lane_;
  std::unique_ptr<SchedulerClient> scheduler_;
  std::unique_ptr<PsClient> ps_;
  std::unique_ptr<HubClient> hub_;
};

Status run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 3) return invalid_argument("usage: hub_bench SCHEDULER FILE BATCH_SIZE");
  uint32_t batch_size = 0;
  std::from_chars(arguments[2].data(), arguments[2].data() + arguments[2].size(), batch_size);
  STARLING_ASSIGN_OR_RETURN(const Address address, Address::parse(arguments[0]));
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(NetOptions(), Log(), metrics);
  Taker taker(*network, address);
  STARLING_RETURN_IF_ERROR(taker.join());
  STARLING_RETURN_IF_ERROR(taker.make_tables());
  const auto start = std::chrono::steady_clock::now();
  STARLING_ASSIGN_OR_RETURN(const uint64_t samples, taker.take(arguments[1], batch_size));
  const double time =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{{\"samples\": {}, \"seconds\": {:.4f}}}\n", samples, time);
  return absl::OkStatus();
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  const starling::Status status = starling::run({argv + 1, argv + argc});
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
