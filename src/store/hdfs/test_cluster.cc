#include "store/hdfs/test_cluster.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "store/hdfs/http.h"

namespace starling {
namespace {

struct Run {
  int status = 0;
  std::string output;
};

// tools/hdfs.py with these arguments; they come from this file alone.
Run run_tool(const std::string& arguments) {
  const std::string line =
      fmt::format("python3 '{}/tools/hdfs.py' {} 2>&1", STARLING_SOURCE_DIR, arguments);
  Run run;
  FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) return {.status = -1, .output = "popen failed"};
  std::array<char, 4096> text{};
  while (const size_t got = ::fread(text.data(), 1, text.size(), pipe))
    run.output.append(text.data(), got);
  const int state = ::pclose(pipe);
  run.status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  return run;
}

bool is_required() {
  const char* ci = ::getenv("CI");
  return ci != nullptr && std::string_view(ci) == "true";
}

constexpr int kExitMissing = 3;
constexpr Duration kPatience = seconds(300);

// Holds the cluster until gtest has run everything.
class ClusterHolder final : public ::testing::Environment {
 public:
  void TearDown() override { cluster_.reset(); }
  std::unique_ptr<TestCluster> cluster_;
  std::string reason_;
  bool is_tried_ = false;
};

ClusterHolder* const holder =
    static_cast<ClusterHolder*>(::testing::AddGlobalTestEnvironment(new ClusterHolder));

}  // namespace

TestCluster* TestCluster::get(std::string* reason) {
  if (!holder->is_tried_) {
    holder->is_tried_ = true;
    std::unique_ptr<TestCluster> cluster(new TestCluster);
    if (cluster->start(&holder->reason_)) holder->cluster_ = std::move(cluster);
  }
  if (holder->cluster_ == nullptr) {
    *reason = holder->reason_;
    if (is_required()) ADD_FAILURE() << "HDFS is required where CI=true: " << *reason;
  }
  return holder->cluster_.get();
}

bool TestCluster::start(std::string* reason) {
  const Run run = run_tool(fmt::format("up --folder '{}/hdfs' --datanodes 2 --owner-pid {}",
                                       directory_.path(), ::getpid()));
  if (run.status != 0) {
    *reason = run.output;
    // A machine without Java may skip; a cluster that cannot start is a failure everywhere.
    if (run.status != kExitMissing) ADD_FAILURE() << run.output;
    return false;
  }
  // Java may have warned of something before.
  const auto json = nlohmann::json::parse(
      run.output.substr(std::min(run.output.rfind("\n{") + 1, run.output.size())), nullptr, false);
  if (!json.is_object()) {
    *reason = "tools/hdfs.py printed no JSON: " + run.output;
    return false;
  }
  const auto address = [](const nlohmann::json& port) {
    return fmt::format("127.0.0.1:{}", port.get<int>());
  };
  host_ = address(json["http_port"]);
  https_host_ = address(json["https_port"]);
  user_ = json["user"].get<std::string>();
  rpc_host_ = address(json["rpc_port"]);
  ca_file_ = json["ca_file"].get<std::string>();
  for (const auto& node : json["datanodes"]) data_nodes_.push_back(address(node["http_port"]));
  is_up_ = true;
  return true;
}

TestCluster::~TestCluster() {
  if (is_up_) run_tool(fmt::format("down --folder '{}/hdfs'", directory_.path()));
}

void TestCluster::control(const std::string& command, int index) {
  const Run run =
      run_tool(fmt::format("{} --folder '{}/hdfs' --index {}", command, directory_.path(), index));
  ASSERT_EQ(run.status, 0) << run.output;
}

HdfsOptions TestCluster::options() const {
  HdfsOptions options;
  options.incarnation = Incarnation{0x1234};
  // Longer than any pause of a busy machine: what should succeed does.
  options.connect_timeout = kPatience;
  options.call_timeout = kPatience;
  options.stall_timeout = kPatience;
  options.retry_for = kPatience;
  // HDFS sets a whole block aside for each file that is begun, for minutes where its writer died.
  options.block_bytes = 16 << 20;
  return options;
}

std::unique_ptr<FileSystem> TestCluster::connect(const HdfsOptions& options,
                                                 std::string_view host) const {
  const StatusOr<Url> url = parse_url("hdfs://" + std::string(host.empty() ? host_ : host) + "/");
  auto fs = HdfsFileSystem::make(*url, options, clock_);
  EXPECT_OK(fs);
  return fs.ok() ? *std::move(fs) : nullptr;
}

std::string TestCluster::request(const std::string& method, const std::string& path,
                                 const std::string& query) const {
  HttpPool pool({.connect_timeout = kPatience, .ca_file = {}});
  const HttpMethod verb = method == "PUT"      ? HttpMethod::kPut
                          : method == "DELETE" ? HttpMethod::kDelete
                                               : HttpMethod::kGet;
  const std::string user = "user.name=" + user_;
  HttpReply reply = pool.call(
      verb,
      fmt::format("http://{}/webhdfs/v1{}?{}&{}", host_, percent_encode(path, true), query, user),
      kPatience);
  if (!reply.location.empty()) reply = pool.call(verb, reply.location, kPatience);
  return fmt::format("{} {}", reply.code, reply.body);
}

}  // namespace starling
