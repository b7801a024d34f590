// Hubs, ps and trainers in one process over every transport: every sample once, whatever the files
// are like.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "hub/server.h"
#include "tests/cluster/hub_world.h"

namespace starling::cluster {
namespace {

using testing::HasSubstr;

class HubTest : public testing::TestWithParam<Protocol> {
 protected:
  HubTest()
      : world_({.protocol = GetParam(), .ps = 1, .shards = 2}),
        client_(world_.client()),
        job_(world_, GetParam()) {
    world_.make_tables(client_, count_tables());
    world_.start_training(client_, world_.schema_hash);
  }

  World world_;
  Node& client_;
  HubJob job_;
};

TEST_P(HubTest, TrainsAFileFromItsLinesToTheRowsOfTheShards) {
  job_.add_hub();
  const std::string lines = criteo_lines(0, 250);
  job_.write("mem://d/a", lines);
  Trainer& trainer = job_.add_trainer();
  const auto started = trainer.hub->start(count_dataset("mem://d/a"), soon());
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(started->key_fields_size(), 3);
  EXPECT_EQ(started->dense_fields_size(), 1);
  EXPECT_EQ(started->label_fields_size(), 1);
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(trainer.steps, 16U);  // the last has 10 samples
  EXPECT_EQ(trainer.samples, 250U);
  expect_trained(client_, lines, 1);
  EXPECT_THAT(job_.hubs[0]->progress(), HasSubstr("samples read 250 = done 250 + skipped 0"));
  // Too late: the same answer again.
  const auto late = trainer.ask(trainer.hub->hubs()[0], "train", 1);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->meta.read_sample_reply().state(), v1::DATASET_STATE_END);
}

TEST_P(HubTest, SeveralHubsAndTrainersShareEpochsOfManyItems) {
  HubServerOptions small;
  small.item_bytes = 20'000;
  for (int i = 0; i < 2; ++i) job_.add_hub(small);
  const std::string lines = criteo_lines(0, 1000);
  job_.write("mem://d/a", lines.substr(0, lines.size() / 2));
  job_.write("mem://d/b", lines.substr(lines.size() / 2));
  v1::StartSampleOption option = count_dataset("mem://d/*");
  option.set_epochs(3);
  option.set_shuffle_samples(100);
  option.set_threads(2);
  std::vector<std::thread> threads;
  std::atomic<size_t> samples{0};
  // The half line at the end of the first file is bad, as is the rest of it in the second.
  option.set_on_bad_line(v1::ON_BAD_LINE_SKIP);
  for (int i = 0; i < 3; ++i) {
    Trainer& trainer = job_.add_trainer();
    threads.emplace_back([&trainer, &option, &samples] {
      const auto started = trainer.hub->start(option, soon());
      ASSERT_TRUE(started.ok()) << started.status();
      const Status trained = trainer.train("train");
      EXPECT_TRUE(trained.ok()) << trained;
      samples += trainer.samples;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(samples, 3 * 999U);
  const size_t cut = lines.rfind('\n', lines.size() / 2) + 1;
  expect_trained(client_, lines.substr(0, cut), 3);
  expect_trained(client_, lines.substr(lines.find('\n', cut) + 1), 3);
  expect_counted(client_, 3 * 999, 3 * 2);
}

TEST_P(HubTest, ABatchThatATrainerDroppedIsTrainedByAnother) {
  job_.add_hub();
  const std::string lines = criteo_lines(0, 500);
  job_.write("mem://d/a", lines);
  v1::StartSampleOption option = count_dataset("mem://d/a");
  option.set_lease_ms(300);
  Trainer& first = job_.add_trainer();
  ASSERT_TRUE(first.hub->start(option, soon()).ok());
  // It pushes its last batch and never says so.
  const Status stopped = first.train("train", {.steps_max = 5, .reports = false});
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled) << stopped;
  Trainer& second = job_.add_trainer();
  const Status trained = second.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client_, lines, 1);
}

TEST_P(HubTest, FilesOfAnyShapeAreReadWhole) {
  job_.add_hub();
  job_.write("mem://d/0", "");
  job_.write("mem://d/1", criteo_lines(0, 1));
  std::string open_end = criteo_lines(1, 3);
  open_end.pop_back();
  job_.write("mem://d/2", open_end);
  Trainer& trainer = job_.add_trainer();
  ASSERT_TRUE(trainer.hub->start(count_dataset("mem://d/*"), soon()).ok());
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client_, criteo_lines(0, 4), 1);
}

TEST_P(HubTest, AnEmptyDatasetIsAtItsEnd) {
  job_.add_hub();
  job_.write("mem://d/0", "");
  Trainer& trainer = job_.add_trainer();
  ASSERT_TRUE(trainer.hub->start(count_dataset("mem://d/0"), soon()).ok());
  const Status trained = trainer.train("train");
  EXPECT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(trainer.steps, 0U);
}

TEST_P(HubTest, ABadLineStopsTheDatasetAndIsNamed) {
  job_.add_hub();
  job_.write("mem://d/a", criteo_lines(0, 20) + "not a line\n");
  Trainer& trainer = job_.add_trainer();
  // Told by whichever call comes after the line was read.
  Status ended = trainer.hub->start(count_dataset("mem://d/a"), soon()).status();
  if (ended.ok()) ended = trainer.train("train");
  EXPECT_FALSE(ended.ok());
  EXPECT_THAT(std::string(message_of(ended)), HasSubstr("mem://d/a:21"));
}

TEST_P(HubTest, AFileThatIsNotThereOrVanishesIsNamed) {
  job_.add_hub();
  Trainer& trainer = job_.add_trainer();
  const auto missing = trainer.hub->start(count_dataset("mem://d/none"), soon());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound) << missing.status();
  EXPECT_THAT(std::string(message_of(missing.status())), HasSubstr("mem://d/none"));
  job_.write("mem://d/a", criteo_lines(0, 100));
  job_.write("mem://d/b", criteo_lines(100, 100));
  v1::StartSampleOption option = count_dataset("mem://d/*");
  option.set_dataset("second");
  option.set_first_epoch(5);
  // The reading waits for room before it comes to the second file.
  option.set_window(2);
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  ASSERT_TRUE(job_.files->remove("mem://d/b", Recursive::kNo).ok());
  const Status trained = trainer.train("second");
  EXPECT_EQ(trained.code(), StatusCode::kAborted) << trained;
  EXPECT_THAT(std::string(message_of(trained)), HasSubstr("NOT_FOUND"));
  EXPECT_THAT(std::string(message_of(trained)), HasSubstr("mem://d/b"));
}

