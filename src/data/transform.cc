#include "data/transform.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/whole.h"
#include "data/hash.h"
#include "data/kernels.h"

namespace starling {
namespace {

StatusOr<double> value_of(const DataRule& rule, const std::string& name) {
  for (const auto& [key, value] : rule.values) {
    if (key != name) continue;
    if (!std::isfinite(value)) return invalid_argument("{}.{} is not finite", rule.name, name);
    return value;
  }
  return invalid_argument("{} needs {}", rule.name, name);
}

Status check_names(const DataRule& rule, std::initializer_list<std::string_view> allowed) {
  for (const auto& [key, value] : rule.values) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end())
      return invalid_argument("{} has no value named {}", rule.name, key);
  }
  return absl::OkStatus();
}

Status add_boundaries(const DataRule& rule, FieldPlan& plan) {
  for (const auto& [key, value] : rule.values) {
    if (!std::isfinite(value)) return invalid_argument("bucketise.{} is not finite", key);
    if (!plan.boundaries.empty() && value <= plan.boundaries.back())
      return invalid_argument("the boundaries of bucketise must rise, {} follows {}", value,
                              plan.boundaries.back());
    plan.boundaries.push_back(value);
  }
  if (plan.boundaries.empty()) return invalid_argument("bucketise needs boundaries");
  plan.bucketised = true;
  return absl::OkStatus();
}

Status add_transform(const DataRule& rule, FieldPlan& plan) {
  if (plan.bucketised) return invalid_argument("{} behind bucketise", rule.name);
  if (rule.name == "hash") {
    STARLING_RETURN_IF_ERROR(check_names(rule, {"salt"}));
    if (!plan.has_keys()) return invalid_argument("hash makes keys, the field has numbers");
    if (!plan.steps.empty()) return invalid_argument("hash behind {}", "a number's transform");
    if (!rule.values.empty()) {
      STARLING_ASSIGN_OR_RETURN(plan.seed,
                                whole_of<uint64_t>(rule.values.front().second, "hash.salt"));
    }
    plan.hashed = true;
    return absl::OkStatus();
  }
  if (plan.hashed) return invalid_argument("{} behind hash", rule.name);
  if (rule.name == "bucketise") return add_boundaries(rule, plan);
  NumberStep step;
  if (rule.name == "log") {
    STARLING_RETURN_IF_ERROR(check_names(rule, {}));
  } else if (rule.name == "clip") {
    STARLING_RETURN_IF_ERROR(check_names(rule, {"low", "high"}));
    step.kind = NumberStep::Kind::kClip;
    STARLING_ASSIGN_OR_RETURN(step.a, value_of(rule, "low"));
    STARLING_ASSIGN_OR_RETURN(step.b, value_of(rule, "high"));
    if (step.a > step.b) return invalid_argument("clip: low {} above high {}", step.a, step.b);
  } else if (rule.name == "normalise") {
    STARLING_RETURN_IF_ERROR(check_names(rule, {"mean", "std"}));
    step.kind = NumberStep::Kind::kNormalise;
    STARLING_ASSIGN_OR_RETURN(step.a, value_of(rule, "mean"));
    STARLING_ASSIGN_OR_RETURN(step.b, value_of(rule, "std"));
    if (step.b <= 0) return invalid_argument("normalise: std is {}, it must be above 0", step.b);
  } else {
    return invalid_argument(
        "no transform named {}; there are hash, log, clip, normalise and bucketise", rule.name);
  }
  plan.steps.push_back(step);
  return absl::OkStatus();
}

