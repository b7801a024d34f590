// Whatever breaks while a cut is saved: older cuts stay, and what is called saved can be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/sanitized.h"
#include "ps/cut_testing.h"
#include "store/faulty.h"

extern char** environ;

namespace starling {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kDirectory = "mem://cuts/job";

// The job as it is in a cut.
JobImage image_of(FileSystem& fs, const std::string& directory, uint64_t cut_id) {
  CutBench job(fs, 1, small_job());
  EXPECT_EQ(job.restore(directory, cut_id), absl::OkStatus());
  return job.image();
}

// Saves cut 2 while the store breaks at its n-th call. False: the call never came.
bool save_with_fault(Fault fault, bool cuts_power) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = make_files(clock);
  FaultyFileSystem faulty(*fs, [](Duration) {});
  CutBench job(faulty, 1, small_job());
  job.push(1);
  EXPECT_EQ(job.save(job.save_option(kDirectory, 1)), absl::OkStatus());
  const JobImage first = job.image();
  job.push(2, 20);
  const JobImage second = job.image();
  const uint64_t before = faulty.calls();
  const uint64_t nth = fault.nth;
  faulty.add(std::move(fault));
  const Status status = job.save(job.save_option(kDirectory, 2, 1));
  if (cuts_power) {
    EXPECT_EQ(faulty.power_cut(), absl::OkStatus());
  }
  const bool came = faulty.calls() - before >= nth;
  faulty.clear();
  EXPECT_EQ(image_of(*fs, kDirectory, 1).tables, first.tables);
  EXPECT_EQ(fs->exists(std::string(kDirectory) + "/" + cut_name(1) + "/MANIFEST").value(), true);
  const StatusOr<Cut> cut = find_cut(*fs, kDirectory, 2);
  if (status.ok()) {
    EXPECT_EQ(cut.status(), absl::OkStatus()) << "called saved";
  }
  if (cut.ok()) {
    EXPECT_THAT(*verify_cut(*fs, *cut), IsEmpty());
    EXPECT_EQ(image_of(*fs, kDirectory, 2).tables, second.tables);
  }
  if (!status.ok()) {
    // The next save works, whatever the failed one left.
    job.push(3, 20);
    EXPECT_EQ(job.save(job.save_option(kDirectory, 3)), absl::OkStatus());
    EXPECT_EQ(image_of(*fs, kDirectory, 0).tables, job.image().tables);
  }
  return came;
}

uint64_t at_every_call(const std::function<Fault(uint64_t)>& make, bool cuts_power = false) {
  uint64_t n = 1;
  while (save_with_fault(make(n), cuts_power) && !::testing::Test::HasFailure()) {
    n += kSanitized ? 4 : 1;
  }
  return n - 1;
}

TEST(CutFault, AFailedCallNeverHarmsAnOlderCutNorReportsSuccess) {
  EXPECT_GT(
      at_every_call([](uint64_t n) { return Fault{.nth = n, .status = unavailable("no answer")}; }),
      20u);
}

TEST(CutFault, AStoreThatIsGoneNeverHarmsAnOlderCutNorReportsSuccess) {
  EXPECT_GT(at_every_call([](uint64_t n) {
              return Fault{.nth = n, .status = resource_exhausted("disk full"), .is_lasting = true};
            }),
            20u);
}

TEST(CutFault, ALostAnswerNeverHarmsAnOlderCutNorReportsSuccess) {
  EXPECT_GT(at_every_call([](uint64_t n) {
              return Fault{.nth = n, .status = unavailable("lost"), .is_after = true};
            }),
            20u);
}

TEST(CutFault, AShortWriteNeverHarmsAnOlderCutNorReportsSuccess) {
  EXPECT_GT(at_every_call([](uint64_t n) {
              return Fault{.op = FileOp::kWrite,
                           .nth = n,
                           .status = resource_exhausted("disk full"),
                           .is_lasting = true,
                           .cut_bytes = 3};
            }),
            5u);
}

TEST(CutFault, APowerCutNeverHarmsAnOlderCutNorReportsSuccess) {
  EXPECT_GT(at_every_call(
                [](uint64_t n) {
                  return Fault{.nth = n, .status = unavailable("power"), .is_lasting = true};
                },
                /*cuts_power=*/true),
            20u);
}

