#include "tests/cluster/hub_world.h"

#include <fmt/format.h>

#include <thread>

#include "data/format.h"

namespace starling::cluster {
namespace {

constexpr uint32_t kIdsDim = 1;
constexpr uint32_t kSharedDim = 2;
constexpr uint32_t kNoBatch = UINT32_MAX;  // the epoch of ticks without a batch

uint32_t add(Message& message, Tensor tensor) {
  message.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

v1::FieldOptions field(const std::string& name, const std::string& table, v1::FieldKind kind) {
  v1::FieldOptions out;
  out.set_name(name);
  out.set_table(table);
  out.set_kind(kind);
  return out;
}

std::vector<uint64_t> field_keys(const std::string& lines, const std::string& name) {
  FormatOptions options;
  options.name = "criteo";
  FieldOptions one;
  one.name = name;
  const auto format = Format::make(options, {one});
  EXPECT_TRUE(format.ok()) << format.status();
  SampleBlock samples((*format)->schema());
  const auto parser = (*format)->parser("");
  const auto parsed = (*parser)->parse({.bytes = lines}, samples, 1);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  std::vector<uint64_t> keys;
  for (uint32_t i = 0; i < samples.samples(); ++i) keys.push_back(value(samples.sample_keys(i)[0]));
  return keys;
}

}  // namespace

std::string criteo_lines(uint32_t first, uint32_t count) {
  std::string out;
  for (uint32_t i = first; i < first + count; ++i) {
    out += fmt::format("{}", i % 4 == 0 ? 1 : 0);
    for (uint32_t column = 0; column < 13; ++column) out += fmt::format("\t{}", i % (column + 2));
    out += fmt::format("\t{:08x}", i);
    for (uint32_t column = 1; column < 26; ++column) {
      out += fmt::format("\t{:08x}", (i * 7 + column) % (10 * column));
    }
    out += '\n';
  }
  return out;
}

void add_count_fields(v1::StartSampleOption& option) {
  *option.add_fields() = field("label", "", v1::FIELD_KIND_LABEL);
  *option.add_fields() = field("I1", "", v1::FIELD_KIND_DENSE);
  *option.add_fields() = field("C1", "ids", v1::FIELD_KIND_KEYS);
  *option.add_fields() = field("C2", "shared", v1::FIELD_KIND_KEYS);
  *option.add_fields() = field("C3", "shared", v1::FIELD_KIND_KEYS);
  option.mutable_format()->set_name("criteo");
}

v1::FieldOptions count_field(const std::string& name, const std::string& table) {
  return field(name, table, v1::FIELD_KIND_KEYS);
}

v1::CreateOption count_tables() {
  v1::CreateOption option;
  *option.add_tables() = table("ids", kIdsDim, rule("sgd", {{"lr", 1}}));
  *option.add_tables() = table("shared", kSharedDim, rule("sgd", {{"lr", 1}}));
  return option;
}

std::vector<BatchTable> count_batch_tables() {
  return {{.name = "ids", .dim = kIdsDim, .placement = {}},
          {.name = "shared", .dim = kSharedDim, .placement = {}}};
}

std::vector<uint64_t> id_keys(const std::string& lines) { return field_keys(lines, "C1"); }

std::vector<uint64_t> shared_keys(const std::vector<std::string>& lines) {
  std::set<uint64_t> keys;
  for (const std::string& one : lines) {
    for (const char* name : {"C2", "C3"}) {
      const std::vector<uint64_t> more = field_keys(one, name);
      keys.insert(more.begin(), more.end());
    }
  }
  return {keys.begin(), keys.end()};
}

void expect_trained(Node& node, const std::string& lines, float times) {
  const std::vector<uint64_t> keys = id_keys(lines);
  const auto pulled =
      node.ps->pull({{.table = "ids", .keys = keys_of(keys), .with_found = true}}, soon());
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  const std::vector<float> counted = floats(pulled->front().values);
  size_t wrong = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (counted[i] == times) continue;
    if (++wrong <= 5) ADD_FAILURE() << "sample " << i << " was trained " << counted[i] << " times";
  }
  EXPECT_EQ(wrong, 0U) << "of " << keys.size() << " samples, each wanted " << times << " times";
}

void expect_counted(Node& node, uint64_t trained, uint64_t skipped) {
  v1::GetJobOption ask;
  ask.set_with_work(true);
  const auto job = node.scheduler->get_job(ask, soon());
  ASSERT_TRUE(job.ok()) << job.status();
  uint64_t counted = 0, left_out = 0;
  for (const v1::WorkQueueInfo& queue : job->queues()) {
    if (queue.queue() != "train") continue;
    counted += queue.samples_trained();
    left_out += queue.samples_skipped();
  }
  EXPECT_EQ(counted, trained);
  EXPECT_EQ(left_out, skipped);
}

v1::StartSampleOption count_dataset(const std::string& files) {
  v1::StartSampleOption option;
  option.set_dataset("train");
  option.add_files(files);
  option.set_batch_size(16);
  add_count_fields(option);
  return option;
}

HubJob::HubJob(World& world, Protocol protocol)
    : files(FileSystems::standard({.incarnation = Incarnation{1}}, clock)),
      world_(world),
      protocol_(protocol) {}

HubJob::~HubJob() {
  trainers.clear();
  for (const auto& hub : hubs) hub->stop(Deadline::in(clock, seconds(5))).IgnoreError();
}

HubServer& HubJob::add_hub(HubServerOptions options) {
  options.name = fmt::format("hub-{}", hubs.size());
  options.incarnation = 500 + hubs.size();
  options.files = files.get();
  hubs.push_back(start_hub(world_.network(), world_.scheduler(), protocol_, options));
  return *hubs.back();
}

Trainer& HubJob::add_trainer() {
  const std::string name = fmt::format("trainer-{}", trainers.size());
  trainers.push_back(
      std::make_unique<Trainer>(world_.network(), world_.scheduler(), name, 700 + trainers.size()));
  const Status joined = trainers.back()->join();
  EXPECT_TRUE(joined.ok()) << joined;
  const auto all = trainers.back()->hub->wait_for_hubs(hubs.size(), soon());
  EXPECT_TRUE(all.ok()) << all.status();
  return *trainers.back();
}

void HubJob::write(const std::string& path, const std::string& text) {
  const Status status = write_file(*files, path, text);
  EXPECT_TRUE(status.ok()) << status;
}

std::unique_ptr<HubServer> start_hub(Network& network, const Address& scheduler, Protocol protocol,
                                     HubServerOptions options) {
  options.scheduler = scheduler;
  options.listen = {protocol == Protocol::kInproc
                        ? Address{.protocol = Protocol::kInproc, .host = options.name}
                        : Address{.protocol = protocol, .host = "127.0.0.1"}};
  if (options.tables.empty()) options.tables = count_batch_tables();
  auto hub = HubServer::start(network, std::move(options));
  EXPECT_TRUE(hub.ok()) << hub.status();
  const Status joined = (*hub)->wait_joined(soon());
  EXPECT_TRUE(joined.ok()) << joined;
  return *std::move(hub);
}

Trainer::Trainer(Network& network, const Address& scheduler_at, const std::string& name,
                 uint64_t number)
    : lane(network.make_lane(name, 0)) {
  SchedulerClientOptions options;
  options.scheduler = scheduler_at;
  options.role = v1::ROLE_TRAINER;
  options.name = name;
  options.incarnation = number;
  options.workers = 1;
  scheduler = std::make_unique<SchedulerClient>(network, lane, options, this);
  PsClientOptions mine;
  mine.role = v1::ROLE_TRAINER;
  mine.incarnation = number;
  ps = std::make_unique<PsClient>(network, lane, mine, scheduler.get());
  HubClientOptions to_hubs;
  to_hubs.incarnation = number;
  hub = std::make_unique<HubClient>(network, lane, to_hubs);
}

Trainer::~Trainer() {
  lane->stop();
  hub.reset();
  ps.reset();
  scheduler.reset();
}

Status Trainer::join() {
  STARLING_ASSIGN_OR_RETURN(const v1::RegisterReply reply, scheduler->join_wait(soon()));
  rank = reply.ranks_size() > 0 ? reply.ranks(0) : 0;
  clock = reply.start_clock();
  ps->joined(reply);
  hub->joined(reply);
  STARLING_RETURN_IF_ERROR(hub->wait_for_hubs(1, soon()).status());
  return ps->wait_for_map(soon()).status();
}

void Trainer::on_event(const v1::Event& event) {
  ps->on_event(event);
  hub->on_event(event);
}

StatusOr<Message> Trainer::ask(uint32_t to, const std::string& dataset, uint32_t batches_max) {
  Message request;
  request.meta.mutable_header()->set_rank(rank);
  request.meta.mutable_header()->set_clock(clock);
  v1::ReadSampleOption* option = request.meta.mutable_read_sample();
  option->set_dataset(dataset);
  option->set_batches_max(batches_max);
  for (const v1::BatchId& id : done[to]) *option->add_done() = id;
  StatusOr<Message> reply = hub->read(to, std::move(request), soon());
  if (reply.ok()) done[to].clear();
  return reply;
}

Status Trainer::train(const std::string& dataset, const Limits& limits) {
  std::set<uint32_t> ended;
  while (true) {
    const std::vector<uint32_t> hubs = hub->hubs();
    bool is_over = true;
    for (const uint32_t to : hubs) {
      if (ended.contains(to)) continue;
      is_over = false;
      const StatusOr<Message> reply = ask(to, dataset, 1);
      if (reply.status().code() == StatusCode::kNotFound && start_again.files_size() > 0) {
        hub->start(to, start_again, soon(), [](const StatusOr<Message>&) {});
      }
      // A hub that died, or one that has come in its place and knows nothing yet.
      if (reply.status().code() == StatusCode::kUnavailable ||
          reply.status().code() == StatusCode::kNotFound) {
        std::this_thread::sleep_for(milliseconds(20));
        continue;
      }
      STARLING_RETURN_IF_ERROR(reply.status());
      const v1::ReadSampleReply& told = reply->meta.read_sample_reply();
      if (told.state() == v1::DATASET_STATE_END) ended.insert(to);
      for (const v1::BatchLease& lease : told.batches()) {
        if (steps >= limits.steps_max) return cancelled("after {} steps", steps);
        STARLING_RETURN_IF_ERROR(step(*reply, lease));
        std::this_thread::sleep_for(limits.pause);
        if (steps < limits.steps_max || limits.reports) done[to].push_back(lease.batch());
      }
      if (told.batches().empty() && told.state() != v1::DATASET_STATE_END) {
        std::this_thread::sleep_for(milliseconds(told.retry_after_ms()));
      }
    }
    if (is_over && !hubs.empty()) return absl::OkStatus();
  }
}

Status Trainer::train_in_step(const std::string& dataset) {
  std::set<uint32_t> ended;
  while (ended.size() < hub->hubs().size()) {
    bool has_ticked = false;
    for (const uint32_t to : hub->hubs()) {
      STARLING_ASSIGN_OR_RETURN(const Message reply, ask(to, dataset, 1));
      const v1::ReadSampleReply& told = reply.meta.read_sample_reply();
      if (told.state() == v1::DATASET_STATE_END) {
        ended.insert(to);
      } else if (!told.batches().empty()) {
        STARLING_RETURN_IF_ERROR(step(reply, told.batches(0)));
        done[to].push_back(told.batches(0).batch());
        has_ticked = true;
      } else if (told.state() == v1::DATASET_STATE_END_OF_EPOCH) {
        STARLING_RETURN_IF_ERROR(empty_tick());
        has_ticked = true;
      }
      if (has_ticked) break;
    }
    if (!has_ticked) std::this_thread::sleep_for(milliseconds(2));
  }
  STARLING_ASSIGN_OR_RETURN(const v1::LeaveReply left, scheduler->leave({}, soon()));
  while (clock < left.clock()) STARLING_RETURN_IF_ERROR(empty_tick());
  return absl::OkStatus();
}

Status Trainer::step(const Message& reply, const v1::BatchLease& lease) {
  const uint32_t as_rank = lease.has_rank() ? lease.rank() : rank;
  const uint64_t at_clock = lease.has_rank() ? lease.clock() : clock;
  std::vector<ShardMessage> lookups;
  const uint32_t shards = ps->routes()->shards();
  for (uint32_t shard = 0; shard < shards; ++shard) {
    Message message;
    *message.meta.mutable_header()->mutable_batch() = lease.batch();
    message.meta.mutable_header()->set_rank(as_rank);
    message.meta.mutable_header()->set_clock(at_clock);
    message.meta.mutable_embedding_lookup();
    lookups.push_back({shard, std::move(message)});
  }
  const auto looked = ps->lookup(std::move(lookups), soon());
  if (!looked.ok() && reason_of(looked.status()) != v1::REASON_ALREADY_DONE) {
    return looked.status();
  }
  if (looked.ok()) {
    STARLING_RETURN_IF_ERROR(ps->push_batch(pushes(reply, lease, as_rank, at_clock), soon()));
  }
  ++steps;
  samples += lease.samples();
  trained.emplace_back(lease.batch(),
                       reply.tensors.at(lease.labels_tensor()).values<float>().front());
  if (!lease.has_rank()) ++clock;
  return absl::OkStatus();
}

Status Trainer::empty_tick() {
  std::vector<ShardMessage> messages;
  for (uint32_t shard = 0; shard < ps->routes()->shards(); ++shard) {
    Message message;
    v1::Header* header = message.meta.mutable_header();
    header->mutable_batch()->set_epoch(kNoBatch);
    header->mutable_batch()->set_item(rank);
    header->mutable_batch()->set_number(clock);
    header->set_rank(rank);
    header->set_clock(clock);
    message.meta.mutable_push_grad();
    messages.push_back({shard, std::move(message)});
  }
  ++clock;
  return ps->push_batch(std::move(messages), soon());
}

std::vector<ShardMessage> Trainer::pushes(const Message& reply, const v1::BatchLease& lease,
                                          uint32_t as_rank, uint64_t at_clock) const {
  std::vector<ShardMessage> out(ps->routes()->shards());
  for (uint32_t shard = 0; shard < out.size(); ++shard) {
    out[shard].shard = shard;
    v1::Header* header = out[shard].message.meta.mutable_header();
    *header->mutable_batch() = lease.batch();
    header->set_rank(as_rank);
    header->set_clock(at_clock);
    out[shard].message.meta.mutable_push_grad();
  }
  for (const v1::TrainerTable& table : lease.tables()) {
    size_t rows = 0;
    for (const uint32_t keys : table.row_keys()) rows += keys;
    std::vector<float> grads(rows * table.dim());
    for (const v1::TrainerField& one : lease.fields()) {
      if (one.table() != table.table() || one.travel() != v1::TRAVEL_ROWS) continue;
      for (const uint32_t at : reply.tensors.at(one.positions_tensor()).values<uint32_t>()) {
        for (uint32_t d = 0; d < table.dim(); ++d) grads[at * table.dim() + d] -= 1;
      }
    }
    size_t base = 0;
    for (int i = 0; i < table.shards_size(); ++i) {
      Message& message = out[table.shards(i)].message;
      v1::BatchGradPart* part = message.meta.mutable_push_grad()->add_batch();
      part->set_table(table.table());
      const size_t keys = table.row_keys(i);
      if (keys > 0) {
        part->set_rows_tensor(add(
            message, rows_of(keys, table.dim(),
                             {grads.begin() + static_cast<int64_t>(base * table.dim()),
                              grads.begin() + static_cast<int64_t>((base + keys) * table.dim())})));
      }
      base += keys;
      for (const v1::TrainerField& one : lease.fields()) {
        if (one.table() != table.table() || one.travel() != v1::TRAVEL_POOLED) continue;
        const size_t segments = reply.tensors.at(one.samples_tensors(i)).elements();
        v1::FieldGrad* grad = part->add_fields();
        grad->set_field(one.field());
        grad->set_sums_tensor(
            add(message,
                rows_of(segments, table.dim(), std::vector<float>(segments * table.dim(), -1))));
      }
    }
  }
  return out;
}

}  // namespace starling::cluster
