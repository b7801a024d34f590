// transport_bench: every transport, its rivals and the limit in one run, two processes each.
// kUsage lists how it is called.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "transport/kind.h"
#include "transport/measure.h"

namespace starling::bench {
namespace {

constexpr std::string_view kUsage =
    "usage: transport_bench [--quick]              measures and prints one JSON document\n"
    "       transport_bench --serve KIND           serves until standard input ends; prints its "
    "address\n"
    "       transport_bench --call KIND ADDRESS    a client that runs a burst per line "
    "\"LOAD<tab>SECONDS\"\n"
    "       transport_bench --hold ADDRESS N       N idle connections until standard input ends\n";

constexpr Plan kQuickPlan{.rounds = 7, .burst_s = 0.04, .idle_s = 2};

// Keeps freed memory in the process, so that large messages cost no page faults.
void tune_malloc() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2047 << 20);
}

Status serve(const Kind& kind) {
  if (kind.serve == nullptr) return invalid_argument("{} has no server of its own", kind.name);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Serving> serving, kind.serve());
  std::cout << serving->address() << std::endl;
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return absl::OkStatus();
}

double us(Duration time) { return static_cast<double>(time.count()) / 1000; }

Status run_one(Caller& caller, const std::string& line, std::vector<Duration>* times) {
  const size_t tab = line.find('\t');
  if (tab == std::string::npos) return invalid_argument("a line is LOAD<tab>SECONDS");
  STARLING_ASSIGN_OR_RETURN(const Load load, find_load(line.substr(0, tab)));
  const std::chrono::duration<double> time(std::stod(line.substr(tab + 1)));
  const RealClock clock;
  times->clear();
  const TimePoint start = clock.now();
  const TimePoint until = start + std::chrono::duration_cast<Duration>(time);
  STARLING_RETURN_IF_ERROR(caller.burst(load, until, times));
  const Duration elapsed = clock.now() - start;
  if (times->empty()) return internal_error("not one exchange in a burst");
  std::sort(times->begin(), times->end());
  const size_t p99 = std::min(times->size() - 1, times->size() * 99 / 100);
  std::cout << fmt::format("{} {:.9f} {:.3f} {:.3f}", times->size(), us(elapsed) / 1e6,
                           us((*times)[times->size() / 2]), us((*times)[p99]))
            << std::endl;
  return absl::OkStatus();
}

Status call(const Kind& kind, const std::string& address) {
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Caller> caller, kind.call(address));
  std::cout << "ready" << std::endl;
  std::vector<Duration> times;
  times.reserve(1 << 20);
  for (std::string line; std::getline(std::cin, line);) {
    STARLING_RETURN_IF_ERROR(run_one(*caller, line, &times));
  }
  return absl::OkStatus();
}

Status run(const std::vector<std::string>& arguments) {
  const std::string mode = arguments.empty() ? "" : arguments[0];
  if (mode == "--help") {
    std::cout << kUsage;
    for (const Kind& kind : kinds()) std::cout << fmt::format("KIND {}\n", kind.name);
    for (const Load& load : loads()) std::cout << fmt::format("LOAD {}\n", load.name);
    return absl::OkStatus();
  }
  if (mode == "--hold" && arguments.size() == 3) {
    return hold_connections(arguments[1], std::stoi(arguments[2]));
  }
  if ((mode == "--serve" && arguments.size() == 2) || (mode == "--call" && arguments.size() == 3)) {
    STARLING_ASSIGN_OR_RETURN(const Kind kind, find_kind(arguments[1]));
    if (kind.tuned_malloc) tune_malloc();
    return mode == "--serve" ? serve(kind) : call(kind, arguments[2]);
  }
  if (!mode.empty() && mode != "--quick") {
    return invalid_argument("unknown arguments; --help lists them");
  }
  STARLING_ASSIGN_OR_RETURN(const std::string json, measure(mode.empty() ? Plan() : kQuickPlan));
  std::cout << json;
  return absl::OkStatus();
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  const starling::Status status = starling::bench::run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::cerr << "transport_bench: " << starling::message_of(status) << std::endl;
  return 1;
}