TEST_P(HubTest, RefusesWhatCannotBe) {
  job_.add_hub();
  job_.write("mem://d/a", criteo_lines(0, 10));
  Trainer& trainer = job_.add_trainer();
  const v1::StartSampleOption option = count_dataset("mem://d/a");
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());  // the same again is fine
  v1::StartSampleOption other = option;
  other.set_batch_size(3);
  EXPECT_EQ(trainer.hub->start(other, soon()).status().code(), StatusCode::kAlreadyExists);
  other.set_dataset("other");
  const Status meets = trainer.hub->start(other, soon()).status();
  EXPECT_EQ(meets.code(), StatusCode::kInvalidArgument) << meets;
  other.set_first_epoch(9);
  other.mutable_format()->set_name("parquet");
  EXPECT_EQ(trainer.hub->start(other, soon()).status().code(), StatusCode::kInvalidArgument);
  const auto refused = [&](const std::function<void(v1::StartSampleOption&)>& change) {
    v1::StartSampleOption strange = option;
    strange.set_dataset("strange");
    strange.set_first_epoch(99);
    change(strange);
    return std::string(message_of(trainer.hub->start(strange, soon()).status()));
  };
  EXPECT_THAT(refused([](auto& o) { o.set_purpose(static_cast<v1::Purpose>(9)); }),
              HasSubstr("purpose is 9"));
  EXPECT_THAT(refused([](auto& o) { o.set_kind(static_cast<v1::DatasetKind>(9)); }),
              HasSubstr("kind is 9"));
  EXPECT_THAT(refused([](auto& o) { o.set_on_bad_line(static_cast<v1::OnBadLine>(9)); }),
              HasSubstr("on_bad_line is 9"));
  const auto unknown = trainer.ask(trainer.hub->hubs()[0], "nothing", 1);
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound) << unknown.status();
}

