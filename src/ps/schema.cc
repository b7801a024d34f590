#include "ps/schema.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/message_differencer.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <concepts>

#include "base/rng.h"
#include "base/whole.h"
#include "table/hash.h"
#include "wire/enums.h"

namespace starling {
namespace {

constexpr uint64_t kSplitElements = 65536;

Status check_name(const std::string& name) {
  constexpr std::string_view kLegal =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./";
  if (name.empty() || name.size() > 128)
    return invalid_argument("name '{}' must have 1 to 128 characters", name);
  if (name.find_first_not_of(kLegal) != std::string::npos) {
    return invalid_argument("name '{}' may have letters, digits and _ - . / only", name);
  }
  return absl::OkStatus();
}

// The values of a rule by name, each once. One that does not fit its target, or that nobody asked
// for, is an error, which nothing_left() tells.
class Values {
 public:
  static StatusOr<Values> of(const v1::Rule& rule, std::string what) {
    Values values;
    values.what_ = std::move(what);
    for (const v1::NamedValue& value : rule.values()) {
      if (!values.left_.emplace(value.name(), value.value()).second) {
        return invalid_argument("{}: value '{}' is given twice", values.what_, value.name());
      }
    }
    return values;
  }

  template <typename T>
  void take(const std::string& name, T& out) {
    auto it = left_.find(name);
    if (it == left_.end()) return;
    const StatusOr<T> value = fitting<T>(it->second, what_ + "." + name);
    if (value.ok()) {
      out = *value;
    } else {
      unfit_.Update(value.status());
    }
    left_.erase(it);
  }
  std::map<std::string, double> take_all() { return std::exchange(left_, {}); }
  Status nothing_left() const {
    STARLING_RETURN_IF_ERROR(unfit_);
    if (left_.empty()) return absl::OkStatus();
    return invalid_argument("{}: unknown value '{}'", what_, left_.begin()->first);
  }

 private:
  template <typename T>
  static StatusOr<T> fitting(double value, const std::string& what) {
    if constexpr (std::unsigned_integral<T>) {
      return whole_of<T>(value, what);
    } else {
      static_assert(std::same_as<T, double>);
      if (!std::isfinite(value))
        return invalid_argument("{} is {}, it must be finite", what, value);
      return value;
    }
  }

