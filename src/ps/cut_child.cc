// The child of a test: saves a cut after every push, each number the round of its push, until it is
// killed.
#include <unistd.h>

#include "ps/cut_testing.h"

namespace starling {
namespace {

int save_for_ever(const std::string& directory) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = make_files(clock, static_cast<uint64_t>(::getpid()));
  CutBench job(*fs, 2, small_job());
  uint64_t round = 0;
  if (const StatusOr<Cut> newest = find_cut(*fs, directory, 0); newest.ok()) {
    round = newest->manifest.cut_id();
    if (!job.restore(directory, round).ok()) return 3;
  }
  while (true) {
    const uint64_t base = round % 4 == 0 ? 0 : round;
    job.push(++round, 60);
    const v1::SaveOption option = job.save_option(directory, round, base);
    // The number may have been begun by the life before this one.
    (void)fs->remove(option.path(), Recursive::kYes);
    if (!job.save(option).ok()) return 4;
    if (!remove_old_cuts(*fs, directory, 3, round).ok()) return 5;
  }
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) { return argc == 2 ? starling::save_for_ever(argv[1]) : 2; }