TEST_P(HubTest, EveryRoleRefusesTheOptionOfAnotherRpcAndNamesBoth) {
  const HubServer& hub = job_.add_hub();
  const std::map<Service, Address> roles = {{Service::kScheduler, world_.scheduler()},
                                            {Service::kPs, world_.ps(0).addresses().front()},
                                            {Service::kHub, hub.addresses().front()}};
  Client client(world_.network());
  const auto refused = [&](Service role, Method method) {
    Message message;
    message.meta.mutable_call();
    const auto reply =
        client.call_wait({.address = roles.at(role)}, method, std::move(message), soon());
    return reply.ok() ? status_of(*reply) : reply.status();
  };
  for (const MethodInfo& info : kMethodTable) {
    if (info.service == Service::kPeer) continue;
    const Status status = refused(info.service, info.method);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << info.name;
    const auto* option = v1::TensorMessage::descriptor()->FindFieldByNumber(info.option);
    EXPECT_EQ(message_of(status),
              fmt::format("{}: the request carries call, not {}", info.name, option->name()));
  }
  // None of them has applications.
  for (const auto& [role, address] : roles) {
    const Status status = refused(role, Method::kPeerCall);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_EQ(message_of(status),
              fmt::format("method Peer.Call called on a {}", service_name(role)));
  }
}

TEST_P(HubTest, AMemoryDatasetIsLoadedOnceAndShuffledAnewInEveryEpoch) {
  job_.add_hub();
  const std::string lines = criteo_lines(0, 300);
  job_.write("mem://d/a", lines);
  v1::StartSampleOption option = count_dataset("mem://d/a");
  option.set_kind(v1::DATASET_KIND_MEMORY);
  option.mutable_memory()->set_local_shuffle(true);
  option.set_epochs(2);
  Trainer& trainer = job_.add_trainer();
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  // Loaded with the first batch; what happens to the file then is nobody's business.
  const auto first = trainer.ask(trainer.hub->hubs()[0], "train", 1);
  ASSERT_TRUE(first.ok()) << first.status();
  Message back;
  back.meta.mutable_read_sample()->set_dataset("train");
  for (const v1::BatchLease& lease : first->meta.read_sample_reply().batches()) {
    *back.meta.mutable_read_sample()->add_given_back() = lease.batch();
  }
  ASSERT_TRUE(trainer.hub->read(trainer.hub->hubs()[0], back, soon()).ok());
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client_, lines, 2);
}

TEST_P(HubTest, FieldsShuffledOnTheirOwnKeepEveryValueOnce) {
  job_.add_hub();
  const std::string lines = criteo_lines(0, 300);
  job_.write("mem://d/a", lines);
  v1::StartSampleOption option = count_dataset("mem://d/a");
  option.set_kind(v1::DATASET_KIND_MEMORY);
  option.mutable_memory()->add_slots_shuffle("C1");
  Trainer& trainer = job_.add_trainer();
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client_, lines, 1);
  option.set_dataset("other");
  option.set_first_epoch(1);
  option.mutable_memory()->set_slots_shuffle(0, "C99");
  Status refused = trainer.hub->start(option, soon()).status();
  if (refused.ok()) refused = trainer.train("other");
  EXPECT_THAT(std::string(message_of(refused)), HasSubstr("C99"));
}

TEST_P(HubTest, TheNextSetIsLoadedWhileThisOneTrainsAndReleasedWhenAsked) {
  job_.add_hub();
  const std::string first = criteo_lines(0, 100), second = criteo_lines(100, 150);
  job_.write("mem://d/a", first);
  job_.write("mem://d/b", second);
  v1::StartSampleOption option = count_dataset("mem://d/a");
  option.set_kind(v1::DATASET_KIND_MEMORY);
  option.mutable_memory()->add_preload("mem://d/b");
  Trainer& trainer = job_.add_trainer();
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  const Counter& loaded = world_.network().metrics().counter("hub.samples_preloaded");
  while (loaded.value() < 150) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(trainer.train("train").ok());
  // What the file becomes now is nobody's business.
  job_.write("mem://d/b", std::string(second.size(), '\n'));
  v1::StartSampleOption next = count_dataset("mem://d/b");
  next.set_kind(v1::DATASET_KIND_MEMORY);
  next.set_dataset("next");
  next.set_first_epoch(1);
  ASSERT_TRUE(trainer.hub->start(next, soon()).ok());
  const Status trained = trainer.train("next");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client_, first + second, 1);
  v1::StartSampleOption release = next;
  release.mutable_memory()->set_release(true);
  const auto released = trainer.hub->start(release, soon());
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_EQ(released->state(), v1::DATASET_STATE_END);
  EXPECT_EQ(trainer.ask(trainer.hub->hubs()[0], "next", 1).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(trainer.hub->start(release, soon()).ok());  // once more is fine
}