  std::string what_;
  std::map<std::string, double> left_;
  Status unfit_;  // the first of them
};

StatusOr<OptimizerOptions> optimizer_options(const v1::Rule& rule, std::string_view fallback,
                                             const std::string& what) {
  STARLING_ASSIGN_OR_RETURN(Values values, Values::of(rule, what));
  OptimizerOptions options{.rule = rule.name().empty() ? std::string(fallback) : rule.name()};
  options.values = values.take_all();  // make_rule() checks names and ranges
  return options;
}

StatusOr<ScheduleOptions> schedule_options(const v1::Rule& rule, const std::string& what) {
  STARLING_ASSIGN_OR_RETURN(Values values, Values::of(rule, what));
  ScheduleOptions options;
  options.kind = rule.name().empty() || rule.name() == "warmup" ? "constant" : rule.name();
  values.take("warmup_steps", options.warmup_steps);
  values.take("period_steps", options.period_steps);
  values.take("factor", options.factor);
  values.take("floor", options.floor);
  STARLING_RETURN_IF_ERROR(values.nothing_left());
  STARLING_RETURN_IF_ERROR(check_schedule(options, what));
  return options;
}

StatusOr<InitializerOptions> initializer_options(const v1::Rule& rule, const std::string& what) {
  STARLING_ASSIGN_OR_RETURN(Values values, Values::of(rule, what));
  InitializerOptions options;
  options.kind = rule.name().empty() ? "zero" : rule.name();
  values.take("value", options.value);
  values.take("low", options.low);
  values.take("high", options.high);
  values.take("mean", options.mean);
  values.take("std", options.std);
  values.take("fan_in", options.fan_in);
  values.take("fan_out", options.fan_out);
  STARLING_RETURN_IF_ERROR(values.nothing_left());
  return options;
}

StatusOr<AdmissionOptions> admission_options(const v1::TableOptions& proto,
                                             const std::string& what) {
  STARLING_ASSIGN_OR_RETURN(Values values, Values::of(proto.admission(), what));
  AdmissionOptions options;
  if (!proto.admission().name().empty()) options.kind = proto.admission().name();
  values.take("count", options.count);
  values.take("keys", options.expected_keys);
  values.take("error_rate", options.false_positive_rate);
  values.take("probability", options.probability);
  values.take("threshold", options.score);
  values.take("candidates_max", options.candidates_max);
  STARLING_RETURN_IF_ERROR(values.nothing_left());
  STARLING_RETURN_IF_ERROR(check_enum(proto.not_admitted(), proto.name() + ".not_admitted"));
  options.reads_initializer = proto.not_admitted() == v1::NOT_ADMITTED_INITIALIZER;
  return options;
}

Status add_eviction(const v1::Rule& rule, const std::string& what, EvictionOptions& options) {
  STARLING_ASSIGN_OR_RETURN(Values values, Values::of(rule, what));
  if (rule.name() == "score") {
    values.take("decay", options.decay);
    values.take("threshold", options.score_min);
  } else if (rule.name() == "unseen_days") {
    values.take("days", options.unseen_days_max);
  } else if (rule.name() == "steps") {
    values.take("steps", options.idle_steps_max);
  } else if (rule.name() == "norm") {
    values.take("threshold", options.norm_min);
  } else if (rule.name() == "lru" || rule.name() == "lfu") {
    if (options.capacity != "none")
      return invalid_argument("{}: lru and lfu exclude each other", what);
    options.capacity = rule.name();
    values.take("rows", options.rows_max);
  } else {
    return invalid_argument(
        "{}: unknown rule '{}'; it is one of score, unseen_days, steps, norm, lru, lfu", what,
        rule.name());
  }
  return values.nothing_left();
}

void take_scores(const v1::TableOptions& proto, StatisticsOptions& options) {
  const v1::ScoreOptions& score = proto.score();
  options.enabled = proto.statistics();
  if (score.has_nonclick_coeff()) options.nonclick_coeff = score.nonclick_coeff();
  if (score.has_click_coeff()) options.click_coeff = score.click_coeff();
  if (score.has_base_threshold()) options.base_threshold = score.base_threshold();
  if (score.has_delta_threshold()) options.delta_threshold = score.delta_threshold();
  if (score.has_delta_keep_days()) options.delta_keep_days = score.delta_keep_days();
}

// Rules that need statistics switch them on, as the proto promises.
bool needs_statistics(const v1::TableOptions& proto) {
  const auto by_score = [](const v1::Rule& rule) {
    return rule.name() == "score" || rule.name() == "unseen_days";
  };
  return proto.admission().name() == "score" || proto.has_second() ||
         std::any_of(proto.eviction().begin(), proto.eviction().end(), by_score);
}

StatusOr<std::string> storage_name(v1::DType storage) {
  switch (storage) {
    case v1::DTYPE_INVALID:
    case v1::DTYPE_FLOAT32:
      return std::string("float32");
    case v1::DTYPE_BFLOAT16:
      return std::string("bfloat16");
    case v1::DTYPE_FLOAT16:
      return std::string("float16");
    default:
      return invalid_argument("storage must be FLOAT32, BFLOAT16 or FLOAT16");
  }
}

std::string difference(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(a, b);
  if (!report.empty() && report.back() == '\n') report.pop_back();
  std::replace(report.begin(), report.end(), '\n', ';');
  return report;
}

// Maps have no order on the wire, but these messages have none; fields come by number. So equal
// options give equal bytes.
void hash_one(XXH3_state_t* state, const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream out(&bytes);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  const uint64_t size = bytes.size();
  XXH3_64bits_update(state, &size, sizeof(size));
  XXH3_64bits_update(state, bytes.data(), bytes.size());
}

template <typename Proto>
Status same_or_new(const std::map<std::string, Proto>& known, const Proto& proto) {
  auto it = known.find(proto.name());
  if (it == known.end()) return absl::OkStatus();
  const std::string differs = difference(it->second, proto);
  if (differs.empty()) return absl::OkStatus();
  return already_exists("{} exists with other options: {}", proto.name(), differs);
}

}  // namespace

StatusOr<TableOptions> table_options(const v1::TableOptions& proto, uint64_t seed) {
  STARLING_RETURN_IF_ERROR(check_name(proto.name()));
  const std::string& name = proto.name();
  TableOptions options;
  options.name = name;
  options.seed = seed;
  options.dim = proto.dim();
  STARLING_ASSIGN_OR_RETURN(options.storage, storage_name(proto.storage()));
  if (proto.has_range()) {
    if (proto.range().hi() <= proto.range().lo())
      return invalid_argument("{}: range.hi must be above range.lo", name);
    options.placement = {.low = proto.range().lo(), .high = proto.range().hi()};
  }
  STARLING_ASSIGN_OR_RETURN(options.optimizer,
                            optimizer_options(proto.optimizer(), "adagrad", name + ".optimizer"));
  STARLING_ASSIGN_OR_RETURN(options.schedule,
                            schedule_options(proto.schedule(), name + ".schedule"));
  STARLING_ASSIGN_OR_RETURN(options.initializer,
                            initializer_options(proto.initializer(), name + ".initializer"));
  STARLING_ASSIGN_OR_RETURN(options.admission, admission_options(proto, name + ".admission"));
  for (const v1::Rule& rule : proto.eviction()) {
    STARLING_RETURN_IF_ERROR(add_eviction(rule, name + ".eviction", options.eviction));
  }
  if (proto.evicted_list_max() > 0) options.eviction.listed_max = proto.evicted_list_max();
  take_scores(proto, options.statistics);
  options.statistics.enabled |= needs_statistics(proto);
  if (proto.has_second()) {
    const v1::SecondPart& second = proto.second();
    if (second.first_dim() > 1) return invalid_argument("{}.second.first_dim must be 1", name);
    if (second.has_initializer())
      return invalid_argument("{}.second.initializer: both parts start by the table's", name);
    options.rest_optimizer = options.optimizer;
    if (second.has_optimizer()) {
      STARLING_ASSIGN_OR_RETURN(
          options.rest_optimizer,
          optimizer_options(second.optimizer(), "adagrad", name + ".second.optimizer"));
    }
    options.rest_score_min = second.threshold();
  }
  STARLING_RETURN_IF_ERROR(check_enum(proto.nan_policy(), name + ".nan_policy"));
  options.refuse_nonfinite = proto.nan_policy() == v1::NAN_POLICY_REFUSE;
  return options;
}

StatusOr<DenseOptions> dense_options(const v1::DenseOptions& proto, uint64_t seed) {
  STARLING_RETURN_IF_ERROR(check_name(proto.name()));
  const std::string& name = proto.name();
  DenseOptions options;
  options.name = name;
  options.seed = seed;
  options.shape.assign(proto.shape().begin(), proto.shape().end());
  STARLING_ASSIGN_OR_RETURN(const size_t bytes, tensor_bytes(DType::kFloat32, options.shape));
  if (bytes == 0) return invalid_argument("{}: a variable needs at least one element", name);
  STARLING_ASSIGN_OR_RETURN(options.optimizer,
                            optimizer_options(proto.optimizer(), "sgd", name + ".optimizer"));
  STARLING_ASSIGN_OR_RETURN(options.schedule,
                            schedule_options(proto.schedule(), name + ".schedule"));
  STARLING_ASSIGN_OR_RETURN(options.initializer,
                            initializer_options(proto.initializer(), name + ".initializer"));
  STARLING_RETURN_IF_ERROR(check_enum(proto.reduce(), name + ".reduce"));
  STARLING_RETURN_IF_ERROR(check_enum(proto.nan_policy(), name + ".nan_policy"));
  options.refuse_nonfinite = proto.nan_policy() == v1::NAN_POLICY_REFUSE;
  return options;
}

Status ShardSchema::add(const v1::CreateOption& option) {
  if (has_seed_ && seed_ != option.seed()) {
    return already_exists("the job's seed is {}, not {}", seed_, option.seed());
  }
  ShardSchema next = *this;
  next.seed_ = option.seed();
  next.has_seed_ = true;
  for (const v1::TableOptions& table : option.tables()) {
    STARLING_RETURN_IF_ERROR(table_options(table, option.seed()).status());
    STARLING_RETURN_IF_ERROR(same_or_new(next.tables_, table));
    if (next.variables_.contains(table.name()))
      return already_exists("{} is a variable", table.name());
    next.tables_.insert_or_assign(table.name(), table);
  }
  for (const v1::DenseOptions& variable : option.variables()) {
    STARLING_RETURN_IF_ERROR(dense_options(variable, option.seed()).status());
    STARLING_RETURN_IF_ERROR(same_or_new(next.variables_, variable));
    if (next.tables_.contains(variable.name()))
      return already_exists("{} is a table", variable.name());
    next.variables_.insert_or_assign(variable.name(), variable);
  }
  if (next.tables_.size() + next.variables_.size() > kNamesMax) {
    return resource_exhausted("more than {} tables and variables", kNamesMax);
  }
  *this = std::move(next);
  return absl::OkStatus();
}

uint64_t ShardSchema::hash() const {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, &seed_, sizeof(seed_));
  for (const auto& [name, table] : tables_) hash_one(state, table);
  for (const auto& [name, variable] : variables_) hash_one(state, variable);
  const uint64_t out = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return out;
}

