#include "transport/measure.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "transport/child.h"
#include "transport/kind.h"

namespace starling::bench {
namespace {

constexpr Duration kAnswerTime = seconds(30);
constexpr Duration kSettleTime = milliseconds(500);

// What one burst of one kind gave.
struct Burst {
  double p50_us = 0;
  double p99_us = 0;
  double gb_per_s = 0;  // of replies
  double cpu_s_per_gb = 0;
  double calls = 0;
};

// A server process (none for inproc) and a client process.
struct Pair {
  Kind kind;
  std::unique_ptr<Child> server;
  std::unique_ptr<Child> client;
  std::map<std::string, std::vector<Burst>, std::less<>> bursts;  // by load

  StatusOr<Duration> cpu() const {
    STARLING_ASSIGN_OR_RETURN(Duration total, client->cpu());
    if (server != nullptr) {
      STARLING_ASSIGN_OR_RETURN(const Duration more, server->cpu());
      total += more;
    }
    return total;
  }
};

StatusOr<Pair> start_pair(const Kind& kind) {
  Pair pair{.kind = kind};
  std::string address = "-";
  if (kind.serve != nullptr) {
    STARLING_ASSIGN_OR_RETURN(pair.server, Child::start({"--serve", std::string(kind.name)}));
    STARLING_ASSIGN_OR_RETURN(address, pair.server->read_line(kAnswerTime));
  }
  STARLING_ASSIGN_OR_RETURN(pair.client, Child::start({"--call", std::string(kind.name), address}));
  STARLING_RETURN_IF_ERROR(pair.client->read_line(kAnswerTime).status());
  return pair;
}

StatusOr<Burst> run_burst(Pair& pair, const Load& load, double burst_s) {
  STARLING_ASSIGN_OR_RETURN(const Duration cpu_before, pair.cpu());
  STARLING_RETURN_IF_ERROR(pair.client->write_line(fmt::format("{}\t{}", load.name, burst_s)));
  STARLING_ASSIGN_OR_RETURN(const std::string line, pair.client->read_line(kAnswerTime));
  STARLING_ASSIGN_OR_RETURN(const Duration cpu_after, pair.cpu());
  Burst burst;
  double elapsed_s = 0;
  if (std::sscanf(line.c_str(), "%lf %lf %lf %lf", &burst.calls, &elapsed_s, &burst.p50_us,
                  &burst.p99_us) != 4) {
    return internal_error("{}", line);
  }
  const double gb = burst.calls * static_cast<double>(load.reply_bytes) / 1e9;
  burst.gb_per_s = gb / elapsed_s;
  burst.cpu_s_per_gb = std::chrono::duration<double>(cpu_after - cpu_before).count() / gb;
  return burst;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double median_of(const std::vector<Burst>& bursts, double Burst::*member) {
  std::vector<double> values;
  values.reserve(bursts.size());
  for (const Burst& burst : bursts) values.push_back(burst.*member);
  return median(std::move(values));
}

// The share of a core that a server with idle connections uses.
StatusOr<double> measure_idle(const Plan& plan) {
  STARLING_ASSIGN_OR_RETURN(const auto server, Child::start({"--serve", "grpc++"}));
  STARLING_ASSIGN_OR_RETURN(const std::string address, server->read_line(kAnswerTime));
  STARLING_ASSIGN_OR_RETURN(const auto client,
                            Child::start({"--hold", address, std::to_string(plan.connections)}));
  STARLING_RETURN_IF_ERROR(client->read_line(kAnswerTime).status());
  std::this_thread::sleep_for(kSettleTime);
  const RealClock clock;
  const TimePoint start = clock.now();
  STARLING_ASSIGN_OR_RETURN(const Duration before, server->cpu());
  std::this_thread::sleep_for(std::chrono::duration<double>(plan.idle_s));
  STARLING_ASSIGN_OR_RETURN(const Duration after, server->cpu());
  return 100.0 * std::chrono::duration<double>(after - before).count() /
         std::chrono::duration<double>(clock.now() - start).count();
}

// What all processes of the machine have used so far, idle and waiting time left out.
double machine_cpu_s() {
  std::ifstream stat("/proc/stat");
  std::string name;
  double user = 0;
  double nice = 0;
  double system = 0;
  stat >> name >> user >> nice >> system;
  return (user + nice + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Compares what the machine did with what the pairs did. Numbers that were taken beside other work
// say little: whoever spins is pushed off its core, and whoever sleeps is woken cheaply.
class OtherWork {
 public:
  explicit OtherWork(const std::vector<Pair>& pairs)
      : pairs_(pairs), start_(clock_.now()), machine_s_(machine_cpu_s()), ours_s_(ours_s()) {}
  // Cores that processes other than the pairs kept busy on average.
  double cores() const {
    const double elapsed_s = std::chrono::duration<double>(clock_.now() - start_).count();
    return std::max(0.0, (machine_cpu_s() - machine_s_ - (ours_s() - ours_s_)) / elapsed_s);
  }

 private:
  double ours_s() const {
    Duration total{};
    for (const Pair& pair : pairs_) total += pair.cpu().value_or(Duration::zero());
    return std::chrono::duration<double>(total).count();
  }
  const RealClock clock_;
  const std::vector<Pair>& pairs_;
  const TimePoint start_;
  const double machine_s_;
  const double ours_s_;
};

std::string to_json(const Plan& plan, const std::vector<Pair>& pairs, double idle_percent,
                    double other_cores) {
  std::string out = fmt::format(
      "{{\n  \"rounds\": {},\n  \"cores\": {},\n  \"other_cores\": {:.3f},\n  \"kinds\": {{",
      plan.rounds, usable_cores(), other_cores);
  std::string_view comma;
  for (const Pair& pair : pairs) {
    out += fmt::format("{}\n    \"{}\": {{", std::exchange(comma, ","), pair.kind.name);
    std::string_view inner;
    for (const auto& [load, bursts] : pair.bursts) {
      out += fmt::format(
          "{}\n      \"{}\": {{\"p50_us\": {:.3f}, \"p99_us\": {:.3f}, \"gb_per_s\": {:.5f}, "
          "\"cpu_s_per_gb\": {:.4f}, \"calls_per_burst\": {:.0f}}}",
          std::exchange(inner, ","), load, median_of(bursts, &Burst::p50_us),
          median_of(bursts, &Burst::p99_us), median_of(bursts, &Burst::gb_per_s),
          median_of(bursts, &Burst::cpu_s_per_gb), median_of(bursts, &Burst::calls));
    }
    out += "}";
  }
  out += fmt::format(
      "}},\n  \"idle\": {{\"connections\": {}, \"seconds\": {}, \"percent\": {:.4f}}}\n}}\n",
      plan.connections, plan.idle_s, idle_percent);
  return out;
}

}  // namespace

StatusOr<std::string> measure(const Plan& plan) {
  STARLING_ASSIGN_OR_RETURN(const double idle_percent, measure_idle(plan));
  std::vector<Pair> pairs;
  for (const Kind& kind : kinds()) {
    StatusOr<Pair> pair = start_pair(kind);
    if (!pair.ok()) return with_context(pair.status(), kind.name);
    pairs.push_back(*std::move(pair));
  }
  const OtherWork other(pairs);
  // The first round only warms up: connections, pools, caches.
  for (int round = -1; round < plan.rounds; ++round) {
    for (const Load& load : loads()) {
      const double burst_s = load.reply_bytes > (1 << 20) ? 2 * plan.burst_s : plan.burst_s;
      for (Pair& pair : pairs) {
        StatusOr<Burst> burst = run_burst(pair, load, burst_s);
        if (!burst.ok()) return with_context(burst.status(), pair.kind.name);
        if (round >= 0) pair.bursts[std::string(load.name)].push_back(*burst);
      }
    }
  }
  return to_json(plan, pairs, idle_percent, other.cores());
}

}  // namespace starling::bench
