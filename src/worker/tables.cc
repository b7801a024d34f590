#include "worker/tables.h"

#include <vector>

#include "ps/client.h"
#include "table/rules.h"

namespace starling {
namespace {

// As Ps.Create takes them; ps/client.h's check_table() holds them to it.
const std::vector<RuleWords>& initializers() {
  static const std::vector<RuleWords> words = {
      {.name = "zero"},
      {.name = "constant", .values = {"value"}, .main = "value"},
      {.name = "uniform", .values = {"low", "high"}},
      {.name = "normal", .values = {"mean", "std"}, .main = "std"},
      {.name = "truncated_normal", .values = {"mean", "std"}, .main = "std"},
      {.name = "xavier", .values = {"fan_in", "fan_out"}}};
  return words;
}

const std::vector<RuleWords>& admissions() {
  static const std::vector<RuleWords> words = {
      {.name = "always"},
      {.name = "count", .values = {"count", "candidates_max"}, .main = "count"},
      {.name = "bloom", .values = {"count", "keys", "error_rate"}},
      {.name = "probability", .values = {"probability"}, .main = "probability"},
      {.name = "score", .values = {"threshold", "candidates_max"}, .main = "threshold"}};
  return words;
}

const std::vector<RuleWords>& evictions() {
  static const std::vector<RuleWords> words = {
      {.name = "score", .values = {"threshold", "decay"}, .main = "threshold"},
      {.name = "unseen_days", .values = {"days"}, .main = "days"},
      {.name = "steps", .values = {"steps"}, .main = "steps"},
      {.name = "norm", .values = {"threshold"}, .main = "threshold"},
      {.name = "lru", .values = {"rows"}, .main = "rows"},
      {.name = "lfu", .values = {"rows"}, .main = "rows"}};
  return words;
}

std::vector<RuleWords> optimizers(RuleUse use) {
  std::vector<RuleWords> words;
  for (const std::span<const RuleOps> family : rules()) {
    for (const RuleOps& ops : family) {
      if (use == RuleUse::kSparse ? !ops.sparse : !ops.dense) continue;
      RuleWords& one = words.emplace_back();
      one.name = ops.name;
      for (const RuleParam& param : ops.params) one.values.emplace_back(param.name);
      if (ops.has_rate) one.main = one.values.front();
      for (const RuleParam& param : shared_params()) one.values.emplace_back(param.name);
    }
  }
  return words;
}

StatusOr<v1::Rule> rule_of(const std::string& path, const Choice& choice,
                           std::span<const RuleWords> known) {
  v1::Rule rule;
  rule.set_name(choice.name);
  STARLING_ASSIGN_OR_RETURN(const auto numbers, numbers_of(path, choice, known));
  for (const auto& [name, number] : numbers) {
    v1::NamedValue* value = rule.add_values();
    value->set_name(name);
    value->set_value(number);
  }
  return rule;
}

// The rules of one table, each tried alone, so that what a ps would refuse is told with its line.
class TableRules {
 public:
  TableRules(const TableSection& section, uint64_t seed, v1::TableOptions* out)
      : path_("tables." + section.name), seed_(seed), out_(out), alone_(*out) {}

  // `place` gives the rule of a table's options.
  template <typename Place>
  Status add(const std::string& key, const Choice& choice, std::span<const RuleWords> known,
             Place place) {
    const std::string path = fmt::format("{}.{}", path_, key);
    STARLING_ASSIGN_OR_RETURN(const v1::Rule rule, rule_of(path, choice, known));
    *place(*out_) = rule;
    v1::TableOptions alone = alone_;
    *place(alone) = rule;
    return with_context(check_table(alone, seed_), fmt::format("{}: {}", choice.origin.text, path));
  }

 private:
  const std::string path_;
  const uint64_t seed_;
  v1::TableOptions* const out_;
  const v1::TableOptions alone_;  // without any rule
};

}  // namespace

StatusOr<v1::TableOptions> table_of(const TableSection& section, uint64_t seed) {
  v1::TableOptions out;
  out.set_name(section.name);
  out.set_dim(static_cast<uint32_t>(section.dim));
  if (section.storage == "bfloat16") out.set_storage(v1::DTYPE_BFLOAT16);
  if (section.storage == "float16") out.set_storage(v1::DTYPE_FLOAT16);
  TableRules rules(section, seed, &out);
  if (!section.optimizer.empty()) {
    STARLING_RETURN_IF_ERROR(rules.add("optimizer", section.optimizer, optimizers(RuleUse::kSparse),
                                       [](auto& table) { return table.mutable_optimizer(); }));
  }
  if (!section.initializer.empty()) {
    STARLING_RETURN_IF_ERROR(rules.add("initializer", section.initializer, initializers(),
                                       [](auto& table) { return table.mutable_initializer(); }));
  }
  if (section.admission.size() > 1) {
    return invalid_argument("{}: tables.{}.admission: one rule is allowed",
                            section.admission[1].origin.text, section.name);
  }
  for (const Choice& choice : section.admission) {
    STARLING_RETURN_IF_ERROR(rules.add("admission", choice, admissions(),
                                       [](auto& table) { return table.mutable_admission(); }));
  }
  for (const Choice& choice : section.eviction) {
    STARLING_RETURN_IF_ERROR(rules.add("eviction", choice, evictions(),
                                       [](auto& table) { return table.add_eviction(); }));
  }
  STARLING_RETURN_IF_ERROR(
      with_context(check_table(out, seed), fmt::format("tables.{}", section.name)));
  return out;
}

StatusOr<v1::Rule> dense_optimizer_of(const JobOptions& job) {
  const Choice& choice = job.dense.optimizer;
  if (choice.empty()) return v1::Rule();
  STARLING_ASSIGN_OR_RETURN(const v1::Rule rule,
                            rule_of("dense.optimizer", choice, optimizers(RuleUse::kDense)));
  v1::DenseOptions variable;
  variable.set_name("variable");
  variable.add_shape(1);
  *variable.mutable_optimizer() = rule;
  STARLING_RETURN_IF_ERROR(with_context(make_dense_table(variable, job.seed).status(),
                                        fmt::format("{}: dense.optimizer", choice.origin.text)));
  return rule;
}

Status check_tables(const JobOptions& job) {
  for (const TableSection& section : job.tables) {
    STARLING_RETURN_IF_ERROR(table_of(section, job.seed).status());
  }
  return dense_optimizer_of(job).status();
}

}  // namespace starling
