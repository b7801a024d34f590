#include "conf/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "conf/yaml.h"

namespace starling {
namespace {

using ::testing::HasSubstr;

constexpr const char* kJob = R"(name: ctr
seed: 42
data: {format: criteo, train: ["data/day_*.gz"], test: ["data/test.gz"], batch_size: 512, shuffle_samples: 100000, epochs: 1}
fields:
  - {name: user, table: users}
  - {name: genres, table: genres, pooling: mean, keys_max: 20}
tables:
  users:  {dim: 16, optimizer: {adagrad: {lr: 0.05}}, initializer: {normal: {std: 0.01}}, admission: {count: 2}, eviction: {unseen_days: 30}}
  genres: {dim: 8, optimizer: {adam: {lr: 0.001}}}
model: {deepfm: {hidden: [400, 400, 400]}}
dense: {optimizer: {adam: {lr: 0.001}}}
train: {staleness: inf, threads: 2}
cluster: {protocol: inproc, ps: 1, shards: 2, hubs: 1, trainers: 1}
checkpoint: {path: "hdfs://namenode:9870/models/ctr", every_minutes: 30, keep: 3}
)";

StatusOr<Job> job_of(const std::string& yaml, Environment environment = {},
                     std::vector<std::string> sets = {}) {
  return load_text(
      yaml, {.file = "job.yaml", .environment = std::move(environment), .sets = std::move(sets)});
}

std::string error_of(const std::string& yaml, Environment environment = {},
                     std::vector<std::string> sets = {}) {
  return std::string(message_of(job_of(yaml, std::move(environment), std::move(sets)).status()));
}

std::string origin_of(const Job& job, const std::string& path) {
  for (const Setting& setting : job.settings) {
    if (setting.path == path) return setting.origin.text;
  }
  return "no such setting";
}

TEST(Load, TheJobFileOfTheDesignIsReadWhole) {
  const StatusOr<Job> job = job_of(kJob);
  ASSERT_TRUE(job.ok()) << job.status();
  const JobOptions& o = job->options;
  EXPECT_EQ(o.name, "ctr");
  EXPECT_EQ(o.seed, 42);
  EXPECT_EQ(o.data.train, std::vector<std::string>{"data/day_*.gz"});
  EXPECT_EQ(o.data.shuffle_samples, 100000);
  ASSERT_EQ(o.fields.size(), 2);
  EXPECT_EQ(o.fields[0].pooling, "sum");
  EXPECT_EQ(o.fields[0].keys_max, kInfinite);
  EXPECT_EQ(o.fields[1].table, "genres");
  EXPECT_EQ(o.fields[1].keys_max, 20);
  ASSERT_EQ(o.tables.size(), 2);
  EXPECT_EQ(o.tables[0].name, "users");
  EXPECT_EQ(o.tables[0].dim, 16);
  EXPECT_EQ(o.tables[0].optimizer.name, "adagrad");
  EXPECT_EQ(o.tables[0].optimizer.params.flow(), "{lr: 0.05}");
  EXPECT_EQ(o.tables[0].optimizer.origin.text, "job.yaml:8");
  ASSERT_EQ(o.tables[0].admission.size(), 1);
  EXPECT_EQ(o.tables[0].admission[0].name, "count");
  EXPECT_TRUE(o.tables[1].initializer.empty());
  EXPECT_EQ(o.model.name, "deepfm");
  EXPECT_EQ(o.train.staleness, kInfinite);
  EXPECT_EQ(o.cluster.shards, 2);
  EXPECT_EQ(o.checkpoint.every_minutes, 30);
}

TEST(Load, NoFileGivesTheDefaults) {
  const StatusOr<Job> job = load({});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->options.data.batch_size, 512);
  EXPECT_EQ(origin_of(*job, "data.batch_size"), "default");
}