TEST(CutFault, DamageInAnyFileIsNamedAndTheCutBeforeStillServes) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = make_files(clock);
  CutBench job(*fs, 2, small_job());
  job.push(1);
  const JobImage first = job.image();
  ASSERT_EQ(job.save(job.save_option(kDirectory, 1)), absl::OkStatus());
  job.push(2);
  ASSERT_EQ(job.save(job.save_option(kDirectory, 2)), absl::OkStatus());
  const std::string path = std::string(kDirectory) + "/" + cut_name(2);
  const StatusOr<std::vector<FileInfo>> files = fs->list_directory(path);
  ASSERT_GE(files->size(), 7u);
  for (const FileInfo& file : *files) {
    const std::string whole = *read_file(*fs, file.url);
    for (size_t i = 0; i < 12; ++i) {
      std::string damaged = whole;
      damaged[(i * 7919) % whole.size()] ^= static_cast<char>(1 << (i % 8));
      if (i == 10) damaged.resize(whole.size() / 2);
      if (i == 11) damaged += "more";
      ASSERT_EQ(write_file(*fs, file.url, damaged), absl::OkStatus());
      if (file.name().ends_with(".state")) {
        // A restore has it from the manifest; verify looks.
        EXPECT_THAT(*verify_cut(*fs, *read_cut(*fs, path)),
                    ::testing::ElementsAre(HasSubstr(file.name())));
        continue;
      }
      CutBench other(*fs, 1, small_job());
      const Status status = other.restore(kDirectory);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << file.name() << ": " << status;
      EXPECT_THAT(std::string(message_of(status)), HasSubstr(file.name()));
    }
    ASSERT_EQ(fs->remove(file.url, Recursive::kNo), absl::OkStatus());
    CutBench other(*fs, 1, small_job());
    const bool is_read = !file.name().ends_with(".state") && file.name() != kManifestName;
    EXPECT_EQ(other.restore(kDirectory, 2).ok(), file.name().ends_with(".state")) << file.name();
    if (is_read) {
      EXPECT_EQ(other.restore(kDirectory).code(), StatusCode::kDataLoss);
    }
    ASSERT_EQ(write_file(*fs, file.url, whole), absl::OkStatus());
    ASSERT_EQ(other.restore(kDirectory, 1), absl::OkStatus());
    EXPECT_EQ(other.image().tables, first.tables);
  }
}

TEST(CutFault, AFailedRestoreChangesNothing) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = make_files(clock);
  CutBench job(*fs, 1, small_job());
  job.push(1);
  ASSERT_EQ(job.save(job.save_option(kDirectory, 1)), absl::OkStatus());
  job.push(2);
  const JobImage before = job.image();
  const StatusOr<Cut> cut = find_cut(*fs, kDirectory, 1);
  ASSERT_EQ(fs->remove(cut->path + "/" + cut->manifest.files(0).name(), Recursive::kNo),
            absl::OkStatus());
  EXPECT_EQ(job.restore(kDirectory).code(), StatusCode::kDataLoss);
  EXPECT_EQ(job.image().tables, before.tables);
}

// cut_child.cc, which saves until it is killed.
pid_t start_child(std::string directory) {
  std::string program = STARLING_CUT_CHILD;
  const std::array<char*, 3> arguments = {program.data(), directory.data(), nullptr};
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ);
  return error == 0 ? child : -1;
}

TEST(CutFault, AProcessKilledWhileSavingLeavesOnlyWholeCuts) {
  std::string directory = (std::filesystem::temp_directory_path() / "starling-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = make_files(clock);
  CutBench oracle(*fs, 1, small_job());
  uint64_t rounds = 0;
  Rng rng(42, 0, 0);
  for (int life = 0; life < 20; ++life) {
    const pid_t child = start_child(directory);
    ASSERT_GT(child, 0);
    // The first life must have saved something; later ones may die before they do.
    const TimePoint end = clock.now() + seconds(60);
    while (life == 0 && !find_cut(*fs, directory, 0).ok() && clock.now() < end) ::usleep(1000);
    ::usleep(static_cast<useconds_t>(rng.below(60'000)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int ended = 0;
    ASSERT_EQ(::waitpid(child, &ended, 0), child);
    ASSERT_TRUE(WIFSIGNALED(ended)) << "the child failed by itself: " << WEXITSTATUS(ended);
    const StatusOr<Cut> newest = find_cut(*fs, directory, 0);
    ASSERT_EQ(newest.status(), absl::OkStatus());
    ASSERT_GE(newest->manifest.cut_id(), rounds);
    while (rounds < newest->manifest.cut_id()) oracle.push(++rounds, 60);
    CutBench restored(*fs, 1 + life % 3, small_job());
    ASSERT_EQ(restored.restore(directory), absl::OkStatus());
    EXPECT_EQ(restored.image().tables, oracle.oracle_image());
    const StatusOr<std::vector<CutEntry>> entries = list_cuts(*fs, directory);
    for (const CutEntry& entry : *entries) {
      if (entry.status.code() == StatusCode::kNotFound) continue;
      ASSERT_EQ(entry.status, absl::OkStatus());
      EXPECT_THAT(*verify_cut(*fs, entry.cut), IsEmpty());
      EXPECT_EQ(chain_of(*fs, entry.cut).status(), absl::OkStatus());
    }
  }
  EXPECT_GT(rounds, 0u);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace starling
