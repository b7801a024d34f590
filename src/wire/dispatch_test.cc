#include "wire/dispatch.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace starling {
namespace {

struct WholeHub {
  std::string called;
  template <Method M>
  void on(MethodTag<M> tag, int number) {
    called = std::string(tag.info().name) + " " + std::to_string(number);
  }
};

struct HubWithoutExchange {
  void on(MethodTag<Method::kHubStartSample>, int) {}
  void on(MethodTag<Method::kHubReadSample>, int) {}
};

struct ThreeOverloads {
  int exchanged = 0;
  void on(MethodTag<Method::kHubStartSample>, int) {}
  void on(MethodTag<Method::kHubReadSample>, int) {}
  void on(MethodTag<Method::kHubExchange>, int number) { exchanged = number; }
};

static_assert(Serves<WholeHub, Service::kHub, int>);
static_assert(Serves<ThreeOverloads, Service::kHub, int>);
static_assert(!Serves<HubWithoutExchange, Service::kHub, int>);
static_assert(!Serves<ThreeOverloads, Service::kPs, int>);
static_assert(!Serves<ThreeOverloads, Service::kHub, std::string>);
static_assert(serves<Service::kHub>(Method::kHubExchange));
static_assert(!serves<Service::kHub>(Method::kPsPull));
static_assert(!serves<Service::kHub>(static_cast<Method>(999)));

TEST(Dispatch, CallsTheOverloadOfTheMethod) {
  ThreeOverloads hub;
  dispatch<Service::kHub>(hub, Method::kHubReadSample, 6);
  EXPECT_EQ(hub.exchanged, 0);
  dispatch<Service::kHub>(hub, Method::kHubExchange, 7);
  EXPECT_EQ(hub.exchanged, 7);
}

TEST(Dispatch, ReachesEveryMethodOfTheService) {
  for (const MethodInfo& info : kMethodTable) {
    if (info.service != Service::kHub) continue;
    WholeHub hub;
    dispatch<Service::kHub>(hub, info.method, 1);
    EXPECT_EQ(hub.called, std::string(info.name) + " 1");
  }
}

struct Mover {
  std::unique_ptr<int> got;
  template <Method M>
  void on(MethodTag<M>, std::unique_ptr<int> value) {
    got = std::move(value);
  }
};

TEST(Dispatch, HandsMoveOnlyArgumentsOver) {
  Mover mover;
  dispatch<Service::kPeer>(mover, Method::kPeerCall, std::make_unique<int>(3));
  ASSERT_NE(mover.got, nullptr);
  EXPECT_EQ(*mover.got, 3);
}

TEST(WrongService, NamesTheMethodAndTheService) {
  const Status status = wrong_service(static_cast<uint16_t>(Method::kPsPull), Service::kHub);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(message_of(status), "method Ps.Pull called on a Hub");
}

TEST(WrongService, NamesAnUnknownNumber) {
  const Status status = wrong_service(999, Service::kScheduler);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(message_of(status), "unknown method 999 called on a Scheduler");
}

TEST(CheckOption, NamesTheMethodTheOptionThatCameAndTheRightOne) {
  v1::TensorMessage request;
  request.mutable_create();
  const Status status = check_option(Method::kSchedulerSave, request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(message_of(status), "Scheduler.Save: the request carries create, not save_job");
  request.mutable_save_job_reply();
  EXPECT_FALSE(check_option(Method::kSchedulerSave, request).ok());
}

TEST(CheckOption, TakesItsOwnOptionAndNone) {
  v1::TensorMessage request;
  EXPECT_TRUE(check_option(Method::kPsPull, request).ok());
  request.mutable_pull();
  EXPECT_TRUE(check_option(Method::kPsPull, request).ok());
}

TEST(DispatchDeath, OfAMethodOfAnotherServiceIsOurBug) {
  ThreeOverloads hub;
  EXPECT_DEATH(dispatch<Service::kHub>(hub, Method::kPsPull, 1), "does not have");
}

}  // namespace
}  // namespace starling