TEST(Load, FlagsAreStrongerThanTheEnvironmentAndThatThanTheFile) {
  const std::string yaml = "data: {batch_size: 1, epochs: 1, shuffle_samples: 1}\n";
  const Environment environment = {{"STARLING_DATA__EPOCHS", "2"},
                                   {"STARLING_DATA__SHUFFLE_SAMPLES", "2"}};
  const StatusOr<Job> job = job_of(yaml, environment, {"data.shuffle_samples=3"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->options.data.batch_size, 1);
  EXPECT_EQ(job->options.data.epochs, 2);
  EXPECT_EQ(job->options.data.shuffle_samples, 3);
  EXPECT_EQ(origin_of(*job, "data.batch_size"), "job.yaml:1");
  EXPECT_EQ(origin_of(*job, "data.epochs"), "environment STARLING_DATA__EPOCHS");
  EXPECT_EQ(origin_of(*job, "data.shuffle_samples"), "--set data.shuffle_samples");
}

TEST(Load, AnyValueCanBeSet) {
  const StatusOr<Job> job = job_of(
      kJob, {{"STARLING_SET", "train.staleness=4; tables.users.optimizer={ftrl: {l1: 0.1}} ;"}},
      {"fields.1.pooling=none", "tables.genres.optimizer.adam.lr=0.2", "data.train=[a, b]",
       "ps.memory_max=2GiB"});
  ASSERT_TRUE(job.ok()) << job.status();
  const JobOptions& o = job->options;
  EXPECT_EQ(o.train.staleness, 4);
  EXPECT_EQ(o.tables[0].optimizer.name, "ftrl");
  EXPECT_EQ(o.tables[0].optimizer.origin.text, "environment STARLING_SET tables.users.optimizer");
  EXPECT_EQ(o.tables[1].optimizer.params.flow(), "{lr: 0.2}");
  EXPECT_EQ(o.fields[1].pooling, "none");
  EXPECT_EQ(o.data.train, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(o.ps.memory_max, int64_t{2} << 30);
}

TEST(Load, NamesThatUsersKnowAreAccepted) {
  const StatusOr<Job> job = job_of("", {{"PS_ENABLE_POLLING", "True"},
                                        {"WORKER_ENABLE_POLLING", "1"},
                                        {"NETWORK_PS_CORE_NUMBER", "8"},
                                        {"NETWORK_WORKER_CORE_NUMBER", "3"},
                                        {"PS_DISABLE_PIN_CORES", "False"},
                                        {"WORKER_DISABLE_PIN_CORES", "True"}});
  ASSERT_TRUE(job.ok()) << job.status();
  const JobOptions& o = job->options;
  EXPECT_TRUE(o.ps.net.polling);
  EXPECT_TRUE(o.trainer.net.polling);
  EXPECT_EQ(o.cluster.shards, 8);
  EXPECT_EQ(o.trainer.lanes, 3);
  EXPECT_TRUE(o.ps.net.pin_cores);
  EXPECT_FALSE(o.trainer.net.pin_cores);
  EXPECT_FALSE(o.hub.net.polling);
  EXPECT_EQ(origin_of(*job, "cluster.shards"), "environment NETWORK_PS_CORE_NUMBER");
}

TEST(Load, WithoutTheKnownNamesThereIsNoPollingAndNoPinning) {
  const StatusOr<Job> job = job_of("");
  ASSERT_TRUE(job.ok());
  EXPECT_FALSE(job->options.ps.net.polling || job->options.ps.net.pin_cores);
  EXPECT_FALSE(job->options.trainer.net.polling || job->options.trainer.net.pin_cores);
}

TEST(Load, ErrorsInTheFileNameFileLineKeyRangeAndNearest) {
  EXPECT_EQ(error_of("name: x\ndata:\n  batchsize: 512\n"),
            "job.yaml:3: data.batchsize: unknown key; nearest: data.batch_size (1 to 1048576)");
  EXPECT_EQ(error_of("batch_size: 512\n"),
            "job.yaml:1: batch_size: unknown key; nearest: data.batch_size (1 to 1048576)");
  EXPECT_EQ(error_of("data: {batch_size: 0}\n"),
            "job.yaml:1: data.batch_size: 0 is out of range; allowed: 1 to 1048576");
  EXPECT_EQ(error_of("data: {batch_size: big}\n"),
            "job.yaml:1: data.batch_size: \"big\" is not a whole number; allowed: 1 to 1048576");
  EXPECT_EQ(error_of("cluster: {protocol: gprc}\n"),
            "job.yaml:1: cluster.protocol: \"gprc\" is not known; allowed: inproc, grpc, grpc++; "
            "nearest: grpc");
  EXPECT_EQ(error_of("tables:\n  users:\n    optimizer: adam\n"),
            "job.yaml:2: tables.users.dim: is missing; allowed: 1 to 4096");
  EXPECT_EQ(error_of("tables: {a/b: {dim: 4}}\n"),
            "job.yaml:1: tables: \"a/b\" is not a name; allowed: letters, digits, _ and -, at most "
            "64 of them");
  EXPECT_EQ(error_of("seed: 1\nseed: 2\n"), "job.yaml:2: seed: given twice, first at job.yaml:1");
  EXPECT_EQ(error_of("seed: -1\n"),
            "job.yaml:1: seed: \"-1\" is not a whole number; allowed: 0 to 18446744073709551615");
  EXPECT_EQ(error_of("fields: {name: x}\n"), "job.yaml:1: fields: a map is not a list");
  EXPECT_EQ(error_of("tables: [x]\n"), "job.yaml:1: tables: a list is not a map");
}

TEST(Load, AListOfNumbersIsCheckedOneByOne) {
  const StatusOr<Job> job = job_of("train: {label_weights: [1, 0.5]}\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->options.train.label_weights, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(job_of("train: {label_weights: 2}\n")->options.train.label_weights,
            std::vector<double>{2});
  EXPECT_EQ(error_of("train:\n  label_weights: [1, -2, x]\n"),
            "job.yaml:2: train.label_weights.1: -2 is out of range; allowed: 0 to 1000000000\n"
            "job.yaml:2: train.label_weights.2: \"x\" is not a number; allowed: 0 to 1000000000");
}

TEST(Load, KeysThatDoNotFitTogetherNameFileLineAndRole) {
  EXPECT_EQ(error_of("name: x\nps:\n  net:\n    backoff_min_ms: 2s\n"),
            "job.yaml:4: ps.net.backoff_min_ms: backoff_max_ms is 1000 and backoff_min_ms 2000; "
            "allowed: min <= max");
  EXPECT_EQ(error_of("hub: {net: {backoff_min_ms: 9}}\n", {}, {"hub.net.backoff_max_ms=3"}),
            "--set hub.net.backoff_max_ms: hub.net.backoff_max_ms: backoff_max_ms is 3 and "
            "backoff_min_ms 9; allowed: min <= max");
  EXPECT_EQ(error_of("\ntrainer: {net: {tls: {key_file: k}}}\n"),
            "job.yaml:2: trainer.net.tls.key_file: the other one of cert_file and key_file is "
            "missing");
  EXPECT_EQ(error_of("scheduler: {net: {backoff_min_ms: 7, backoff_max_ms: 7}}\n"), "");
}

TEST(Load, ErrorsElsewhereNameTheVariableOrFlag) {
  EXPECT_EQ(error_of("", {}, {"train.stalenes=4"}),
            "--set train.stalenes: train.stalenes: unknown key; nearest: train.staleness (0 to "
            "1048576 or inf)");
  EXPECT_EQ(error_of("", {}, {"train.staleness"}),
            "--set: \"train.staleness\" is not an assignment; allowed: key=value");
  EXPECT_EQ(error_of("", {}, {"train..x=1"}),
            "--set train..x: \"train..x\" is not a key; write names with dots between, such as "
            "data.batch_size");
  EXPECT_EQ(error_of("", {{"STARLING_TRIAN__GEO", "4"}}),
            "environment STARLING_TRIAN__GEO: trian: unknown key; nearest: train");
  EXPECT_EQ(
      error_of("", {{"NETWORK_PS_CORE_NUMBER", "0"}}),
      "environment NETWORK_PS_CORE_NUMBER: cluster.shards: 0 is out of range; allowed: 1 to 1024");
  EXPECT_EQ(error_of("", {{"PS_DISABLE_PIN_CORES", "perhaps"}}),
            "environment PS_DISABLE_PIN_CORES: ps.net.pin_cores: \"perhaps\" is not true or false");
  EXPECT_EQ(error_of("", {{"PS_ENABLE_POLLING", "perhaps"}}),
            "environment PS_ENABLE_POLLING: ps.net.polling: \"perhaps\" is not true or false");
}

TEST(Load, AFieldNeedsATableThatIsThere) {
  EXPECT_EQ(error_of("fields:\n  - {name: user,\n     table: user}\ntables: {users: {dim: 4}, "
                     "genres: {dim: 4}}\n"),
            "job.yaml:3: fields.0.table: there is no table \"user\"; nearest: users");
  EXPECT_EQ(
      error_of(
          "fields:\n  - {name: a, table: t}\n  - {name: a, table: t}\ntables: {t: {dim: 4}}\n"),
      "job.yaml:3: fields.1.name: there is another field \"a\"");
}

TEST(Load, TheTokenComesFromTheEnvironmentAlone) {
  EXPECT_FALSE(job_of("", {{"STARLING_TOKEN", ""}}).ok()) << "an empty token would be none";
  const StatusOr<Job> job = job_of("", {{"STARLING_TOKEN", "s3cret"}});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->options.cluster.token, "s3cret");
  EXPECT_THAT(print_settings(*job), HasSubstr("cluster.token=(not shown)"));
  EXPECT_EQ(print_settings(*job).find("s3cret"), std::string::npos);
  EXPECT_EQ(error_of("", {}, {"cluster.token=s3cret"}),
            "--set cluster.token: cluster.token: unknown key; nearest: cluster.token_file");
}

TEST(Load, PrintedSettingsLoadAsTheSameJob) {
  const StatusOr<Job> job = job_of(kJob, {}, {"name=other"});
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string printed = print_settings(*job);
  EXPECT_THAT(printed, HasSubstr("name=other "));
  EXPECT_THAT(printed, HasSubstr("# --set name\n"));
  std::string assignments = "cluster.trainers * train.threads=2\n";  // is no key
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    assignments += line.substr(0, line.find("  #")) + "\n";
  }
  const StatusOr<Job> again = load_settings(assignments, {.file = "settings"});
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->settings.size(), job->settings.size());
  for (size_t i = 0; i < job->settings.size(); ++i) {
    EXPECT_EQ(again->settings[i].path, job->settings[i].path);
    EXPECT_EQ(again->settings[i].value, job->settings[i].value) << job->settings[i].path;
  }
}

