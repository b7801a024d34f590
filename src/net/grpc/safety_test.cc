// Who gets in over `grpc` and who does not.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>

#include "net/grpc/grpc_testing.h"
#include "starling/v1/ps.grpc.pb.h"

namespace starling {
namespace {

using grpc_testing::Certificate;
using grpc_testing::Echo;
using grpc_testing::Folder;
using grpc_testing::loopback;
using grpc_testing::Node;
using grpc_testing::patience;
using grpc_testing::target_of;
using testing::AllOf;
using testing::HasSubstr;

NetOptions with_token(std::string token) {
  NetOptions options;
  options.token = std::move(token);
  return options;
}

Status call(Node& node, const Target& target, Deadline deadline = patience()) {
  Client client(node.network());
  return client.call_wait(target, Method::kPsPull, Message(), deadline).status();
}

// Long enough for a handshake that works, short enough to wait for one that never will.
Deadline a_while() { return Deadline::in(RealClock(), seconds(1)); }

TEST(GrpcToken, TheSameTokenGetsIn) {
  Node node(with_token("secret"));
  Echo echo;
  auto server = node.serve(echo);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(call(node, target_of(**server)), absl::OkStatus());
}

TEST(GrpcToken, AnotherOneIsUnauthenticated) {
  Node node(with_token("secret"));
  Echo echo;
  auto server = node.serve(echo);
  for (const char* wrong : {"secreT", "secre", "secret2"}) {
    Node other(with_token(wrong));
    EXPECT_EQ(call(other, target_of(**server)).code(), StatusCode::kUnauthenticated) << wrong;
  }
  Node without;
  EXPECT_EQ(call(without, target_of(**server)).code(), StatusCode::kUnauthenticated);
}

TEST(GrpcToken, AStockClientSendsItAsMetadata) {
  Node node(with_token("secret"));
  Echo echo;
  auto server = node.serve(echo);
  const std::string where = fmt::format("127.0.0.1:{}", (*server)->addresses()[0].port);
  auto stub = v1::Ps::NewStub(grpc::CreateChannel(where, grpc::InsecureChannelCredentials()));
  v1::TensorMessage request;
  v1::TensorMessage reply;
  grpc::ClientContext without;
  EXPECT_EQ(stub->Pull(&without, request, &reply).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext with;
  with.AddMetadata("starling-token", "secret");
  EXPECT_TRUE(stub->Pull(&with, request, &reply).ok());
}

TEST(GrpcToken, OneThatMetadataCannotCarryIsRefusedAtOnce) {
  Node node(with_token("a\nb"));
  Echo echo;
  EXPECT_EQ(node.serve(echo).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(call(node, {.address = {Protocol::kGrpc, "127.0.0.1", 1}}).code(),
            StatusCode::kInvalidArgument);
}

TEST(GrpcListen, WithoutATokenAWildcardIsLoopbackAndTheLogSaysSo) {
  Node node;
  Echo echo;
  for (const char* wildcard : {"0.0.0.0", "::"}) {
    auto server = node.serve(echo, {Protocol::kGrpc, wildcard, 0});
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_TRUE(is_loopback((*server)->addresses()[0].host));
    EXPECT_NE((*server)->addresses()[0].port, 0);
    EXPECT_EQ(call(node, target_of(**server)), absl::OkStatus());
  }
  EXPECT_THAT(node.log(), AllOf(HasSubstr("loopback_only"), HasSubstr("net.token")));
}

TEST(GrpcListen, WithoutATokenAnotherAddressIsRefused) {
  Node node;
  Echo echo;
  auto server = node.serve(echo, {Protocol::kGrpc, "192.0.2.1", 0});
  EXPECT_EQ(server.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(message_of(server.status())), HasSubstr("net.token"));
}

TEST(GrpcListen, WithATokenAWildcardTakesBothKindsOfAddresses) {
  Node node(with_token("secret"));
  Echo echo;
  auto server = node.serve(echo, {Protocol::kGrpc, "::", 0});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->addresses()[0].port;
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    EXPECT_EQ(call(node, {.address = {Protocol::kGrpc, host, port}}), absl::OkStatus()) << host;
  }
}

TEST(GrpcListen, ATakenPortIsSaidToBeTaken) {
  Node node;
  Echo echo;
  auto first = node.serve(echo);
  auto second = node.serve(echo, (*first)->addresses()[0]);
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists) << second.status();
}

class GrpcTls : public testing::Test {
 protected:
  GrpcTls() {
    ours_.write(folder_.file("ca.pem"), folder_.file("ca.key"));
    foreign_.write(folder_.file("foreign_ca.pem"), folder_.file("foreign_ca.key"));
    Certificate("node", &ours_).write(folder_.file("node.pem"), folder_.file("node.key"));
    Certificate("stranger", &foreign_)
        .write(folder_.file("stranger.pem"), folder_.file("stranger.key"));
  }
  NetOptions options(const std::string& ca, const std::string& own) const {
    NetOptions options;
    if (!ca.empty()) options.tls.ca_file = folder_.file(ca + ".pem");
    if (!own.empty()) {
      options.tls.cert_file = folder_.file(own + ".pem");
      options.tls.key_file = folder_.file(own + ".key");
    }
    return options;
  }

