#include "net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Address, ParsesWhatItPrints) {
  for (const char* text : {"inproc://ps-0", "grpc://10.0.0.7:9000", "grpc++://host.name:1",
                           "grpc++://[::1]:65535", "grpc://0.0.0.0:0"}) {
    auto address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(Address, HasItsParts) {
  auto address = Address::parse("grpc++://[fe80::2]:77");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->protocol, Protocol::kFast);
  EXPECT_EQ(address->host, "fe80::2");
  EXPECT_EQ(address->port, 77);
}

TEST(Address, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"host:1", "no protocol"},     {"http://host:1", "http"},
      {"grpc://host", "no :port"},   {"grpc://host:", "port ''"},
      {"grpc://host:x", "port 'x'"}, {"grpc://host:65536", "65536"},
      {"grpc://host:-1", "-1"},      {"grpc://host:1 ", "'1 '"},
      {"grpc://:1", "no host"},      {"grpc://::1:5", "brackets"},
      {"inproc://", "no name"},      {"", "no protocol"},
      {"grpc://[]:1", "no host"},    {"grpc://[[a]]:1", "no name"},
      {"grpc://a b:1", "no name"},   {std::string("grpc://127.0.0.1\0.org:1", 23), "no name"},
  };
  for (const auto& [text, reason] : wrong) {
    auto address = Address::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(message_of(address.status())), testing::HasSubstr(reason)) << text;
  }
}

TEST(Address, KnowsLoopbackAndWildcard) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.8.7", "::1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
    EXPECT_FALSE(is_wildcard(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
    EXPECT_TRUE(is_wildcard(host)) << host;
  }
  for (const char* host : {"10.0.0.1", "128.0.0.1", "localhost.evil.org", "::2", "example"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
    EXPECT_FALSE(is_wildcard(host)) << host;
  }
}

TEST(Protocol, NamesGoBothWays) {
  for (int i = 0; i < kProtocols; ++i) {
    const auto protocol = static_cast<Protocol>(i);
    auto parsed = parse_protocol(protocol_name(protocol));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, protocol);
  }
  EXPECT_THAT(std::string(message_of(parse_protocol("grpc+").status())),
              testing::HasSubstr("inproc, grpc, grpc++"));
}

}  // namespace
}  // namespace starling
