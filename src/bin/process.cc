#include "bin/process.h"

#include <google/protobuf/util/json_util.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <random>

#include "hub/options.h"
#include "worker/tables.h"

namespace starling {

StatusOr<std::vector<std::string>> take_values(std::vector<std::string>& arguments,
                                               std::string_view flag) {
  std::vector<std::string> values;
  for (size_t i = 0; i < arguments.size();) {
    const std::string& argument = arguments[i];
    if (argument == flag) {
      if (i + 1 == arguments.size()) return invalid_argument("{} needs a value", flag);
      values.push_back(arguments[i + 1]);
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i),
                      arguments.begin() + static_cast<std::ptrdiff_t>(i + 2));
    } else if (argument.starts_with(flag) && argument.size() > flag.size() &&
               argument[flag.size()] == '=') {
      values.push_back(argument.substr(flag.size() + 1));
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return values;
}

StatusOr<std::string> take_value(std::vector<std::string>& arguments, std::string_view flag) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<std::string> values, take_values(arguments, flag));
  if (values.size() > 1) return invalid_argument("{} is given twice", flag);
  return values.empty() ? "" : values.front();
}

bool take_switch(std::vector<std::string>& arguments, std::string_view flag) {
  return std::erase(arguments, flag) > 0;
}

Status no_more(const std::vector<std::string>& arguments, std::string_view command) {
  if (arguments.empty()) return absl::OkStatus();
  return invalid_argument("unknown argument '{}'; see starling {} --help", arguments.front(),
                          command);
}

StatusOr<Job> load_job(const Flags& flags) {
  STARLING_ASSIGN_OR_RETURN(
      Job job, load({.file = flags.job, .environment = read_environment(), .sets = flags.sets}));
  STARLING_RETURN_IF_ERROR(check_fields(job.options));
  STARLING_RETURN_IF_ERROR(check_tables(job.options));
  return job;
}

std::string remote_protocol(const ClusterSection& cluster) {
  return cluster.protocol == "inproc" ? "grpc++" : cluster.protocol;
}

StatusOr<Address> parse_address(const std::string& text, const ClusterSection& cluster) {
  if (text.find("://") != std::string::npos) return Address::parse(text);
  return Address::parse(fmt::format("{}://{}", remote_protocol(cluster), text));
}

StatusOr<std::vector<Address>> listen_addresses(std::vector<std::string> flags,
                                                const NetSection& section,
                                                const ClusterSection& cluster) {
  if (flags.empty()) flags.push_back(section.listen.empty() ? "127.0.0.1:0" : section.listen);
  std::vector<Address> addresses;
  for (const std::string& text : flags) {
    STARLING_ASSIGN_OR_RETURN(const Address address, parse_address(text, cluster));
    addresses.push_back(address);
  }
  return addresses;
}

std::string default_node_name(std::string_view role) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) {
    return fmt::format("{}-{}", role, ::getpid());
  }
  return fmt::format("{}-{}-{}", role, host.data(), ::getpid());
}

std::optional<uint32_t> staleness_of(const JobOptions& job) {
  if (job.train.staleness == kInfinite) return std::nullopt;
  return static_cast<uint32_t>(job.train.staleness);
}

StatusOr<Duration> parse_timeout(const std::string& text, Duration fallback) {
  if (text.empty()) return fallback;
  int64_t wait_s = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, wait_s);
  if (error != std::errc() || stop != end || wait_s < 1 || wait_s > 86400) {
    return invalid_argument("--timeout {}: 1 to 86400 seconds are allowed", text);
  }
  return Duration(seconds(wait_s));
}

StatusOr<std::string> json_of(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string out;
  if (!google::protobuf::util::MessageToJsonString(message, &out, options).ok()) {
    return internal_error("{} cannot be written as JSON", message.GetTypeName());
  }
  return out;
}

StatusOr<std::string> program_beside(const std::string& name) {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size <= 0) return internal_error("/proc/self/exe: {}", std::strerror(errno));
  const std::string program(path.data(), static_cast<size_t>(size));
  return program.substr(0, program.rfind('/') + 1) + name;
}