TEST_P(HubTest, AGlobalShuffleExchangesSamplesBetweenAllHubs) {
  constexpr uint32_t kHubs = 3;
  std::string all;
  for (uint32_t i = 0; i < kHubs; ++i) {
    HubServerOptions options;
    options.hub = i;
    options.hubs = kHubs;
    job_.add_hub(options);
    const std::string lines = criteo_lines(i * 200, 200);
    job_.write(fmt::format("mem://d/{}", i), lines + (i == 1 ? "not a line\n" : ""));
    all += lines;
  }
  v1::StartSampleOption option = count_dataset("mem://d/*");
  option.set_kind(v1::DATASET_KIND_MEMORY);
  option.mutable_memory()->set_global_shuffle(true);
  option.set_shuffle_samples(48);
  option.set_on_bad_line(v1::ON_BAD_LINE_SKIP);
  option.set_epochs(2);
  Trainer& trainer = job_.add_trainer();
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client_, all, 2);
  expect_counted(client_, 1200, 2);
  uint64_t read = 0, done = 0, skipped = 0;
  for (const auto& hub : job_.hubs) {
    const std::string told = hub->progress();
    EXPECT_THAT(told, HasSubstr("samples came from 2 other hubs"));
    uint64_t numbers[3];
    const size_t at = told.find("samples read ");
    ASSERT_EQ(std::sscanf(told.c_str() + at, "samples read %lu = done %lu + skipped %lu",
                          &numbers[0], &numbers[1], &numbers[2]),
              3)
        << told;
    read += numbers[0];
    done += numbers[1];
    skipped += numbers[2];
  }
  EXPECT_EQ(done, 1200U);
  EXPECT_EQ(skipped, 2U);
  EXPECT_EQ(read, 1202U);
}

TEST_P(HubTest, GoesOnBehindTheWatermarksOfACut) {
  HubServerOptions small;
  small.item_bytes = 20'000;
  job_.add_hub(small);
  const std::string lines = criteo_lines(0, 250);
  job_.write("mem://d/a", lines);
  v1::StartSampleOption option = count_dataset("mem://d/a");
  v1::Watermark* mark = option.add_resume();
  mark->set_done_below(3);
  Trainer& trainer = job_.add_trainer();
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(trainer.trained.front().first.number(), 3U);
  const std::string before = criteo_lines(0, 3 * 16);
  expect_trained(client_, before, 0);
  expect_trained(client_, lines.substr(before.size()), 1);
  EXPECT_THAT(job_.hubs[0]->progress(), HasSubstr("samples read 202 = done 202 + skipped 0"));
  expect_counted(client_, 202, 0);
}

// A synchronous job of two ranks; what each trained, in its order.
using Trained = std::vector<std::vector<std::pair<BatchId, float>>>;

Trained train_in_step(uint32_t hubs, float times, bool is_global = false) {
  World world({.ps = 1, .shards = 2, .staleness = 0, .trainers = 2});
  HubJob job(world);
  const std::string lines = criteo_lines(0, 330);
  job.write("mem://d/a", lines);
  for (uint32_t i = 0; i < hubs; ++i) {
    HubServerOptions options;
    options.item_bytes = 20'000;
    options.hub = i;
    options.hubs = hubs;
    job.add_hub(options);
  }
  for (uint32_t i = 0; i < 2; ++i) job.add_trainer();
  Node& client = world.client();
  world.make_tables(client, count_tables());
  world.start_training(client, world.schema_hash);
  v1::StartSampleOption option = count_dataset("mem://d/a");
  option.set_epochs(2);
  if (is_global) {
    option.set_kind(v1::DATASET_KIND_MEMORY);
    option.mutable_memory()->set_global_shuffle(true);
    option.set_shuffle_samples(48);
  }
  option.set_staleness(0);
  option.set_ranks(2);
  const auto started = job.trainers[0]->hub->start(option, soon());
  EXPECT_TRUE(started.ok()) << started.status();
  std::vector<std::thread> threads;
  for (const auto& trainer : job.trainers) {
    threads.emplace_back([&trainer] {
      const Status trained = trainer->train_in_step("train");
      EXPECT_TRUE(trained.ok()) << trained;
    });
  }
  for (std::thread& thread : threads) thread.join();
  Trained out(2);
  for (const auto& trainer : job.trainers) {
    for (const auto& [id, label] : trainer->trained) {
      out.at(trainer->rank).push_back({{id.epoch(), id.item(), id.number()}, label});
    }
  }
  expect_trained(client, lines, times);
  return out;
}