StatusOr<FieldPlan> plan_of(const FieldOptions& options, bool text_columns) {
  FieldPlan plan;
  plan.options = options;
  if (plan.options.table.empty()) plan.options.table = options.name;
  if (plan.options.column.empty()) plan.options.column = options.name;
  plan.text = text_columns;
  plan.seed = seed_of(options);
  plan.size = options.size == 0 ? 1 : options.size;
  plan.keys_max = options.keys_max == 0 ? kKeysPerFieldMax : options.keys_max;
  for (const DataRule& rule : options.transforms) {
    STARLING_RETURN_IF_ERROR(add_transform(rule, plan));
  }
  if (plan.has_keys()) {
    if (!plan.steps.empty() && !plan.bucketised)
      return invalid_argument("numbers become keys by bucketise, as the last transform");
    if (options.transforms.empty()) plan.hashed = text_columns;
    if (plan.size != 1) return invalid_argument("size is of dense fields");
  } else {
    if (!options.cross.empty()) return invalid_argument("a cross has keys");
    const bool many = options.kind == FieldKind::kDense || options.kind == FieldKind::kLabel;
    if (plan.size != 1 && !many) return invalid_argument("size is of dense fields and labels");
    if (!plan.has_numbers() && !options.transforms.empty())
      return invalid_argument("an id or group has no transforms");
  }
  return plan;
}

Status claim(bool& taken, std::string_view what) {
  if (taken) return invalid_argument("a second field of kind {}", what);
  taken = true;
  return absl::OkStatus();
}

Status add_to_schema(const FieldPlan& plan, SampleSchema& schema) {
  const FieldOptions& options = plan.options;
  switch (options.kind) {
    case FieldKind::kKeys:
      schema.keys.push_back({options.name, options.table, options.pooling, plan.keys_max});
      return absl::OkStatus();
    case FieldKind::kDense:
      schema.dense.insert(schema.dense.end(), plan.size, options.name);
      return absl::OkStatus();
    case FieldKind::kLabel:
      schema.labels.insert(schema.labels.end(), plan.size, options.name);
      return absl::OkStatus();
    case FieldKind::kWeight:
      return claim(schema.has_weight, "weight");
    case FieldKind::kShow:
      return claim(schema.has_show, "show");
    case FieldKind::kClick:
      return claim(schema.has_click, "click");
    case FieldKind::kId:
      return claim(schema.has_id, "id");
    case FieldKind::kGroup:
      return claim(schema.has_group, "group");
  }
  return absl::OkStatus();
}

// Where the numbers of each field stand in a sample.
void place_numbers(FieldPlans& plans) {
  const SampleSchema& schema = *plans.schema;
  uint32_t dense = 0, label = schema.label_at(), keys = 0;
  for (size_t i = 0; i < plans.fields.size(); ++i) {
    FieldPlan& plan = plans.fields[i];
    switch (plan.options.kind) {
      case FieldKind::kKeys:
        plan.slot = keys++;
        plans.key_fields.push_back(static_cast<uint32_t>(i));
        break;
      case FieldKind::kDense:
        plan.slot = dense;
        dense += plan.size;
        break;
      case FieldKind::kLabel:
        plan.slot = label;
        label += plan.size;
        break;
      case FieldKind::kWeight:
        plan.slot = schema.weight_at();
        break;
      case FieldKind::kShow:
        plan.slot = schema.show_at();
        break;
      case FieldKind::kClick:
        plan.slot = schema.click_at();
        break;
      case FieldKind::kId:
      case FieldKind::kGroup:
        break;
    }
  }
}

Status add_cross(const FieldPlan& plan, FieldPlans& plans) {
  const std::vector<std::string>& names = plan.options.cross;
  if (names.size() < 2) return invalid_argument("a cross is of two fields or more");
  FieldPlans::Cross cross{plan.slot, {}, plan.seed, plan.keys_max};
  for (const std::string& name : names) {
    const auto it = std::find_if(plans.fields.begin(), plans.fields.end(), [&](const auto& other) {
      return other.options.name == name && other.has_keys();
    });
    if (it == plans.fields.end()) return invalid_argument("cross: no field of keys named {}", name);
    if (!it->options.cross.empty()) return invalid_argument("cross: {} is a cross itself", name);
    cross.of.push_back(it->slot);
  }
  plans.crosses.push_back(std::move(cross));
  return absl::OkStatus();
}

