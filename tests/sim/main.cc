// Simulates whole clusters, each decided by one seed.
//
//   sim --seed N [--trace]      one seed; with a trace that a person can read
//   sim --seeds A..B            many; the last one included
//   sim_mutants --mutant NAME   broken on purpose: no_dedup, skipped_tick, early_lookup,
//                               undrained_cut, invented_ids; ends with the first seed that shows it
//
// Ends with 1 when some seed broke a promise (of a mutant: when none did), and names the command
// that replays it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/sim/cluster.h"
#ifdef STARLING_MUTANTS
#include "ps/mutants.h"
#include "scheduler/mutants.h"
#endif

namespace starling::sim {
namespace {

// Breaks one rule on purpose. False: there is no such mutant in this program.
bool set_mutant(const std::string& name, RunOptions& options) {
#ifdef STARLING_MUTANTS
  if (name == "no_dedup") {
    ps_mutant = PsMutant::kNoDedup;
  } else if (name == "skipped_tick") {
    ps_mutant = PsMutant::kSkippedTick;
  } else if (name == "early_lookup") {
    ps_mutant = PsMutant::kEarlyLookup;
  } else if (name == "undrained_cut") {
    scheduler_mutant = SchedulerMutant::kUndrainedCut;
  } else if (name == "invented_ids") {
    options.hub_invents_ids = true;
  } else {
    return false;
  }
  return true;
#else
  (void)name;
  (void)options;
  return false;
#endif
}

struct Flags {
  uint64_t first = 1;
  uint64_t last = 1;
  RunOptions run;
  bool expects_failure = false;
};

uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

bool parse(int count, char** words, Flags& flags) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--trace") {
      flags.run.trace = true;
    } else if (word == "--mutant" && i + 1 < count) {
      if (!set_mutant(words[++i], flags.run)) return false;
      flags.expects_failure = true;
    } else if (word == "--seed" && i + 1 < count) {
      flags.first = flags.last = number(words[++i]);
    } else if (word == "--seeds" && i + 1 < count) {
      const std::string range = words[++i];
      const size_t dots = range.find("..");
      if (dots == std::string::npos) return false;
      flags.first = number(range.substr(0, dots));
      flags.last = number(range.substr(dots + 2));
    } else {
      return false;
    }
  }
  return true;
}

int run(const char* program, const Flags& flags) {
  uint64_t failed = 0, events = 0, cuts = 0, restores = 0;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = flags.first; seed <= flags.last; ++seed) {
    const RunResult result = run_seed(seed, flags.run);
    events += result.events;
    cuts += result.cuts;
    restores += result.restores;
    if (result.failure.empty()) continue;
    ++failed;
    fmt::print("seed {}: {}\n  {}\n  replay: {} --seed {} --trace\n", seed, result.failure,
               Plan::of(seed).describe(), program, seed);
    if (flags.expects_failure) {
      fmt::print("the mutant was caught by seed {}\n", seed);
      return 0;
    }
  }
  const double took_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const uint64_t seeds = flags.last - flags.first + 1;
  fmt::print("{} seeds, {} failed, {} events, {} cuts, {} restores, {:.1f} s, {:.0f} seeds/s\n",
             seeds, failed, events, cuts, restores, took_s, static_cast<double>(seeds) / took_s);
  // A mutant that nobody catches is the failure.
  return (failed == 0) != flags.expects_failure ? 0 : 1;
}

}  // namespace
}  // namespace starling::sim

int main(int count, char** words) {
  starling::sim::Flags flags;
  if (!starling::sim::parse(count, words, flags)) {
    std::fprintf(stderr, "usage: %s [--seed N] [--seeds A..B] [--trace] [--mutant NAME]\n",
                 words[0]);
    return 2;
  }
  return starling::sim::run(words[0], flags);
}
