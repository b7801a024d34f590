// The .proto files are the manual of every client that is not ours, so nothing in them may be
// without words.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace starling {
namespace {

namespace pb = google::protobuf;

template <typename Descriptor>
std::string words_of(const Descriptor* descriptor) {
  pb::SourceLocation location;
  if (!descriptor->GetSourceLocation(&location)) return "";
  return location.leading_comments + location.trailing_comments;
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

// The full names of fields that do not say what it means when they are missing, and of messages
// that do not say who sets them. A oneof speaks for its fields; a name that ends in Option or Reply
// says that the client or the server sets the message.
std::vector<std::string> gaps(const pb::FileDescriptor& file) {
  const std::regex missing("[Mm]issing");
  // The word alone may stand for anything: what follows has to say what holds then.
  const std::regex missing_means(R"([Nn]ever\s+missing|[Mm]issing[^.]*(:\s*\S|\smeans\s|\sfor\s))");
  const std::regex set_by(R"((Set|Made|Published)\s+by|\ssets\s)");
  std::vector<std::string> out;
  for (int m = 0; m < file.message_type_count(); ++m) {
    const pb::Descriptor* message = file.message_type(m);
    const bool is_named =
        ends_with(message->name(), "Option") || ends_with(message->name(), "Reply");
    if (!is_named && !std::regex_search(words_of(message), set_by)) {
      out.push_back(message->full_name());
    }
    for (int f = 0; f < message->field_count(); ++f) {
      const pb::FieldDescriptor* field = message->field(f);
      const pb::OneofDescriptor* oneof = field->real_containing_oneof();
      const bool is_said = std::regex_search(words_of(field), missing_means) ||
                           (oneof != nullptr && std::regex_search(words_of(oneof), missing) &&
                            !words_of(field).empty());
      if (!is_said) out.push_back(field->full_name());
    }
  }
  return out;
}

// A file with one message, each part of it with the words that a comment would give it.
class OneMessage {
 public:
  OneMessage(const std::string& name, const std::string& words) {
    file_.set_name("one.proto");
    file_.set_syntax("proto3");
    file_.add_message_type()->set_name(name);
    say({kMessageTag, 0}, words);
  }
  OneMessage& oneof(const std::string& words) {
    message().add_oneof_decl()->set_name("what");
    return say({kMessageTag, 0, kOneofTag, 0}, words);
  }
  OneMessage& field(const std::string& name, const std::string& words, bool in_oneof = false) {
    const int index = message().field_size();
    pb::FieldDescriptorProto* field = message().add_field();
    field->set_name(name);
    field->set_number(index + 1);
    field->set_type(pb::FieldDescriptorProto::TYPE_UINT32);
    field->set_label(pb::FieldDescriptorProto::LABEL_OPTIONAL);
    if (in_oneof) field->set_oneof_index(0);
    return say({kMessageTag, 0, kFieldTag, index}, words);
  }
  std::vector<std::string> gaps() const {
    pb::DescriptorPool pool;
    const pb::FileDescriptor* file = pool.BuildFile(file_);
    return file == nullptr ? std::vector<std::string>{"broken"} : starling::gaps(*file);
  }

 private:
  // Numbers of the fields of descriptor.proto, of which the path to a part is made.
  static constexpr int kMessageTag = 4;
  static constexpr int kFieldTag = 2;
  static constexpr int kOneofTag = 8;

  pb::DescriptorProto& message() { return *file_.mutable_message_type(0); }
  OneMessage& say(const std::vector<int>& path, const std::string& words) {
    auto* location = file_.mutable_source_code_info()->add_location();
    for (const int part : path) location->add_path(part);
    for (int i = 0; i < 3; ++i) location->add_span(0);
    location->set_leading_comments(words);
    return *this;
  }

  pb::FileDescriptorProto file_;
};

using Names = std::vector<std::string>;

TEST(ProtoGaps, AFieldThatDoesNotSayWhatMissingMeansIsNamed) {
  const OneMessage message("AOption", "");
  EXPECT_EQ(OneMessage(message).field("x", "how many").gaps(), Names{"AOption.x"});
  EXPECT_EQ(OneMessage(message).field("x", "").gaps(), Names{"AOption.x"});
  EXPECT_EQ(OneMessage(message).field("x", "how many. Missing: 0").gaps(), Names{});
  EXPECT_EQ(OneMessage(message).field("x", "How many. Never missing.").gaps(), Names{});
  EXPECT_EQ(OneMessage(message).field("x", "How many pieces are missing.").gaps(),
            Names{"AOption.x"});
  EXPECT_EQ(OneMessage(message).field("x", "How many. Missing.").gaps(), Names{"AOption.x"});
}

TEST(ProtoGaps, AMessageThatDoesNotSayWhoSetsItIsNamed) {
  EXPECT_EQ(OneMessage("A", "A thing.").gaps(), Names{"A"});
  EXPECT_EQ(OneMessage("A", "A thing. Set by the client.").gaps(), Names{});
  EXPECT_EQ(OneMessage("AReply", "").gaps(), Names{}) << "its name says it";
}

TEST(ProtoGaps, AOneofSpeaksForItsFieldsButTheyNeedWords) {
  const auto with = [](const std::string& words) {
    return OneMessage("AOption", "").oneof(words).field("x", "a number", true).field("y", "", true);
  };
  EXPECT_EQ(with("One. Missing: none.").gaps(), Names{"AOption.y"});
  EXPECT_EQ(with("One.").gaps(), (Names{"AOption.x", "AOption.y"}));
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

TEST_P(ProtoDocs, EveryFieldSaysWhatMissingMeansAndEveryMessageWhoSetsIt) {
  ASSERT_NE(file_, nullptr);
  EXPECT_THAT(gaps(*file_), testing::IsEmpty());
}

TEST_P(ProtoDocs, EveryRpcHasWords) {
  ASSERT_NE(file_, nullptr);
  for (int s = 0; s < file_->service_count(); ++s) {
    for (int r = 0; r < file_->service(s)->method_count(); ++r) {
      EXPECT_NE(words_of(file_->service(s)->method(r)), "")
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
