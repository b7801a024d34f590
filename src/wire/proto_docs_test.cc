// The .proto files are the manual of every client that is not ours, so nothing in them may be
// without words.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace starling {
namespace {

namespace pb = google::protobuf;

template <typename Descriptor>
bool documented(const Descriptor* descriptor) {
  pb::SourceLocation location;
  return descriptor->GetSourceLocation(&location) &&
         !(location.leading_comments.empty() && location.trailing_comments.empty());
}

// Reads the descriptors that protoc wrote with their comments.
class ProtoDocs : public testing::TestWithParam<const char*> {
 protected:
  ProtoDocs() {
    std::ifstream in(STARLING_PROTO_DESCRIPTORS, std::ios::binary);
    pb::FileDescriptorSet set;
    EXPECT_TRUE(set.ParseFromIstream(&in));
    for (const pb::FileDescriptorProto& file : set.file()) {
      EXPECT_NE(pool_.BuildFile(file), nullptr) << file.name();
    }
    file_ = pool_.FindFileByName(std::string("starling/v1/") + GetParam() + ".proto");
  }

  pb::DescriptorPool pool_;
  const pb::FileDescriptor* file_ = nullptr;
};

TEST_P(ProtoDocs, EveryFieldHasWords) {
  ASSERT_NE(file_, nullptr);
  for (int m = 0; m < file_->message_type_count(); ++m) {
    const pb::Descriptor* message = file_->message_type(m);
    for (int f = 0; f < message->field_count(); ++f) {
      EXPECT_TRUE(documented(message->field(f))) << message->field(f)->full_name();
    }
  }
}

TEST_P(ProtoDocs, EveryRpcHasWords) {
  ASSERT_NE(file_, nullptr);
  for (int s = 0; s < file_->service_count(); ++s) {
    for (int r = 0; r < file_->service(s)->method_count(); ++r) {
      EXPECT_TRUE(documented(file_->service(s)->method(r)))
          << file_->service(s)->method(r)->full_name();
    }
  }
}

// A missing value of an enum is its value 0, so that one must be the default that the comments
// promise.
TEST_P(ProtoDocs, EveryEnumStartsAtZero) {
  ASSERT_NE(file_, nullptr);
  for (int e = 0; e < file_->enum_type_count(); ++e) {
    EXPECT_EQ(file_->enum_type(e)->value(0)->number(), 0) << file_->enum_type(e)->full_name();
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ProtoDocs,
                         testing::Values("types", "tensor", "scheduler", "scheduler_options", "ps",
                                         "ps_options", "hub", "hub_options", "peer",
                                         "peer_options"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace starling