// Fills in FieldPlans::logged where it can stand for all transforms.
void find_logged(FieldPlans& plans) {
  std::vector<uint8_t> logged(plans.schema->numbers());
  for (const FieldPlan& plan : plans.fields) {
    if (!plan.has_numbers()) continue;
    const bool is_log = plan.steps.size() == 1 && plan.steps[0].kind == NumberStep::Kind::kLog;
    if (plan.bucketised || (!plan.steps.empty() && !is_log)) return;
    if (is_log) std::fill_n(logged.begin() + plan.slot, plan.size, uint8_t{1});
  }
  plans.logged = std::move(logged);
}

}  // namespace

uint64_t seed_of(const FieldOptions& field) {
  return field.salt != 0 ? field.salt : hash_text(field.name, 0);
}

double transformed(std::span<const NumberStep> steps, double x) {
  for (const NumberStep& step : steps) {
    switch (step.kind) {
      case NumberStep::Kind::kLog:
        x = log_of(x);
        break;
      case NumberStep::Kind::kClip:
        x = x < step.a ? step.a : x > step.b ? step.b : x;
        break;
      case NumberStep::Kind::kNormalise:
        x = (x - step.a) / step.b;
        break;
    }
  }
  return x;
}

uint64_t FieldPlan::bucket(double x) const {
  const double y = transformed(steps, x);
  return static_cast<uint64_t>(std::upper_bound(boundaries.begin(), boundaries.end(), y) -
                               boundaries.begin());
}

StatusOr<Key> FieldPlan::key_of(std::string_view value) const {
  if (hashed && text) return static_cast<Key>(hash_text(value, seed));
  if (bucketised) {
    double number = 0;
    if (!parse_number(value, number)) return invalid_argument("'{}' is no number", value);
    return static_cast<Key>(hash_number(bucket(number), seed));
  }
  uint64_t number = 0;
  if (!parse_unsigned(value, number)) return invalid_argument("'{}' is no key", value);
  return key_of(number);
}

void FieldPlans::finish_numbers(SampleBlock& block, uint32_t from) const {
  const std::span<float> numbers = block.numbers_from(from);
  if (numbers.empty()) return;
  if (!logged.empty()) return log_columns(numbers, logged);
  const size_t stride = schema->numbers();
  for (const FieldPlan& plan : fields) {
    if (!plan.has_numbers()) continue;
    for (size_t column = plan.slot; column < plan.slot + plan.size; ++column) {
      for (size_t i = column; i < numbers.size(); i += stride) {
        float& x = numbers[i];
        if (std::isnan(x)) {
          x = 0;
        } else if (plan.bucketised) {
          x = static_cast<float>(plan.bucket(double{x}));
        } else if (!plan.steps.empty()) {
          x = static_cast<float>(transformed(plan.steps, double{x}));
        }
      }
    }
  }
}

StatusOr<FieldPlans> plan_fields(const std::vector<FieldOptions>& fields, bool text_columns) {
  FieldPlans plans;
  SampleSchema schema;
  std::map<std::string, int> names;
  for (const FieldOptions& options : fields) {
    if (options.name.empty()) return invalid_argument("a field has no name");
    if (names[options.name]++ > 0) return invalid_argument("field {} twice", options.name);
    StatusOr<FieldPlan> plan = plan_of(options, text_columns);
    if (plan.ok()) {
      if (const Status status = add_to_schema(*plan, schema); !status.ok()) plan = status;
    }
    if (!plan.ok()) return with_context(plan.status(), fmt::format("field {}", options.name));
    plans.fields.push_back(*std::move(plan));
  }
  plans.schema = std::make_shared<const SampleSchema>(std::move(schema));
  place_numbers(plans);
  find_logged(plans);
  for (const FieldPlan& plan : plans.fields) {
    if (plan.options.cross.empty()) continue;
    if (const Status status = add_cross(plan, plans); !status.ok())
      return with_context(status, fmt::format("field {}", plan.options.name));
  }
  return plans;
}

bool parse_number(std::string_view text, double& out) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(out);
}

bool parse_unsigned(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace starling
