// The bounds and defaults of net stand in conf, where a job file is checked, and in net, which
// trusts nobody: here they are held together.
#include "bin/process.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

namespace starling {
namespace {

const std::map<std::string, int64_t NetSection::*> kNumbers = {
    {"first_core", &NetSection::first_core},
    {"spin_us", &NetSection::spin_us},
    {"connect_timeout_ms", &NetSection::connect_timeout_ms},
    {"handshake_timeout_ms", &NetSection::handshake_timeout_ms},
    {"backoff_min_ms", &NetSection::backoff_min_ms},
    {"backoff_max_ms", &NetSection::backoff_max_ms},
    {"ping_every_ms", &NetSection::ping_every_ms},
    {"ping_timeout_ms", &NetSection::ping_timeout_ms},
    {"message_bytes_max", &NetSection::message_bytes_max},
    {"connection_requests_max", &NetSection::connection_requests_max},
    {"connection_bytes_max", &NetSection::connection_bytes_max},
    {"client_channels_max", &NetSection::client_channels_max},
    {"client_bytes_max", &NetSection::client_bytes_max},
    {"server_requests_max", &NetSection::server_requests_max},
    {"server_bytes_max", &NetSection::server_bytes_max},
    {"handshakes_max", &NetSection::handshakes_max},
    {"pool_threads", &NetSection::pool_threads},
    {"pool_queue_max", &NetSection::pool_queue_max},
    {"lend_bytes_min", &NetSection::lend_bytes_min},
};

struct Bounds {
  std::string least, most;  // as a job file has them
};

// Of every whole number under scheduler.net, from the list of options itself.
std::map<std::string, Bounds> bounds_of_net() {
  const std::string section = "scheduler.net.";
  JobOptions options;
  std::map<std::string, Bounds> bounds;
  for (const KeyInfo& key : schema_of(options).keys()) {
    const size_t to = key.allowed.find(" to ");
    if (!key.path.starts_with(section) || to == std::string::npos) continue;
    bounds[key.path.substr(section.size())] = {key.allowed.substr(0, to),
                                               key.allowed.substr(to + 4)};
  }
  return bounds;
}

NetSection section_with(const std::string& key, const std::string& value) {
  // Pinned, so that the first core counts; the other end of the back-off out of the way.
  std::string text = "scheduler: {net: {pin_cores: true, " + key + ": " + value;
  if (key == "backoff_min_ms") text += ", backoff_max_ms: 600s";
  if (key == "backoff_max_ms") text += ", backoff_min_ms: 1";
  const StatusOr<Job> job = load_text(text + "}}", {});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->options.scheduler.net : NetSection();
}

TEST(NetOptionsOfAJob, EveryNumberIsTied) {
  std::set<std::string> here, listed;
  for (const auto& [key, member] : kNumbers) here.insert(key);
  for (const auto& [key, bounds] : bounds_of_net()) listed.insert(key);
  EXPECT_EQ(listed, here);
}

TEST(NetOptionsOfAJob, WhatTheFileAllowsTheNetTakes) {
  for (const auto& [key, bounds] : bounds_of_net()) {
    for (const std::string& value : {bounds.least, bounds.most}) {
      SCOPED_TRACE(key + " = " + value);
      const StatusOr<NetOptions> options = net_options(section_with(key, value), {});
      EXPECT_TRUE(options.ok()) << options.status();
    }
  }
}

TEST(NetOptionsOfAJob, WhatTheFileRefusesTheNetRefusesToo) {
  for (const auto& [key, bounds] : bounds_of_net()) {
    SCOPED_TRACE(key);
    NetSection above = section_with(key, bounds.most);
    above.*kNumbers.at(key) += 1;
    EXPECT_FALSE(net_options(above, {}).ok());
    // A core below 0 means none to the net, and no wait is below 0.
    if (bounds.least == "0" || bounds.least == "0us") continue;
    NetSection below = section_with(key, bounds.least);
    below.*kNumbers.at(key) -= 1;
    EXPECT_FALSE(net_options(below, {}).ok());
  }
}

TEST(NetOptionsOfAJob, TheDefaultsAreTheSame) {
  const NetOptions own;
  const StatusOr<NetOptions> made = net_options({}, {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->spin, own.spin);
  EXPECT_EQ(made->polling, own.polling);
  EXPECT_EQ(made->first_core, own.first_core);
  EXPECT_EQ(made->connect_timeout, own.connect_timeout);
  EXPECT_EQ(made->handshake_timeout, own.handshake_timeout);
  EXPECT_EQ(made->backoff_min, own.backoff_min);
  EXPECT_EQ(made->backoff_max, own.backoff_max);
  EXPECT_EQ(made->ping_every, own.ping_every);
  EXPECT_EQ(made->ping_timeout, own.ping_timeout);
  EXPECT_EQ(made->message_bytes_max, own.message_bytes_max);
  EXPECT_EQ(made->connection_requests_max, own.connection_requests_max);
  EXPECT_EQ(made->connection_bytes_max, own.connection_bytes_max);
  EXPECT_EQ(made->client_channels_max, own.client_channels_max);
  EXPECT_EQ(made->client_bytes_max, own.client_bytes_max);
  EXPECT_EQ(made->server_requests_max, own.server_requests_max);
  EXPECT_EQ(made->server_bytes_max, own.server_bytes_max);
  EXPECT_EQ(made->handshakes_max, own.handshakes_max);
  EXPECT_EQ(made->pool_threads, own.pool_threads);
  EXPECT_EQ(made->pool_queue_max, own.pool_queue_max);
  EXPECT_EQ(made->unix_sockets, own.unix_sockets);
  EXPECT_EQ(made->pull, own.pull);
  EXPECT_EQ(made->lend_bytes_min, own.lend_bytes_min);
}

TEST(Token, IsTheFirstLineWithoutBlanksBehindIt) {
  const std::string path = testing::TempDir() + "/token";
  const auto token_of = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    ClusterSection cluster;
    cluster.token_file = path;
    const StatusOr<NetOptions> options = net_options({}, cluster);
    return options.ok() ? options->token : std::string(message_of(options.status()));
  };
  EXPECT_EQ(token_of("s3cret\r\nmore\n"), "s3cret");
  EXPECT_EQ(token_of("s3 cret \t"), "s3 cret");
  EXPECT_NE(token_of("\ns3cret\n").find("is empty"), std::string::npos);
  EXPECT_NE(token_of("").find("cannot read"), std::string::npos);
}

}  // namespace
}  // namespace starling