TEST(Load, EveryDefaultIsInsideItsOwnBounds) {
  const StatusOr<Job> job = job_of("");
  ASSERT_TRUE(job.ok());
  for (const Setting& setting : job->settings) {
    const StatusOr<Job> again = job_of("", {}, {setting.path + "=" + setting.value});
    EXPECT_TRUE(again.ok()) << again.status();
  }
}

TEST(Load, EveryKeySaysWhatItMeans) {
  JobOptions options;
  const std::vector<KeyInfo> keys = schema_of(options).keys();
  EXPECT_GT(keys.size(), 100);
  for (const KeyInfo& key : keys) EXPECT_FALSE(key.doc.empty()) << key.path;
  EXPECT_THAT(
      print_keys(),
      HasSubstr(
          "data.batch_size: a whole number (1 to 1048576), default 512. samples of a batch.\n"));
  EXPECT_THAT(print_keys(),
              HasSubstr("tables.*.dim: a whole number (1 to 4096). weights of a row.\n"));
}

TEST(Load, AFileIsReadFromDisk) {
  const std::string path = ::testing::TempDir() + "/starling_load_test.yaml";
  std::ofstream(path) << "seed: 7\n";
  const StatusOr<Job> job = load({.file = path});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->options.seed, 7);
  EXPECT_EQ(origin_of(*job, "seed"), path + ":1");
}