TEST(HubInStep, TheOrderOfBatchesDoesNotDependOnTheNumberOfHubs) {
  const Trained one = train_in_step(1, 2);
  // Batch k of an epoch is rank k mod 2's.
  std::vector<BatchId> order;
  for (const uint32_t epoch : {0U, 1U}) {
    std::vector<std::vector<BatchId>> of_rank(2);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (const auto& [id, label] : one[rank]) {
        if (id.epoch == epoch) of_rank[rank].push_back(id);
      }
    }
    for (size_t k = 0; k < of_rank[0].size() + of_rank[1].size(); ++k) {
      ASSERT_LT(k / 2, of_rank[k % 2].size());
      order.push_back(of_rank[k % 2][k / 2]);
    }
  }
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_GT(order.back().item, 0U);
  EXPECT_EQ(order.back().epoch, 1U);
  EXPECT_EQ(train_in_step(2, 2), one);
}

TEST(HubInStep, TheOrderOfAGlobalShuffleDependsOnSeedAndEpochAlone) {
  const Trained one = train_in_step(1, 2, /*is_global=*/true);
  EXPECT_EQ(train_in_step(3, 2, /*is_global=*/true), one);
  EXPECT_NE(train_in_step(1, 2), one);
}

// The data sets that the project is measured on; they lie beside the tree.
TEST_P(HubTest, RealDataComesThroughWithKnownCounts) {
  const std::string adult = STARLING_SHARED_DATA "/adult/adult.data";
  const std::string ratings = STARLING_SHARED_DATA "/movietweetings/ratings.dat";
  if (!std::ifstream(adult) || !std::ifstream(ratings)) {
    GTEST_SKIP() << "no " STARLING_SHARED_DATA;
  }
  job_.add_hub();
  Trainer& trainer = job_.add_trainer();
  const auto read = [&](v1::StartSampleOption option, const std::string& path,
                        const std::string& label, uint32_t epoch) {
    option.set_dataset(path);
    option.add_files(path);
    option.set_batch_size(4096);
    option.set_first_epoch(epoch);
    option.mutable_format()->set_name("csv");
    option.mutable_format()->set_label(label);
    const auto started = trainer.hub->start(option, soon());
    ASSERT_TRUE(started.ok()) << started.status();
    const Status trained = trainer.train(path);
    ASSERT_TRUE(trained.ok()) << trained;
  };
  v1::StartSampleOption census;
  census.mutable_format()->set_header(true);
  census.mutable_format()->set_trim(true);
  *census.add_fields() = count_field("education", "ids");
  *census.add_fields() = count_field("occupation", "shared");
  read(census, adult, R"(wage_class in (">50K", ">50K."))", 0);
  EXPECT_EQ(trainer.samples, 32561U);
  v1::StartSampleOption tweets;
  tweets.mutable_format()->set_delimiter("::");
  for (const char* column : {"user", "movie", "rating", "time"}) {
    tweets.mutable_format()->add_columns(column);
  }
  *tweets.add_fields() = count_field("user", "ids");
  *tweets.add_fields() = count_field("movie", "shared");
  read(tweets, ratings, "rating >= 8", 1);
  EXPECT_EQ(trainer.samples, 32561U + 100'000U);
}

// Neither shards that do not take feeds nor trainers that do not come make a hub hold more than its
// limit: it waits, and everything is trained when they are there.
TEST(HubMemory, StaysUnderItsLimitHoweverSlowShardsAndTrainersAre) {
  constexpr size_t kMemory = 4 << 20;
  World world({.ps = 1, .shards = 2});
  HubJob job(world);
  const std::string lines = criteo_lines(0, 30'000);
  job.write("mem://d/a", lines);
  HubServerOptions options;
  options.memory_bytes_max = kMemory;
  const HubServer& hub = job.add_hub(options);
  Trainer& trainer = job.add_trainer();
  v1::StartSampleOption option = count_dataset("mem://d/a");
  option.set_batch_size(256);
  option.set_shuffle_samples(1000);
  option.set_window(512);
  ASSERT_TRUE(trainer.hub->start(option, soon()).ok());
  Metrics& metrics = world.network().metrics();
  // The tables are not there: no feed is taken.
  while (metrics.counter("hub.waits").value() == 0) std::this_thread::sleep_for(milliseconds(1));
  const uint64_t before = metrics.counter("hub.samples_fed").value();
  EXPECT_LT(before, 30'000U);
  EXPECT_GT(before, 1000U);
  Node& client = world.client();
  world.make_tables(client, count_tables());
  world.start_training(client, world.schema_hash);
  // Now they are, and nobody trains.
  while (metrics.counter("hub.batches_fed").value() < before / 256) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(metrics.counter("hub.samples_fed").value(), 30'000U);
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client, lines, 1);
  EXPECT_LT(hub.memory_bytes_peak(), kMemory);
  EXPECT_GT(hub.memory_bytes_peak(), kMemory / 4);
}

// A hub may begin before every ps is there: what it has cut by the first map is cut anew by the
// next.
TEST(HubAndMaps, BatchesCutByAnOlderMapAreCutAnew) {
  World world({.ps = 1, .shards = 2, .map_grows = true});
  HubJob job(world);
  const std::string lines = criteo_lines(0, 600);
  job.write("mem://d/a", lines);
  HubServerOptions options;
  options.item_bytes = 20'000;
  const HubServer& hub = job.add_hub(options);
  Trainer& trainer = job.add_trainer();
  ASSERT_TRUE(trainer.hub->start(count_dataset("mem://d/a"), soon()).ok());
  // Its feeds wait for frozen tables.
  const Counter& fed = world.network().metrics().counter("hub.samples_fed");
  while (fed.value() == 0) std::this_thread::sleep_for(milliseconds(1));
  world.add_ps();
  Node& client = world.add(v1::ROLE_CLIENT, "client");
  ASSERT_TRUE(client.join().ok());
  while (client.ps->routes()->shards() < 4 || trainer.ps->routes()->shards() < 4) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  world.make_tables(client, count_tables());
  world.start_training(client, world.schema_hash);
  const Status trained = trainer.train("train");
  ASSERT_TRUE(trained.ok()) << trained;
  expect_trained(client, lines, 1);
  EXPECT_THAT(hub.progress(), HasSubstr("samples read 600 = done 600 + skipped 0"));
  expect_counted(client, 600, 0);
}

TEST(HubThatCameAnew, GetsTheCallsThatTheOneBeforeDidNotAnswer) {
  World world({.protocol = Protocol::kFast, .ps = 1, .shards = 1});
  HubJob job(world, Protocol::kFast);
  const uint16_t port = job.add_hub().addresses().front().port;
  const std::shared_ptr<LoopLane> lane = world.network().make_lane("caller", 0);
  HubClient client(world.network(), lane, {.generation = 1, .attempt = seconds(600)});
  v1::Event event;
  v1::Node* node = event.mutable_node();
  node->set_id(40);
  node->set_role(v1::ROLE_HUB);
  node->set_state(v1::NODE_STATE_ALIVE);
  node->set_incarnation(1);
  v1::Address* address = node->add_addresses();
  address->set_protocol("grpc++");
  address->set_host("127.0.0.1");
  address->set_port(1);  // refused
  client.on_event(event);
  std::promise<Status> answer;
  Message request;
  request.meta.mutable_read_sample()->set_dataset("none");
  client.read(40, std::move(request), soon(),
              [&](const StatusOr<Message>& reply) { answer.set_value(reply.status()); });
  node->set_incarnation(2);
  address->set_port(port);
  client.on_event(event);
  const Status status = answer.get_future().get();
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
  lane->stop();
}

INSTANTIATE_TEST_SUITE_P(Protocols, HubTest, testing::ValuesIn(all_protocols()), protocol_title);

}  // namespace
}  // namespace starling::cluster