DenseSplit DenseSplit::of(const v1::DenseOptions& proto) {
  DenseSplit split;
  split.elements = 1;
  for (const int64_t extent : proto.shape()) split.elements *= static_cast<uint64_t>(extent);
  const uint64_t each = proto.split_elements() == 0 ? kSplitElements : proto.split_elements();
  split.parts =
      static_cast<uint32_t>(std::clamp<uint64_t>((split.elements + each - 1) / each, 1, kBuckets));
  split.first_bucket = bucket_bits(name_hash(proto.name()));
  return split;
}

uint64_t DenseSplit::begin(uint32_t part) const {
  const auto scaled = static_cast<unsigned __int128>(part) * elements;
  return static_cast<uint64_t>((scaled + parts - 1) / parts);
}

uint32_t DenseSplit::bucket(uint32_t part) const {
  return (first_bucket + static_cast<uint32_t>(uint64_t{part} * kBuckets / parts)) % kBuckets;
}

uint32_t DenseSplit::part_of(uint64_t element) const {
  // begin(p) = ceil(p n / P) <= e  <=>  p <= e P / n, since p and e are whole.
  const auto scaled = static_cast<unsigned __int128>(element) * parts;
  return static_cast<uint32_t>(scaled / elements);
}

}  // namespace starling
