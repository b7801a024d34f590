#include "trainer/schema.h"

#include <algorithm>

#include "ps/client.h"
#include "worker/tables.h"

namespace starling {
namespace {

StatusOr<ModelLoss> model_loss(const JobOptions& job, uint32_t labels) {
  ModelLoss loss;
  loss.gradient_scale = job.train.gradient_scale;
  if (job.train.loss == "softmax") loss.kind = LossKind::kSoftmax;
  if (job.train.loss == "squared") loss.kind = LossKind::kSquared;
  if (loss.kind == LossKind::kSoftmax && labels < 2) {
    return invalid_argument("train.loss: softmax needs two labels or more, the job has {}", labels);
  }
  for (const double weight : job.train.label_weights) {
    loss.label_weights.push_back(static_cast<float>(weight));
  }
  if (!loss.label_weights.empty() && loss.label_weights.size() != labels) {
    return invalid_argument("train.label_weights: {} weights, the job has {} labels",
                            loss.label_weights.size(), labels);
  }
  return loss;
}

// Room for what the optimizer of each variable keeps, of jobs whose trainer keeps both: a number
// that says whether anything was stored, then the state.
Status add_states(v1::CreateOption& out) {
  const int variables = out.variables_size();
  for (int i = 0; i < variables; ++i) {
    STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<DenseTable> table,
                              make_dense_table(out.variables(i), out.seed()));
    v1::DenseOptions* state = out.add_variables();
    state->set_name(out.variables(i).name() + ".state");
    state->add_shape(static_cast<int64_t>(table->state().size()) + 1);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<ModelShape> model_shape(const JobOptions& job, const v1::StartSampleReply& dataset) {
  ModelShape shape;
  shape.dense = static_cast<uint32_t>(dataset.dense_fields_size());
  shape.labels = static_cast<uint32_t>(std::max(1, dataset.label_fields_size()));
  STARLING_ASSIGN_OR_RETURN(shape.loss, model_loss(job, shape.labels));
  if (job.dense.precision == "bfloat16") shape.precision = Precision::kBFloat16;
  for (const std::string& name : dataset.key_fields()) {
    const auto field = std::find_if(job.fields.begin(), job.fields.end(),
                                    [&](const FieldSection& one) { return one.name == name; });
    const std::string table =
        field == job.fields.end() || field->table.empty() ? name : field->table;
    const auto section = std::find_if(job.tables.begin(), job.tables.end(),
                                      [&](const TableSection& one) { return one.name == table; });
    if (section == job.tables.end()) {
      return invalid_argument("field '{}' needs table '{}', which the job does not have", name,
                              table);
    }
    shape.fields.push_back({.name = name,
                            .dim = static_cast<uint32_t>(section->dim),
                            .is_sequence = field != job.fields.end() && field->pooling == "none"});
  }
  return shape;
}

StatusOr<v1::CreateOption> create_option(const JobOptions& job,
                                         const std::vector<ModelVariable>& variables) {
  v1::CreateOption out;
  out.set_seed(job.seed);
  for (const TableSection& table : job.tables) {
    STARLING_ASSIGN_OR_RETURN(*out.add_tables(), table_of(table, job.seed));
  }
  STARLING_ASSIGN_OR_RETURN(const v1::Rule optimizer, dense_optimizer_of(job));
  for (const ModelVariable& variable : variables) {
    v1::DenseOptions* dense = out.add_variables();
    dense->set_name(variable.name);
    for (const int64_t extent : variable.shape) dense->add_shape(extent);
    if (!optimizer.name().empty()) *dense->mutable_optimizer() = optimizer;
    if (variable.bound == 0) continue;
    dense->mutable_initializer()->set_name("uniform");
    for (const auto& [name, value] :
         {std::pair("low", -variable.bound), {"high", variable.bound}}) {
      v1::NamedValue* out_value = dense->mutable_initializer()->add_values();
      out_value->set_name(name);
      out_value->set_value(value);
    }
  }
  if (job.dense.home == "trainer") STARLING_RETURN_IF_ERROR(add_states(out));
  return out;
}

}  // namespace starling