TEST(Load, AFileThatIsNotThereIsNotFound) {
  const StatusOr<Job> job = load({.file = "no/such/job.yaml"});
  EXPECT_EQ(job.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(message_of(job.status()),
            "no/such/job.yaml: cannot be read: No such file or directory");
}

TEST(Load, AFolderIsNoJobFile) {
  const std::string folder = ::testing::TempDir();
  const StatusOr<Job> job = load({.file = folder});
  EXPECT_EQ(job.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(message_of(job.status()), folder + ": cannot be read: Is a directory");
}

TEST(Load, TheEnvironmentOfTheProcessIsRead) {
  ASSERT_EQ(setenv("STARLING_TEST_BIRD", "star=ling", 1), 0);
  const Environment environment = read_environment();
  ASSERT_TRUE(environment.count("STARLING_TEST_BIRD"));
  EXPECT_EQ(environment.at("STARLING_TEST_BIRD"), "star=ling");
  EXPECT_TRUE(load({.environment = {{"STARLING_TEST_BIRD", "x"}}}).ok())
      << "tests may have knobs of their own";
}

TEST(LoadTest, NormaliseTakesTheConstantsThatDataStatsWrote) {
  const std::string path = testing::TempDir() + "starling_load_test_stats.yaml";
  std::ofstream(path) << "age: {mean: 38.5, std: 13.6}\n";
  const std::string yaml = fmt::format(
      "data: {{stats: {}}}\nfields:\n  - {{name: age, kind: dense, transforms: {{log: , normalise: "
      "}}}}\n  - {{name: x, kind: dense, transforms: {{normalise: {{mean: 1, std: 2}}}}}}\n",
      path);
  const auto job = load_text(yaml, {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->options.fields[0].transforms[1].params.flow(), "{mean: 38.5, std: 13.6}");
  EXPECT_EQ(job->options.fields[1].transforms[0].params.flow(), "{mean: 1, std: 2}");
  std::ofstream(path) << "other: {mean: 1, std: 1}\n";
  const Status missing = load_text(yaml, {}).status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message_of(missing)), testing::HasSubstr("fields.age"));
  std::filesystem::remove(path);
  EXPECT_EQ(load_text(yaml, {}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace starling