  Folder folder_;
  Certificate ours_{"our authority"};
  Certificate foreign_{"another authority"};
  Echo echo_;
};

TEST_F(GrpcTls, AClientThatTrustsTheServersAuthorityGetsIn) {
  Node server_node(options("", "node"));
  auto server = server_node.serve(echo_);
  ASSERT_TRUE(server.ok()) << server.status();
  Node trusting(options("ca", ""));
  EXPECT_EQ(call(trusting, target_of(**server)), absl::OkStatus());
  Node foreign(options("foreign_ca", ""));
  EXPECT_EQ(call(foreign, target_of(**server), a_while()).code(), StatusCode::kDeadlineExceeded);
  Node plain;
  EXPECT_FALSE(call(plain, target_of(**server), a_while()).ok());
}

TEST_F(GrpcTls, MutualTlsWantsACertificateOfOurAuthority) {
  Node server_node(options("ca", "node"));
  auto server = server_node.serve(echo_);
  ASSERT_TRUE(server.ok()) << server.status();
  Node good(options("ca", "node"));
  EXPECT_EQ(call(good, target_of(**server)), absl::OkStatus());
  Node missing(options("ca", ""));
  EXPECT_FALSE(call(missing, target_of(**server), a_while()).ok());
  Node foreign(options("ca", "stranger"));
  EXPECT_FALSE(call(foreign, target_of(**server), a_while()).ok());
}

TEST_F(GrpcTls, MutualTlsMayListenOnAnyAddressWithoutAToken) {
  Node node(options("ca", "node"));
  auto server = node.serve(echo_, {Protocol::kGrpc, "0.0.0.0", 0});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->addresses()[0].host, "0.0.0.0");
  Node one_sided(options("", "node"));
  auto other = one_sided.serve(echo_, {Protocol::kGrpc, "192.0.2.1", 0});
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(GrpcTls, TheServersNameIsChecked) {
  Node server_node(options("", "node"));
  auto server = server_node.serve(echo_);
  NetOptions expects = options("ca", "");
  expects.tls.server_name = "localhost";
  Node right(expects);
  EXPECT_EQ(call(right, target_of(**server)), absl::OkStatus());
  expects.tls.server_name = "elsewhere";
  Node wrong(expects);
  EXPECT_FALSE(call(wrong, target_of(**server), a_while()).ok());
}

TEST_F(GrpcTls, AFileThatCannotBeReadIsNamed) {
  NetOptions missing = options("ca", "node");
  missing.tls.key_file = folder_.file("nowhere.key");
  Node node(missing);
  auto server = node.serve(echo_);
  EXPECT_EQ(server.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(message_of(server.status())), HasSubstr("nowhere.key"));
  const Status client = call(node, {.address = {Protocol::kGrpc, "127.0.0.1", 1}});
  EXPECT_EQ(client.code(), StatusCode::kNotFound);
}

TEST_F(GrpcTls, FilesThatDoNotFitAreRefusedAndNamed) {
  NetOptions mixed = options("", "node");
  mixed.tls.key_file = folder_.file("stranger.key");
  Node other_key(mixed);
  EXPECT_EQ(other_key.serve(echo_).status().code(), StatusCode::kInvalidArgument);
  for (const char* broken : {"ca.pem", "node.pem", "node.key"}) {
    Folder keep;
    std::filesystem::copy(folder_.file(broken), keep.file(broken));
    std::ofstream(folder_.file(broken)) << "not a certificate";
    Node node(options("ca", "node"));
    auto server = node.serve(echo_);
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(message_of(server.status())), HasSubstr(broken));
    std::filesystem::remove(folder_.file(broken));
    std::filesystem::copy(keep.file(broken), folder_.file(broken));
  }
}

TEST_F(GrpcTls, AnAuthorityAloneDoesNotMakeAServer) {
  Node node(options("ca", ""));
  EXPECT_EQ(node.serve(echo_).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace starling
