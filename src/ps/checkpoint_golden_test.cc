// The bytes of a cut and of its exports, frozen in tests/golden/checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ps/checkpoint_export.h"
#include "ps/cut_testing.h"

namespace starling {
namespace {

constexpr const char* kDirectory = "mem://golden/job";

v1::CreateOption golden_job() {
  v1::CreateOption job;
  job.set_seed(5);
  *job.add_tables() = cut_table("users", rule_of("adagrad", {{"lr", 0.5}}));
  *job.mutable_tables(0)->mutable_admission() = rule_of("count", {{"count", 2}});
  job.mutable_tables(0)->set_statistics(true);
  job.mutable_tables(0)->mutable_initializer()->set_name("zero");
  job.mutable_tables(0)->mutable_initializer()->clear_values();
  v1::DenseOptions* variable = job.add_variables();
  variable->set_name("bias");
  variable->add_shape(3);
  *variable->mutable_optimizer() = rule_of("momentum", {{"lr", 0.5}});
  return job;
}

// Exact in binary, so that no compiler or vector unit has a say.
void push(CutBench& job) {
  Table& users = job.table(0, "users");
  const std::vector<Key> keys = {Key{7}, Key{1000}, Key{UINT64_MAX}};
  for (uint64_t step = 1; step <= 2; ++step) {
    std::vector<float> gradients(keys.size() * 4, 1.0F);
    const std::vector<float> shows(keys.size(), 2.0F), clicks(keys.size(), 1.0F);
    const size_t count = step == 1 ? 3 : 2;
    ASSERT_TRUE(users
                    .push({.keys = std::span(keys).first(count),
                           .gradients = std::span(gradients).first(count * 4),
                           .shows = std::span(shows).first(count),
                           .clicks = std::span(clicks).first(count),
                           .step = step})
                    .ok());
  }
  DenseVariable& bias = *job.bench(0).shard.variable("bias");
  for (const auto& [number, part] : bias.parts()) {
    ASSERT_TRUE(part->set(std::vector<float>{1, 2, 4}).ok());
    ASSERT_TRUE(part->push(std::vector<float>{1, 0, -1}, 1).ok());
  }
}

// Compares with the frozen file. What differs is left in the test's temporary directory.
void expect_golden(const std::string& name, const std::string& bytes) {
  const std::string path = std::string(STARLING_GOLDEN) + "/" + name;
  std::ifstream file(path, std::ios::binary);
  std::stringstream frozen;
  frozen << file.rdbuf();
  if (file.good() && frozen.str() == bytes) return;
  const std::string kept = ::testing::TempDir() + "/" + name;
  std::ofstream(kept, std::ios::binary) << bytes;
  ADD_FAILURE() << path << " differs; what was written is in " << kept;
}

TEST(CheckpointGolden, TheBytesOfACutAreFrozen) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = FileSystems::standard({}, clock);
  CutBench job(*fs, 1, golden_job());
  push(job);
  ASSERT_EQ(job.save(job.save_option(kDirectory, 3)), absl::OkStatus());
  const std::string path = std::string(kDirectory) + "/" + cut_name(3);
  const StatusOr<std::vector<FileInfo>> files = fs->list_directory(path);
  ASSERT_EQ(files->size(), 4u);
  for (const FileInfo& file : *files) {
    expect_golden(file.name().substr(file.name().rfind('-') + 1), *read_file(*fs, file.url));
  }
}

TEST(CheckpointGolden, AFrozenCutIsStillRead) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = FileSystems::standard({}, clock);
  const std::string path = "mem://frozen/job/" + cut_name(3);
  const std::string prefix = "000000000003-001-000-0000000000000007-";
  for (const char* name : {"MANIFEST", "00000.dense", "00001.rows", "00002.state"}) {
    const StatusOr<std::string> bytes = read_file(*fs, std::string(STARLING_GOLDEN) + "/" + name);
    ASSERT_EQ(bytes.status(), absl::OkStatus());
    const std::string full = std::string(name) == "MANIFEST" ? name : prefix + name;
    ASSERT_EQ(write_file(*fs, path + "/" + full, *bytes), absl::OkStatus());
  }
  CutBench written(*fs, 1, golden_job());
  push(written);
  CutBench read(*fs, 2, golden_job());
  ASSERT_EQ(read.restore("mem://frozen/job"), absl::OkStatus());
  EXPECT_EQ(read.image().tables, written.image().tables);
  EXPECT_EQ(read.image().variables.at("bias").at(0).weights, (std::vector<float>{0.5, 2, 4.5}));
}

TEST(CheckpointGolden, ExportsAreFrozen) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = FileSystems::standard({}, clock);
  CutBench job(*fs, 1, golden_job());
  push(job);
  ASSERT_EQ(job.save(job.save_option(kDirectory, 3)), absl::OkStatus());
  const StatusOr<Cut> cut = find_cut(*fs, kDirectory, 0);
  for (const char* name : {"text", "csv", "npy"}) {
    const StatusOr<std::vector<Exported>> exported =
        export_cut(*fs, *cut, {}, *export_format(name), std::string("mem://out/") + name);
    ASSERT_EQ(exported.status(), absl::OkStatus());
    for (const Exported& one : *exported) {
      for (const std::string& url : one.files) {
        expect_golden(url.substr(url.rfind('/') + 1), *read_file(*fs, url));
      }
    }
  }
  EXPECT_EQ(export_cut(*fs, *cut, {"nobody"}, ExportFormat::kText, "mem://out/x").status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(export_format("xml").status().code(), StatusCode::kInvalidArgument);
}

TEST(CheckpointExport, AChainInSmallRangesGivesTheSameRows) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = FileSystems::standard({}, clock);
  v1::CreateOption schema;
  *schema.add_tables() = cut_table("plain", rule_of("sgd"));
  CutBench job(*fs, 2, schema);
  job.push(1);
  ASSERT_EQ(job.save(job.save_option(kDirectory, 1)), absl::OkStatus());
  job.push(2, 20);
  job.erase("plain", {Key{5}, Key{6}, Key{7}, Key{8}});
  ASSERT_EQ(job.save(job.save_option(kDirectory, 2, 1)), absl::OkStatus());
  ASSERT_EQ(job.save(job.save_option(kDirectory, 3)), absl::OkStatus());
  const auto text = [&](uint64_t cut_id, uint64_t range_bytes) {
    const std::string to = fmt::format("mem://out/{}-{}", cut_id, range_bytes);
    const auto exported = export_cut(*fs, *find_cut(*fs, kDirectory, cut_id), {"plain"},
                                     ExportFormat::kText, to, range_bytes);
    EXPECT_EQ(exported.status(), absl::OkStatus());
    return *read_file(*fs, to + "/plain.txt");
  };
  const std::string whole = text(3, 1 << 30);
  EXPECT_GT(whole.size(), 1000u);
  EXPECT_EQ(text(2, 1 << 12), whole);
  EXPECT_EQ(text(3, 1 << 12), whole);
}

}  // namespace
}  // namespace starling
