// Whether generated code can be the other end, and what is copied on the way.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/server_builder.h>

#include "net/grpc/convert.h"
#include "net/grpc/grpc_testing.h"
#include "starling/v1/hub.grpc.pb.h"
#include "starling/v1/ps.grpc.pb.h"
#include "wire/proto_codec.h"

namespace starling {
namespace {

using grpc_testing::Echo;
using grpc_testing::Node;
using grpc_testing::patience;
using grpc_testing::target_of;
using testing::AllOf;
using testing::HasSubstr;

// Bytes that differ from their neighbours, so that a shifted copy shows.
Tensor numbered(int64_t rows) {
  Tensor tensor = Tensor::allocate(DType::kFloat32, {rows, 16});
  uint32_t i = 0;
  for (float& x : tensor.mutable_values<float>()) x = static_cast<float>(i++ % 1'000'003);
  return tensor;
}

Message some_message(uint32_t lane, int64_t rows) {
  Message message;
  message.meta.mutable_header()->set_lane(lane);
  message.meta.mutable_header()->set_request_id(42);
  message.meta.set_name("users");
  message.tensors.push_back(Tensor::vector_of<int64_t>({1, -2, 3}));
  message.tensors.push_back(numbered(rows));
  return message;
}

// What generated code would hold.
v1::TensorMessage whole(const Message& message) {
  v1::TensorMessage proto = message.meta;
  for (const Tensor& tensor : message.tensors) to_proto(tensor, proto.add_tensors());
  return proto;
}

std::shared_ptr<grpc::Channel> stock_channel(const Server& server, int bytes_max = -1) {
  grpc::ChannelArguments arguments;
  if (bytes_max > 0) arguments.SetMaxReceiveMessageSize(bytes_max);
  const std::string where = fmt::format("127.0.0.1:{}", server.addresses()[0].port);
  return grpc::CreateCustomChannel(where, grpc::InsecureChannelCredentials(), arguments);
}

TEST(GrpcStockClient, GetsByteForByteWhatTheHandlerSent) {
  Node node;
  Echo echo;
  auto server = node.serve(echo);
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = v1::Ps::NewStub(stock_channel(**server));
  for (const int64_t rows : {0, 3, 10'000}) {
    const v1::TensorMessage request = whole(some_message(1, rows));
    v1::TensorMessage reply;
    grpc::ClientContext context;
    const grpc::Status status = stub->Pull(&context, request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.SerializeAsString(), request.SerializeAsString()) << rows << " rows";
  }
}

TEST(GrpcStockClient, GetsRepliesAboveFourMegabytesWithARaisedLimit) {
  Node node;
  Echo echo;
  auto server = node.serve(echo);
  const v1::TensorMessage request = whole(some_message(0, 100'000));
  ASSERT_GT(request.ByteSizeLong(), 6u << 20);
  v1::TensorMessage reply;
  grpc::ClientContext small;
  EXPECT_EQ(v1::Ps::NewStub(stock_channel(**server))->Pull(&small, request, &reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext large;
  auto stub = v1::Ps::NewStub(stock_channel(**server, 64 << 20));
  ASSERT_TRUE(stub->Pull(&large, request, &reply).ok());
  EXPECT_EQ(reply.SerializeAsString(), request.SerializeAsString());
}

TEST(GrpcStockClient, AVoidReplyIsAVoidMessage) {
  class Void : public Handler {
    void handle(Request request, Reply reply) override {
      reply.send(status_reply(not_found("no table {}", request.message.meta.name())));
    }
  } handler;
  Node node;
  auto server = node.serve(handler);
  v1::VoidMessage reply;
  grpc::ClientContext context;
  auto stub = v1::Ps::NewStub(stock_channel(**server));
  ASSERT_TRUE(stub->Push(&context, whole(some_message(0, 1)), &reply).ok());
  EXPECT_EQ(reply.status().code(), 5u);
  EXPECT_EQ(reply.status().message(), "no table users");
}

TEST(GrpcStockClient, HearsUnimplementedNamingBoth) {
  Node node;
  Echo echo;
  auto server = node.serve(echo);
  auto channel = stock_channel(**server);
  v1::TensorMessage reply;
  grpc::ClientContext wrong_role;
  grpc::Status status =
      v1::Hub::NewStub(channel)->ReadSample(&wrong_role, v1::TensorMessage(), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("Hub.ReadSample"), HasSubstr("Ps")));

  grpc::ClientContext unknown;
  status = grpc::internal::BlockingUnaryCall(
      channel.get(),
      grpc::internal::RpcMethod("/starling.v1.Ps/Fly", nullptr,
                                grpc::internal::RpcMethod::NORMAL_RPC),
      &unknown, v1::TensorMessage(), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("/starling.v1.Ps/Fly"), HasSubstr("a Ps")));
}

TEST(GrpcStockClient, ALaneOutOfRangeIsRefusedNamingTheLanes) {
  Node node;
  Echo echo;
  auto server = node.serve(echo);
  v1::TensorMessage reply;
  grpc::ClientContext context;
  const grpc::Status status =
      v1::Ps::NewStub(stock_channel(**server))->Pull(&context, whole(some_message(2, 1)), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("2 lanes"));
}

TEST(GrpcStockClient, ATensorThatDoesNotFitItsShapeIsRefused) {
  Node node;
  Echo echo;
  auto server = node.serve(echo);
  v1::TensorMessage request = whole(some_message(0, 3));
  request.mutable_tensors(1)->mutable_data()->pop_back();
  v1::TensorMessage reply;
  grpc::ClientContext context;
  EXPECT_EQ(v1::Ps::NewStub(stock_channel(**server))->Pull(&context, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(GrpcStockClient, NamesItselfByItsHeader) {
  Node node;
  Echo echo;
  auto server = node.serve(echo);
  v1::TensorMessage request;
  request.mutable_header()->set_role(v1::ROLE_TRAINER);
  request.mutable_header()->set_role_id(7);
  request.mutable_header()->set_incarnation(99);
  v1::TensorMessage reply;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::Ps::NewStub(stock_channel(**server))->Pull(&context, request, &reply).ok());
  EXPECT_EQ(echo.last_peer().identity.role, v1::ROLE_TRAINER);
  EXPECT_EQ(echo.last_peer().identity.node, 7u);
  EXPECT_EQ(echo.last_peer().identity.incarnation, 99u);
  EXPECT_EQ(echo.last_peer().protocol, Protocol::kGrpc);
  EXPECT_THAT(echo.last_peer().address, HasSubstr("127.0.0.1:"));
}

TEST(GrpcClient, TellsWhoItIsWithoutTouchingTheHeader) {
  NetOptions options;
  options.identity = {.role = v1::ROLE_HUB, .node = 3, .incarnation = UINT64_MAX};
  Node node(options);
  Echo echo;
  auto server = node.serve(echo);
  Client client(node.network());
  auto reply = client.call_wait(target_of(**server), Method::kPsPull, Message(), patience());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->meta.has_header());
  EXPECT_EQ(echo.last_peer().identity.role, v1::ROLE_HUB);
  EXPECT_EQ(echo.last_peer().identity.node, 3u);
  EXPECT_EQ(echo.last_peer().identity.incarnation, UINT64_MAX);
}

// A server of generated code.
class StockPs final : public v1::Ps::Service {
 public:
  StockPs() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    builder.SetMaxReceiveMessageSize(64 << 20);
    server_ = builder.BuildAndStart();
    target_ = {.address = {Protocol::kGrpc, "127.0.0.1", static_cast<uint16_t>(port)},
               .lane = LaneId{3}};
  }
  ~StockPs() override { server_->Shutdown(); }
  const Target& target() const { return target_; }

  grpc::Status Pull(grpc::ServerContext* context, const v1::TensorMessage* request,
                    v1::TensorMessage* reply) override {
    *reply = *request;
    return grpc::Status::OK;
  }
  grpc::Status Push(grpc::ServerContext* context, const v1::TensorMessage* request,
                    v1::VoidMessage* reply) override {
    return {grpc::StatusCode::ABORTED, "not today"};
  }

 private:
  std::unique_ptr<grpc::Server> server_;
  Target target_;
};

TEST(GrpcStockServer, AnswersOurClient) {
  StockPs ps;
  Node node;
  Client client(node.network());
  for (const int64_t rows : {0, 3, 100'000}) {
    const Message question = some_message(3, rows);
    auto reply = client.call_wait(ps.target(), Method::kPsPull, question, patience());
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(whole(*reply).SerializeAsString(), whole(question).SerializeAsString());
  }
}

TEST(GrpcStockServer, IsToldTheLaneOfTheTarget) {
  StockPs ps;
  Node node;
  Client client(node.network());
  auto reply = client.call_wait(ps.target(), Method::kPsPull, Message(), patience());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->meta.header().lane(), 3u);
}

TEST(GrpcStockServer, ItsFailuresNameItAndKeepTheirCode) {
  StockPs ps;
  Node node;
  Client client(node.network());
  auto reply = client.call_wait(ps.target(), Method::kPsPush, Message(), patience());
  EXPECT_EQ(reply.status().code(), StatusCode::kAborted);
  EXPECT_THAT(std::string(message_of(reply.status())),
              AllOf(HasSubstr("not today"), HasSubstr(ps.target().address.to_string())));
}

TEST(GrpcClient, SaysWhyThereIsNoConnection) {
  Node node;
  Client client(node.network());
  // Nobody listens on the port of a server that has gone.
  Echo echo;
  auto server = node.serve(echo);
  const Target target = target_of(**server);
  server->reset();
  // The first may end before the connection has been refused.
  std::string why;
  for (int attempt = 0; attempt < 20 && why.find("refused") == std::string::npos; ++attempt) {
    auto reply = client.call_wait(target, Method::kPsPull, Message(),
                                  Deadline::in(RealClock(), milliseconds(300)));
    ASSERT_EQ(reply.status().code(), StatusCode::kDeadlineExceeded);
    why = message_of(reply.status());
  }
  EXPECT_THAT(why, AllOf(HasSubstr(target.address.to_string()), HasSubstr("onnection refused")));
}

std::vector<grpc::Slice> slices_of(const grpc::ByteBuffer& body) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(body.Dump(&slices).ok());
  return slices;
}

TEST(GrpcBody, RefersToLargeTensorsInsteadOfCopying) {
  const Message message = some_message(0, 1000);
  const Buffer& buffer = message.tensors[1].buffer();
  const long owners = buffer.owners();
  {
    const grpc::ByteBuffer body = to_body(message);
    EXPECT_EQ(buffer.owners(), owners + 1) << "one slice holds the tensor";
    bool found = false;
    for (const grpc::Slice& slice : slices_of(body)) {
      found |=
          static_cast<const void*>(slice.begin()) == buffer.data() && slice.size() == buffer.size();
    }
    EXPECT_TRUE(found);
  }
  EXPECT_EQ(buffer.owners(), owners) << "gRPC let go of the tensor";
}

TEST(GrpcBody, IsReadIntoOneBufferOfThePool) {
  Message message = some_message(0, 100'000);
  BufferPool pool;
  auto read = from_body(to_body(message), NetOptions(), pool);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(pool.stats().made, 1u);
  EXPECT_EQ(whole(*read).SerializeAsString(), whole(message).SerializeAsString());
}

TEST(GrpcBody, AnEmptyMessageIsABodyOfNoBytes) {
  const grpc::ByteBuffer body = to_body(Message());
  EXPECT_TRUE(body.Valid());
  EXPECT_EQ(body.Length(), 0u);
  BufferPool pool;
  EXPECT_TRUE(from_body(body, NetOptions(), pool).ok());
}

TEST(GrpcStatus, EveryCodeGoesThereAndBack) {
  for (int code = 0; code <= 16; ++code) {
    const Status status(static_cast<StatusCode>(code), code == 0 ? "" : "why");
    EXPECT_EQ(from_grpc(to_grpc(status)), status);
  }
}

TEST(GrpcStatus, AnEndlessTextIsCut) {
  const grpc::Status status = to_grpc(internal_error("{}", std::string(1 << 20, 'x')));
  EXPECT_LE(status.error_message().size(), 4096u);
}

TEST(GrpcDeadline, SurvivesTheWayThereAndBack) {
  const TimePoint now = RealClock().now();
  EXPECT_TRUE(from_grpc(to_grpc(Deadline::never(), now), now).is_never());
  const Deadline there = from_grpc(to_grpc(Deadline(now + seconds(100)), now), now);
  EXPECT_GT(there.at(), now + seconds(40));
  EXPECT_LE(there.at(), now + seconds(100));
  EXPECT_TRUE(from_grpc(to_grpc(Deadline(now - seconds(1)), now), now).passed(RealClock().now()));
}

}  // namespace
}  // namespace starling
