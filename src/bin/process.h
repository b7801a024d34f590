// What every role's subcommand does the same: flags to a job, a job's sections to a network, and
// waiting for the signal to stop.
//
// Uses: base, conf, net. Threads: the main thread.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "conf/flags.h"
#include "conf/load.h"
#include "net/network.h"

namespace starling {

// One flag with a value (--scheduler ADDRESS, --scheduler=ADDRESS), as often as it is given; takes
// it out of `arguments`. InvalidArgument: the value is missing.
StatusOr<std::vector<std::string>> take_values(std::vector<std::string>& arguments,
                                               std::string_view flag);
// The same for a flag that may be given once; empty when it is not there.
StatusOr<std::string> take_value(std::vector<std::string>& arguments, std::string_view flag);
// One flag without a value.
bool take_switch(std::vector<std::string>& arguments, std::string_view flag);
// InvalidArgument naming the first argument that nobody took.
Status no_more(const std::vector<std::string>& arguments, std::string_view command);

// The job that the flags name, from its file, the environment and --set.
StatusOr<Job> load_job(const Flags& flags);
// What `cluster.protocol` means between processes: inproc reaches none, so grpc++ stands in for it.
std::string remote_protocol(const ClusterSection& cluster);

// An address as a flag gives it: grpc://HOST:PORT, grpc++://HOST:PORT, or HOST:PORT by
// cluster.protocol. InvalidArgument: none of these.
StatusOr<Address> parse_address(const std::string& text, const ClusterSection& cluster);
// Where a role listens: as its flags say, else at its section's net.listen, else on loopback at a
// port that the kernel chooses.
StatusOr<std::vector<Address>> listen_addresses(std::vector<std::string> flags,
                                                const NetSection& section,
                                                const ClusterSection& cluster);
// The name of a node that was given none: role, host and process.
std::string default_node_name(std::string_view role);
// train.staleness; none: without bound.
std::optional<uint32_t> staleness_of(const JobOptions& job);
// --timeout SECONDS, 1 to 86400; `fallback` when it is empty.
StatusOr<Duration> parse_timeout(const std::string& text, Duration fallback);

// A message as JSON: the names of the .proto files, and every field, also those at their defaults.
StatusOr<std::string> json_of(const google::protobuf::Message& message);

// The path of a program in the folder of this one.
StatusOr<std::string> program_beside(const std::string& name);

// A random number that no other process has; never 0.
uint64_t make_incarnation();

// The options of the net as a role's section and the cluster's say. NotFound: the token's file.
StatusOr<NetOptions> net_options(const NetSection& section, const ClusterSection& cluster);
// InvalidArgument: the level.
StatusOr<Log> open_log(const LogSection& section, const std::string& role);

// What a role may take to finish or refuse what is there when it is told to stop.
inline constexpr Duration kRoleStopPatience = seconds(5);

// Blocks SIGINT and SIGTERM in this thread and all it starts; made before the first thread.
class StopSignal {
 public:
  StopSignal();
  // Waits for one of them, asking `failed` several times a second. OK: a signal came.
  Status wait(const std::function<Status()>& failed) const;
  // Waits so long for one of them; false: none came.
  bool came(Duration patience) const;
  // From now on one of them ends the process at once.
  void release() const;
};

}  // namespace starling
