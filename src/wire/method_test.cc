#include "wire/method.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "starling/v1/hub.pb.h"
#include "starling/v1/peer.pb.h"
#include "starling/v1/ps.pb.h"
#include "starling/v1/scheduler.pb.h"

namespace starling {
namespace {

// Naming a file's table keeps the linker from dropping the file, and with it the file's
// descriptors.
const std::array<std::pair<const char*, const void*>, kServices> kFiles = {{
    {"starling/v1/scheduler.proto", &descriptor_table_starling_2fv1_2fscheduler_2eproto},
    {"starling/v1/ps.proto", &descriptor_table_starling_2fv1_2fps_2eproto},
    {"starling/v1/hub.proto", &descriptor_table_starling_2fv1_2fhub_2eproto},
    {"starling/v1/peer.proto", &descriptor_table_starling_2fv1_2fpeer_2eproto},
}};

std::vector<const google::protobuf::ServiceDescriptor*> services() {
  std::vector<const google::protobuf::ServiceDescriptor*> all;
  for (const auto& [name, table] : kFiles) {
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    if (file == nullptr || table == nullptr) continue;
    for (int i = 0; i < file->service_count(); ++i) all.push_back(file->service(i));
  }
  return all;
}

std::string message_name(MessageKind kind) {
  return kind == MessageKind::kTensor ? "starling.v1.TensorMessage" : "starling.v1.VoidMessage";
}

class MethodTable : public testing::Test {
 protected:
  MethodTable() { EXPECT_EQ(services().size(), kServices); }
};

TEST_F(MethodTable, HasEveryRpcOfTheProtoFiles) {
  for (const auto* service : services()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* rpc = service->method(i);
      const std::string path = "/" + service->full_name() + "/" + rpc->name();
      const MethodInfo* info = find_method(path);
      ASSERT_NE(info, nullptr) << path;
      EXPECT_EQ(service_name(info->service), service->name()) << path;
      EXPECT_EQ(info->name, service->name() + "." + rpc->name());
      EXPECT_EQ(message_name(info->request), rpc->input_type()->full_name()) << path;
      EXPECT_EQ(message_name(info->reply), rpc->output_type()->full_name()) << path;
      EXPECT_FALSE(rpc->client_streaming() || rpc->server_streaming()) << path;
    }
  }
}

TEST_F(MethodTable, HasNothingThatTheProtoFilesLack) {
  std::set<std::string, std::less<>> paths;
  for (const auto* service : services()) {
    for (int i = 0; i < service->method_count(); ++i) {
      paths.insert("/" + service->full_name() + "/" + service->method(i)->name());
    }
  }
  for (const MethodInfo& info : kMethodTable) {
    EXPECT_TRUE(paths.contains(info.path)) << info.path;
  }
  EXPECT_EQ(paths.size(), kMethods);
}

TEST_F(MethodTable, GivesEveryOptionOfARequestToOneMethod) {
  std::set<int> given;
  for (const MethodInfo& info : kMethodTable) {
    EXPECT_TRUE(given.insert(info.option).second) << info.name;
  }
  const auto* options = v1::TensorMessage::descriptor()->FindOneofByName("option");
  for (int i = 0; i < options->field_count(); ++i) {
    const auto* field = options->field(i);
    const std::string& type = field->message_type()->name();
    EXPECT_EQ(given.contains(field->number()), type.ends_with("Option")) << field->name();
  }
}

TEST_F(MethodTable, IsIndexedByTheNumber) {
  for (size_t i = 0; i < kMethods; ++i) {
    EXPECT_EQ(static_cast<size_t>(kMethodTable[i].method), i);
    EXPECT_EQ(find_method(static_cast<uint16_t>(i)), &kMethodTable[i]);
  }
  EXPECT_EQ(find_method(static_cast<uint16_t>(kMethods)), nullptr);
  EXPECT_EQ(find_method(uint16_t{0xffff}), nullptr);
}

TEST_F(MethodTable, FindsNoMethodForAForeignPath) {
  EXPECT_EQ(find_method("/starling.v1.Hub/Pull"), nullptr);
  EXPECT_EQ(find_method(""), nullptr);
}

// Frames carry the number, so a method that moves in the list breaks every peer of another build.
// Written out and not read from the list: a number means the same in every version of the program.
TEST_F(MethodTable, KeepsTheNumbersOfTheWire) {
  const std::vector<std::string> names = {"Scheduler.Register",
                                          "Scheduler.Heartbeat",
                                          "Scheduler.Barrier",
                                          "Scheduler.GetMap",
                                          "Scheduler.Watch",
                                          "Scheduler.AddWork",
                                          "Scheduler.TakeWork",
                                          "Scheduler.RenewWork",
                                          "Scheduler.AckWork",
                                          "Scheduler.GiveBackWork",
                                          "Scheduler.Save",
                                          "Scheduler.GetJob",
                                          "Scheduler.SetJob",
                                          "Scheduler.Put",
                                          "Scheduler.Get",
                                          "Scheduler.Leave",
                                          "Ps.Create",
                                          "Ps.Freeze",
                                          "Ps.FeedSample",
                                          "Ps.EmbeddingLookup",
                                          "Ps.Push",
                                          "Ps.Pull",
                                          "Ps.PushGrad",
                                          "Ps.Save",
                                          "Ps.Restore",
                                          "Ps.Heartbeat",
                                          "Ps.Shrink",
                                          "Ps.Clear",
                                          "Ps.Stat",
                                          "Ps.Stop",
                                          "Ps.Profile",
                                          "Ps.Step",
                                          "Hub.StartSample",
                                          "Hub.ReadSample",
                                          "Hub.Exchange",
                                          "Peer.Call"};
  ASSERT_EQ(kMethods, names.size()) << "a new method belongs at the end of both lists";
  for (size_t i = 0; i < names.size(); ++i) {
    const MethodInfo* info = find_method(static_cast<uint16_t>(i));
    ASSERT_NE(info, nullptr) << i;
    EXPECT_EQ(info->name, names[i]) << i;
  }
}

TEST_F(MethodTable, OnlyPeerCallMayNotBeRepeated) {
  for (const MethodInfo& info : kMethodTable) {
    EXPECT_EQ(info.repeatable, info.method != Method::kPeerCall) << info.name;
  }
}

}  // namespace
}  // namespace starling
