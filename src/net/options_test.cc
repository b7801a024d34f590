#include "net/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace starling {
namespace {

TEST(NetOptions, TheDefaultsAreLegal) { EXPECT_TRUE(validate(NetOptions()).ok()); }

TEST(NetOptions, BySilenceAPeerIsDeadWithinEightSeconds) {
  const NetOptions options;
  // A ping goes out in the second interval without a word, at the latest.
  EXPECT_LT(2 * options.ping_every + options.ping_timeout, seconds(8));
  // A busy server speaks up in time for a caller with the same options.
  EXPECT_LT(options.ping_every / 2, options.ping_timeout);
}

TEST(NetOptions, EachBoundIsCheckedAndNamed) {
  const std::vector<std::pair<std::string, std::function<void(NetOptions&)>>> wrong = {
      {"net.spin", [](NetOptions& o) { o.spin = milliseconds(11); }},
      {"net.spin", [](NetOptions& o) { o.spin = microseconds(-1); }},
      {"net.first_core", [](NetOptions& o) { o.first_core = -2; }},
      {"net.connect_timeout", [](NetOptions& o) { o.connect_timeout = milliseconds(1); }},
      {"net.handshake_timeout", [](NetOptions& o) { o.handshake_timeout = seconds(601); }},
      {"net.backoff_min", [](NetOptions& o) { o.backoff_min = Duration::zero(); }},
      {"net.backoff_max", [](NetOptions& o) { o.backoff_max = o.backoff_min / 2; }},
      {"net.ping_every", [](NetOptions& o) { o.ping_every = milliseconds(9); }},
      {"net.ping_timeout", [](NetOptions& o) { o.ping_timeout = seconds(601); }},
      {"net.message_bytes_max", [](NetOptions& o) { o.message_bytes_max = 4095; }},
      {"net.connection_requests_max", [](NetOptions& o) { o.connection_requests_max = 0; }},
      {"net.connection_bytes_max", [](NetOptions& o) { o.connection_bytes_max = 1; }},
      {"net.server_requests_max", [](NetOptions& o) { o.server_requests_max = 0; }},
      {"net.server_bytes_max", [](NetOptions& o) { o.server_bytes_max = 0; }},
      {"net.handshakes_max", [](NetOptions& o) { o.handshakes_max = 0; }},
      {"net.pool_threads", [](NetOptions& o) { o.pool_threads = 0; }},
      {"net.pool_queue_max", [](NetOptions& o) { o.pool_queue_max = 0; }},
      {"net.lend_bytes_min", [](NetOptions& o) { o.lend_bytes_min = 100; }},
      {"net.tls.key_file", [](NetOptions& o) { o.tls.cert_file = "cert.pem"; }},
  };
  for (const auto& [name, change] : wrong) {
    NetOptions options;
    change(options);
    const Status status = validate(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(message_of(status)), testing::HasSubstr(name));
  }
}

TEST(NetOptions, AMistakeIsToldUnderTheNameAndUnitOfTheJobFile) {
  NetOptions options{.backoff_min = milliseconds(100), .backoff_max = milliseconds(50)};
  EXPECT_EQ(message_of(validate(options)), "net.backoff_max_ms = 50 is outside of 100 .. 600000");
  options = {.spin = milliseconds(11)};
  EXPECT_EQ(message_of(validate(options)), "net.spin_us = 11000 is outside of 0 .. 10000");
}

}  // namespace
}  // namespace starling
