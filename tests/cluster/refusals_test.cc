// Bad input for every RPC of a ps, over every transport: a clear status, and nothing has changed.
#include <gmock/gmock.h>

#include <limits>

#include "tests/cluster/batches.h"
#include "tests/cluster/world.h"

namespace starling::cluster {
namespace {

constexpr uint32_t kDim = 2;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

v1::CreateOption tables() {
  v1::CreateOption option;
  *option.add_tables() = table("t", kDim, rule("sgd", {{"lr", 1}}));
  v1::TableOptions range = table("r", 1, rule("sgd", {{"lr", 1}}));
  range.mutable_range()->set_lo(0);
  range.mutable_range()->set_hi(4096);
  *option.add_tables() = range;
  *option.add_variables() = variable("w", 20, rule("sgd", {{"lr", 1}}), 10);
  return option;
}

uint32_t add(Message& message, Tensor tensor) {
  message.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

struct Case {
  std::string what;
  Method method;
  Message message;
  StatusCode code;
};

// One shard owns everything, so every refusal is for the content.
class RefusalsTest : public testing::TestWithParam<Protocol> {
 protected:
  RefusalsTest() : world_({.protocol = GetParam(), .ps = 1, .shards = 1}), node_(world_.client()) {
    world_.make_tables(node_, tables());
    const Status set = node_.ps->push(
        {{.table = "t", .keys = keys_of({1, 2}), .values = rows_of(2, kDim, {1, 2, 3, 4})}},
        {{.variable = "w", .values = floats_of(std::vector<float>(20, 5))}}, soon());
    EXPECT_TRUE(set.ok()) << set;
    Batch batch({{"f", "t"}}, {.id = {0, 0, 1}, .keys = {{{1}, {2}, {9}}}}, *node_.ps->routes(),
                {{"t", kDim}});
    EXPECT_TRUE(node_.ps->feed(batch.feeds(), soon()).ok());
  }

  // Numbered by a session of its own.
  Message numbered() {
    Message message;
    message.meta.mutable_header()->set_session(4242);
    message.meta.mutable_header()->set_number(++number_);
    return message;
  }
  static Message of_batch(uint64_t number) {
    Message message;
    message.meta.mutable_header()->mutable_batch()->set_number(number);
    return message;
  }

  std::string state() {
    std::string out;
    const auto pulled =
        node_.ps->pull({{.table = "t", .keys = keys_of({1, 2, 3, 9}), .with_found = true}}, soon());
    const auto dense = node_.ps->pull_dense({{.variable = "w"}}, soon());
    const auto stat = node_.ps->stat({}, soon());
    EXPECT_TRUE(pulled.ok() && dense.ok() && stat.ok());
    for (const float x : floats(pulled->front().values)) out += fmt::format("{} ", x);
    for (const uint8_t x : pulled->front().found.values<uint8_t>()) out += fmt::format("{} ", x);
    for (const float x : floats(dense->front().values)) out += fmt::format("{} ", x);
    for (const v1::TableStat& table : stat->front().tables()) {
      out += fmt::format("{} {} {} ", table.name(), table.rows(), table.version());
    }
    return out + fmt::format("{} {}", stat->front().step(), stat->front().prepared_batches());
  }

  void expect_refused(std::vector<Case> cases) {
    const std::string before = state();
    for (Case& one : cases) {
      SCOPED_TRACE(one.what);
      const auto reply = node_.ps->call(one.method, {{0, std::move(one.message)}},
                                        Deadline::in(RealClock(), seconds(60)));
      EXPECT_EQ(reply.status().code(), one.code) << reply.status();
      EXPECT_GT(message_of(reply.status()).size(), 10U);
      EXPECT_EQ(state(), before);
    }
  }

  // With a header of its own, as no PsClient would send it.
  void expect_refused_bare(const std::string& what, Method method, Message message,
                           const v1::Header& header, StatusCode code) {
    SCOPED_TRACE(what);
    const std::string before = state();
    *message.meta.mutable_header() = header;
    Client client(world_.network());
    const auto reply = client.call_wait({.address = world_.ps(0).addresses().front()}, method,
                                        std::move(message), soon());
    // Some transports tell a role's refusal as the call's own end.
    const Status status = reply.ok() ? status_of(*reply) : reply.status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(state(), before);
  }

  World world_;
  Node& node_;
  uint64_t number_ = 0;
};

TEST_P(RefusalsTest, CreateBeforeFreeze) {
  World world({.protocol = GetParam(), .ps = 1, .shards = 1});
  Node& node = world.client();
  const auto create = [&](const v1::TableOptions& options) {
    v1::CreateOption option;
    *option.add_tables() = table("good", 2, rule("sgd"));
    *option.add_tables() = options;
    const Status status = node.ps->create(option, soon());
    EXPECT_GT(message_of(status).size(), 10U);
    return status.code();
  };
  EXPECT_EQ(create(table("u", 0, rule("sgd"))), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(table("u", 1 << 30, rule("sgd"))), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(table("u", 2, rule("sgdd"))), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(table("u", 2, rule("sgd", {{"rate", 1}}))), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(table("a b", 2, rule("sgd"))), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(table("good", 3, rule("sgd"))), StatusCode::kAlreadyExists);
  const auto stat = node.ps->stat({}, soon());
  ASSERT_TRUE(stat.ok()) << stat.status();
  EXPECT_EQ(stat->front().tables_size(), 0) << "a message is taken whole or not at all";
  Message early = numbered();
  v1::KeyGradPart* part = early.meta.mutable_push_grad()->add_keys();
  part->set_table("good");
  const auto pushed = node.ps->call(Method::kPsPushGrad, {{0, early}}, soon());
  EXPECT_EQ(reason_of(pushed.status()), v1::REASON_NOT_FROZEN);
}

TEST_P(RefusalsTest, CreateAndFreeze) {
  std::vector<Case> cases;
  const auto create = [&](const std::string& what, const v1::TableOptions& options,
                          StatusCode code) {
    Message message;
    *message.meta.mutable_create()->add_tables() = options;
    cases.push_back({what, Method::kPsCreate, std::move(message), code});
  };
  create("another dim", table("t", 3, rule("sgd", {{"lr", 1}})), StatusCode::kAlreadyExists);
  create("after freeze", table("u", 2, rule("sgd")), StatusCode::kFailedPrecondition);
  Message seed;
  seed.meta.mutable_create()->set_seed(99);
  cases.push_back({"another seed", Method::kPsCreate, seed, StatusCode::kAlreadyExists});
  Message hash;
  hash.meta.mutable_freeze()->set_schema_hash(1);
  cases.push_back({"another hash", Method::kPsFreeze, hash, StatusCode::kAlreadyExists});
  Message budget;
  budget.meta.mutable_freeze()->set_ranks(1 << 20);
  budget.meta.mutable_freeze()->set_push_bytes_max(uint64_t{1} << 40);
  cases.push_back({"over the budget", Method::kPsFreeze, budget, StatusCode::kResourceExhausted});
  Message ranks;
  ranks.meta.mutable_freeze()->set_staleness(0);
  cases.push_back({"no ranks", Method::kPsFreeze, ranks, StatusCode::kInvalidArgument});
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, FeedSample) {
  std::vector<Case> cases;
  const auto feed = [&](const std::string& what, StatusCode code, Tensor keys, Tensor positions,
                        const std::function<void(v1::FeedSampleOption&)>& change = nullptr) {
    Message message = of_batch(7);
    v1::FeedSampleOption* option = message.meta.mutable_feed_sample();
    option->set_samples(2);
    v1::FeedPart* part = option->add_parts();
    part->set_table("t");
    part->set_row_keys(2);
    part->set_keys_tensor(add(message, std::move(keys)));
    v1::FieldLayout* field = part->add_fields();
    field->set_field("f");
    field->set_samples_tensor(add(message, Tensor::vector_of<uint32_t>({0, 1})));
    field->set_positions_tensor(add(message, std::move(positions)));
    if (change) change(*option);
    cases.push_back({what, Method::kPsFeedSample, std::move(message), code});
  };
  const Tensor keys = keys_of({5, 6});
  const Tensor each = Tensor::vector_of<uint32_t>({0, 1});
  const auto bad = StatusCode::kInvalidArgument;
  feed("keys of floats", bad, floats_of({5, 6}), each);
  feed("keys as a matrix", bad, Tensor::of<uint64_t>({2, 1}, std::vector<uint64_t>{5, 6}), each);
  feed("a key twice", bad, keys_of({5, 5}), each);
  feed("a position behind", bad, keys, Tensor::vector_of<uint32_t>({0, 2}));
  feed("too few positions", bad, keys, Tensor::vector_of<uint32_t>({0}));
  feed("an unknown table", StatusCode::kNotFound, keys, each,
       [](auto& option) { option.mutable_parts(0)->set_table("nobody"); });
  feed("no samples", bad, keys, each, [](auto& option) { option.set_samples(0); });
  feed("a sample behind", bad, keys, each, [](auto& option) { option.set_samples(1); });
  feed("too many samples", bad, keys, each, [](auto& option) { option.set_samples(1U << 31); });
  feed("more row keys than keys", bad, keys, each,
       [](auto& option) { option.mutable_parts(0)->set_row_keys(UINT32_MAX); });
  feed("a tensor behind", bad, keys, each,
       [](auto& option) { option.mutable_parts(0)->set_keys_tensor(UINT32_MAX); });
  Batch other({{"f", "t"}}, {.id = {0, 0, 1}, .keys = {{{1}, {2}, {8}}}}, *node_.ps->routes(),
              {{"t", kDim}});
  cases.push_back({"other content", Method::kPsFeedSample, other.feeds()[0].message, bad});
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, EmbeddingLookup) {
  Message nothing;
  nothing.meta.mutable_embedding_lookup();
  Message type = of_batch(1);
  type.meta.mutable_embedding_lookup()->set_dtype(v1::DTYPE_INT8);
  expect_refused(
      {{"no batch", Method::kPsEmbeddingLookup, nothing, StatusCode::kInvalidArgument},
       {"a type of no weights", Method::kPsEmbeddingLookup, type, StatusCode::kInvalidArgument}});
  // A batch that nobody feeds: the shard says so before the time is over, and what it said is
  // not lost when the rest runs out in silence.
  Message unknown = of_batch(99);
  unknown.meta.mutable_embedding_lookup();
  const auto late = node_.ps->call(Method::kPsEmbeddingLookup, {{0, unknown}},
                                   Deadline::in(RealClock(), seconds(8)));
  EXPECT_EQ(late.status().code(), StatusCode::kNotFound) << late.status();
  EXPECT_EQ(reason_of(late.status()), v1::REASON_UNKNOWN_BATCH);
}

TEST_P(RefusalsTest, Push) {
  std::vector<Case> cases;
  const auto push = [&](const std::string& what, StatusCode code, const std::string& name,
                        Tensor keys, Tensor values) {
    Message message = numbered();
    v1::KeyValuesPart* part = message.meta.mutable_push()->add_keys();
    part->set_table(name);
    part->set_keys_tensor(add(message, std::move(keys)));
    part->set_values_tensor(add(message, std::move(values)));
    cases.push_back({what, Method::kPsPush, std::move(message), code});
  };
  const auto bad = StatusCode::kInvalidArgument;
  const Tensor good = rows_of(2, kDim, {1, 1, 1, 1});
  push("an unknown table", StatusCode::kNotFound, "nobody", keys_of({1, 3}), good);
  push("another dim", bad, "t", keys_of({1, 3}), rows_of(2, 3, {1, 1, 1, 1, 1, 1}));
  push("too few rows", bad, "t", keys_of({1, 3, 4}), good);
  push("a key twice", bad, "t", keys_of({3, 3}), good);
  push("NaN", bad, "t", keys_of({1, 3}), rows_of(2, kDim, {1, kNan, 1, 1}));
  push("keys of a type of their own", bad, "t", Tensor::vector_of<int64_t>({1, 3}), good);
  push("a key out of range", bad, "r", keys_of({4096}), rows_of(1, 1, {1}));
  Message valueless = numbered();
  valueless.meta.mutable_push()->add_keys()->set_table("r");
  valueless.meta.mutable_push()->mutable_keys(0)->mutable_range()->set_hi(1);
  add(valueless, rows_of(1, 1, {1}));
  cases.push_back({"values that no field names", Method::kPsPush, valueless, bad});
  Message dense = numbered();
  v1::DenseValuesPart* part = dense.meta.mutable_push()->add_dense();
  part->set_variable("w");
  part->set_values_tensor(add(dense, floats_of({1, 2, 3})));
  cases.push_back({"too few elements", Method::kPsPush, dense, bad});
  dense.meta.mutable_push()->mutable_dense(0)->set_variable("nobody");
  cases.push_back({"an unknown variable", Method::kPsPush, dense, StatusCode::kNotFound});
  Message unnumbered = cases[0].message;
  unnumbered.meta.mutable_push()->mutable_keys(0)->set_table("t");
  unnumbered.meta.mutable_header()->Clear();
  cases.push_back({"without a number", Method::kPsPush, unnumbered, bad});
  // A push of rows and elements is checked whole: the good half is not applied.
  Message half = numbered();
  v1::KeyValuesPart* rows = half.meta.mutable_push()->add_keys();
  rows->set_table("t");
  rows->set_keys_tensor(add(half, keys_of({1, 3})));
  rows->set_values_tensor(add(half, good));
  half.meta.mutable_push()->add_dense()->set_variable("nobody");
  cases.push_back({"one good half", Method::kPsPush, half, StatusCode::kNotFound});
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, Pull) {
  std::vector<Case> cases;
  const auto pull = [&](const std::string& what, StatusCode code,
                        const std::function<void(Message&, v1::KeyPullPart&)>& change) {
    Message message = numbered();
    v1::KeyPullPart* part = message.meta.mutable_pull()->add_keys();
    part->set_table("t");
    change(message, *part);
    cases.push_back({what, Method::kPsPull, std::move(message), code});
  };
  const auto bad = StatusCode::kInvalidArgument;
  pull("neither keys nor range", bad, [](Message&, v1::KeyPullPart&) {});
  pull("a tensor behind", bad, [](Message&, auto& part) { part.set_keys_tensor(1000000); });
  pull("keys of floats", bad,
       [](Message& message, auto& part) { part.set_keys_tensor(add(message, floats_of({1}))); });
  pull("an unknown table", StatusCode::kNotFound, [](Message& message, auto& part) {
    part.set_table("nobody");
    part.set_create(true);
    part.set_keys_tensor(add(message, keys_of({3})));
  });
  pull("a range of a table without one", bad,
       [](Message&, auto& part) { part.mutable_key_range()->set_hi(10); });
  pull("a range that ends before it starts", bad, [](Message&, auto& part) {
    part.set_table("r");
    part.mutable_key_range()->set_lo(10);
    part.mutable_key_range()->set_hi(5);
  });
  pull("a huge range", bad, [](Message&, auto& part) {
    part.set_table("r");
    part.mutable_key_range()->set_hi(UINT64_MAX);
  });
  pull("a type of no weights", bad, [](Message& message, auto& part) {
    message.meta.mutable_pull()->set_dtype(v1::DTYPE_UINT64);
    part.set_keys_tensor(add(message, keys_of({1})));
  });
  pull("rows made without a number", bad, [](Message& message, auto& part) {
    message.meta.mutable_header()->Clear();
    part.set_create(true);
    part.set_keys_tensor(add(message, keys_of({3})));
  });
  Message elements;
  v1::DensePullPart* part = elements.meta.mutable_pull()->add_dense();
  part->set_variable("w");
  part->mutable_elements()->set_begin(5);
  part->mutable_elements()->set_end(UINT64_MAX);
  cases.push_back({"elements behind the end", Method::kPsPull, elements, bad});
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, PullChecksAllBeforeItMakesRows) {
  std::vector<Case> cases;
  const auto pull = [&](const std::string& what, StatusCode code,
                        const std::function<void(v1::PullOption&)>& change) {
    Message message = numbered();
    v1::KeyPullPart* part = message.meta.mutable_pull()->add_keys();
    part->set_table("t");
    part->set_create(true);
    part->set_keys_tensor(add(message, keys_of({3})));
    change(*message.meta.mutable_pull());
    cases.push_back({what, Method::kPsPull, std::move(message), code});
  };
  pull("whole rows", StatusCode::kUnimplemented,
       [](auto& option) { option.mutable_keys(0)->set_content(v1::CONTENT_ROW); });
  pull("whole rows that exist", StatusCode::kUnimplemented, [](auto& option) {
    option.mutable_keys(0)->set_content(v1::CONTENT_ROW);
    option.mutable_keys(0)->set_create(false);
    option.mutable_keys(0)->set_existing_only(true);
  });
  pull("a type of no weights", StatusCode::kInvalidArgument,
       [](auto& option) { option.set_dtype(v1::DTYPE_UINT64); });
  pull("an unknown variable", StatusCode::kNotFound,
       [](auto& option) { option.add_dense()->set_variable("nobody"); });
  pull("the state of a variable", StatusCode::kUnimplemented, [](auto& option) {
    option.add_dense()->set_variable("w");
    option.mutable_dense(0)->set_content(v1::CONTENT_ROW);
  });
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, PushGradByKey) {
  std::vector<Case> cases;
  const auto push = [&](const std::string& what, StatusCode code, Tensor keys, Tensor grads,
                        Tensor shows = {}) {
    Message message = numbered();
    v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
    part->set_table("t");
    part->set_keys_tensor(add(message, std::move(keys)));
    part->set_grads_tensor(add(message, std::move(grads)));
    if (shows.dtype() != DType::kInvalid) part->set_shows_tensor(add(message, std::move(shows)));
    cases.push_back({what, Method::kPsPushGrad, std::move(message), code});
  };
  const auto bad = StatusCode::kInvalidArgument;
  const Tensor good = rows_of(2, kDim, {1, 1, 1, 1});
  push("another dim", bad, keys_of({1, 3}), rows_of(2, 1, {1, 1}));
  push("too many rows", bad, keys_of({1}), good);
  push("NaN", bad, keys_of({1, 3}), rows_of(2, kDim, {1, 1, kNan, 1}));
  push("infinity", bad, keys_of({1, 3}),
       rows_of(2, kDim, {1, 1, std::numeric_limits<float>::infinity(), 1}));
  push("doubles", bad, keys_of({1, 3}),
       Tensor::of<double>({2, kDim}, std::vector<double>{1, 1, 1, 1}));
  push("shows of other keys", bad, keys_of({1, 3}), good, floats_of({1}));
  Message dense = numbered();
  v1::DenseGradPart* part = dense.meta.mutable_push_grad()->add_dense();
  part->set_variable("w");
  part->mutable_range()->set_begin(3);
  part->mutable_range()->set_end(7);
  part->set_grads_tensor(add(dense, floats_of({1, 1, 1, 1})));
  cases.push_back({"a part of a part", Method::kPsPushGrad, dense, bad});
  Message twice = numbered();
  for (int i = 0; i < 2; ++i) {
    v1::DenseGradPart* one = twice.meta.mutable_push_grad()->add_dense();
    one->set_variable("w");
    one->mutable_range()->set_end(10);
    one->set_grads_tensor(add(twice, floats_of(std::vector<float>(10, 1))));
  }
  cases.push_back({"the same elements twice", Method::kPsPushGrad, twice, bad});
  Message batch = numbered();
  batch.meta.mutable_push_grad()->add_batch()->set_table("t");
  cases.push_back({"parts by batch without one", Method::kPsPushGrad, batch, bad});
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, ANumberIsUsedOnce) {
  Message message = numbered();
  v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
  part->set_table("t");
  part->set_keys_tensor(add(message, keys_of({1})));
  part->set_grads_tensor(add(message, rows_of(1, kDim, {1, 1})));
  ASSERT_TRUE(node_.ps->call(Method::kPsPushGrad, {{0, message}}, soon()).ok());
  const std::string before = state();
  EXPECT_TRUE(node_.ps->call(Method::kPsPushGrad, {{0, message}}, soon()).ok());
  EXPECT_EQ(state(), before);
  message.tensors[1] = rows_of(1, kDim, {2, 2});
  const auto other = node_.ps->call(Method::kPsPushGrad, {{0, message}}, soon());
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reason_of(other.status()), v1::REASON_NUMBER_REUSED);
  EXPECT_EQ(state(), before);
}

TEST_P(RefusalsTest, PushGradByBatch) {
  std::vector<Case> cases;
  const auto push = [&](const std::string& what, StatusCode code, Tensor rows) {
    Message message = of_batch(1);
    v1::BatchGradPart* part = message.meta.mutable_push_grad()->add_batch();
    part->set_table("t");
    part->set_rows_tensor(add(message, std::move(rows)));
    cases.push_back({what, Method::kPsPushGrad, std::move(message), code});
  };
  const auto bad = StatusCode::kInvalidArgument;
  push("too few rows", bad, rows_of(2, kDim, {1, 1, 1, 1}));
  push("another dim", bad, rows_of(3, 1, {1, 1, 1}));
  push("keys instead of rows", bad, keys_of({1, 2, 3}));
  Message keys = of_batch(1);
  keys.meta.mutable_push_grad()->add_keys()->set_table("t");
  cases.push_back({"parts by key", Method::kPsPushGrad, keys, bad});
  Message nobody = of_batch(1);
  nobody.meta.mutable_push_grad()->add_batch()->set_table("nobody");
  cases.push_back({"an unknown table", Method::kPsPushGrad, nobody, StatusCode::kNotFound});
  Message shows = of_batch(1);
  v1::BatchGradPart* part = shows.meta.mutable_push_grad()->add_batch();
  part->set_table("t");
  part->set_rows_tensor(add(shows, rows_of(3, kDim, std::vector<float>(6, 1))));
  shows.meta.mutable_push_grad()->set_shows_tensor(add(shows, floats_of({1})));
  cases.push_back({"shows of other samples", Method::kPsPushGrad, shows, bad});
  // The last: a refusal for the content is the batch's final answer.
  push("NaN", bad, rows_of(3, kDim, {1, 1, 1, kNan, 1, 1}));
  push("anything after NaN", bad, rows_of(3, kDim, {1, 1, 1, 1, 1, 1}));
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, Administration) {
  std::vector<Case> cases;
  Message shrink;
  shrink.meta.mutable_shrink()->add_names("nobody");
  cases.push_back({"shrink", Method::kPsShrink, shrink, StatusCode::kNotFound});
  Message clear;
  clear.meta.mutable_clear();
  cases.push_back({"clear nothing", Method::kPsClear, clear, StatusCode::kInvalidArgument});
  clear.meta.mutable_clear()->add_names("nobody");
  cases.push_back({"clear nobody", Method::kPsClear, clear, StatusCode::kNotFound});
  Message save;
  save.meta.mutable_save()->set_cut_id(1);
  cases.push_back({"save", Method::kPsSave, save, StatusCode::kUnimplemented});
  Message restore;
  restore.meta.mutable_restore()->set_path("nowhere");
  cases.push_back({"restore", Method::kPsRestore, restore, StatusCode::kUnimplemented});
  Message profile;
  profile.meta.mutable_profile()->set_action(static_cast<v1::ProfileAction>(7));
  cases.push_back({"profile", Method::kPsProfile, profile, StatusCode::kInvalidArgument});
  expect_refused(std::move(cases));
}

TEST_P(RefusalsTest, HeartbeatStatStopAndStep) {
  std::vector<Case> cases;
  Message stat;
  stat.meta.mutable_stat()->add_names("nobody");
  cases.push_back({"stat of nobody", Method::kPsStat, stat, StatusCode::kNotFound});
  Message other;
  other.meta.mutable_start_sample();
  for (const MethodInfo& info : kMethodTable) {
    if (info.service != Service::kPs) continue;
    cases.push_back({fmt::format("another RPC's option in {}", info.name), info.method, other,
                     StatusCode::kInvalidArgument});
  }
  expect_refused(std::move(cases));
  v1::Header header;
  header.set_role(v1::ROLE_CLIENT);
  header.set_generation(1);
  Message set;
  set.meta.mutable_step()->set_set(99);
  expect_refused_bare("a step without a number", Method::kPsStep, set, header,
                      StatusCode::kInvalidArgument);
  header.set_role(v1::ROLE_UNKNOWN);
  Message stop;
  stop.meta.mutable_stop();
  expect_refused_bare("stop by a stranger", Method::kPsStop, stop, header,
                      StatusCode::kPermissionDenied);
  header.set_role(v1::ROLE_CLIENT);
  header.set_generation(0);
  expect_refused_bare("stop without a generation", Method::kPsStop, stop, header,
                      StatusCode::kFailedPrecondition);
  EXPECT_FALSE(world_.ps(0).ended().has_value());
}

TEST_P(RefusalsTest, StrangersReadAndDoNotWrite) {
  const auto lane = world_.network().make_lane("stranger", 0);
  {
    PsClient stranger(world_.network(), lane, {}, node_.scheduler.get());
    ASSERT_TRUE(stranger.use_schema(tables()).ok());
    const auto pulled = stranger.pull({{.table = "t", .keys = keys_of({2})}}, soon());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(floats(pulled->front().values), (std::vector<float>{3, 4}));
    const std::string before = state();
    const Status pushed = stranger.push_grad(
        {{.table = "t", .keys = keys_of({2}), .grads = rows_of(1, kDim, {1, 1})}}, {}, soon());
    EXPECT_EQ(pushed.code(), StatusCode::kFailedPrecondition) << pushed;
    EXPECT_EQ(reason_of(pushed), v1::REASON_WRONG_GENERATION);
    EXPECT_EQ(state(), before);
    lane->stop();
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, RefusalsTest, testing::ValuesIn(all_protocols()),
                         protocol_title);

}  // namespace
}  // namespace starling::cluster