uint64_t make_incarnation() {
  std::random_device device;
  const uint64_t number = (uint64_t{device()} << 32) | device();
  return std::max<uint64_t>(number, 1);
}

namespace {

// The first line without the blanks that editors and other systems leave behind it. A file that is
// there and empty is a mistake: taken as "no token" it would open the cluster to everybody.
StatusOr<std::string> read_token(const std::string& path) {
  std::ifstream in(path);
  std::string token;
  if (!std::getline(in, token)) return not_found("cluster.token_file: cannot read {}", path);
  token.erase(token.find_last_not_of(" \t\r") + 1);
  if (token.empty()) {
    return invalid_argument("cluster.token_file: the first line of {} is empty", path);
  }
  return token;
}

}  // namespace

StatusOr<NetOptions> net_options(const NetSection& section, const ClusterSection& cluster) {
  NetOptions options;
  options.token = cluster.token;
  if (!cluster.token_file.empty() && options.token.empty()) {
    STARLING_ASSIGN_OR_RETURN(options.token, read_token(cluster.token_file));
  }
  options.tls = {.ca_file = section.tls.ca_file,
                 .cert_file = section.tls.cert_file,
                 .key_file = section.tls.key_file,
                 .server_name = section.tls.server_name};
  options.spin = microseconds(section.spin_us);
  options.polling = section.polling;
  options.first_core = section.pin_cores ? static_cast<int>(section.first_core) : -1;
  options.connect_timeout = milliseconds(section.connect_timeout_ms);
  options.handshake_timeout = milliseconds(section.handshake_timeout_ms);
  options.backoff_min = milliseconds(section.backoff_min_ms);
  options.backoff_max = milliseconds(section.backoff_max_ms);
  options.ping_every = milliseconds(section.ping_every_ms);
  options.ping_timeout = milliseconds(section.ping_timeout_ms);
  options.message_bytes_max = static_cast<size_t>(section.message_bytes_max);
  options.connection_requests_max = static_cast<uint32_t>(section.connection_requests_max);
  options.connection_bytes_max = static_cast<size_t>(section.connection_bytes_max);
  options.client_channels_max = static_cast<uint32_t>(section.client_channels_max);
  options.client_bytes_max = static_cast<size_t>(section.client_bytes_max);
  options.server_requests_max = static_cast<uint32_t>(section.server_requests_max);
  options.server_bytes_max = static_cast<size_t>(section.server_bytes_max);
  options.handshakes_max = static_cast<uint32_t>(section.handshakes_max);
  options.pool_threads = static_cast<uint32_t>(section.pool_threads);
  options.pool_queue_max = static_cast<uint32_t>(section.pool_queue_max);
  options.unix_sockets = section.unix_sockets;
  options.pull = section.pull;
  options.lend_bytes_min = static_cast<size_t>(section.lend_bytes_min);
  STARLING_RETURN_IF_ERROR(validate(options));
  return options;
}

StatusOr<Log> open_log(const LogSection& section, const std::string& role) {
  LogOptions options{.role = role, .file = section.file};
  options.level = section.level == "debug"     ? LogLevel::kDebug
                  : section.level == "warning" ? LogLevel::kWarning
                  : section.level == "error"   ? LogLevel::kError
                  : section.level == "off"     ? LogLevel::kOff
                                               : LogLevel::kInfo;
  return Log::open(options);
}

namespace {

constexpr Duration kLookEvery = milliseconds(200);

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Status StopSignal::wait(const std::function<Status()>& failed) const {
  while (!came(kLookEvery)) STARLING_RETURN_IF_ERROR(failed());
  return absl::OkStatus();
}

bool StopSignal::came(Duration patience) const {
  const sigset_t set = stop_signals();
  const auto whole = std::chrono::duration_cast<seconds>(patience);
  const timespec wait{.tv_sec = whole.count(), .tv_nsec = (patience - whole).count()};
  return ::sigtimedwait(&set, nullptr, &wait) > 0;
}

void StopSignal::release() const {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace starling
