#include "trainer/models/models.h"

#include "conf/schema.h"

namespace starling {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const NamedModel& model : kModels) names.emplace_back(model.name);
  return names;
}

StatusOr<std::unique_ptr<Model>> make_model(const Choice& choice, const ModelShape& shape) {
  if (choice.name == "torchscript") return make_torchscript(choice.params.text, shape);
  for (const NamedModel& model : kModels) {
    if (choice.name != model.name) continue;
    if (shape.fields.empty()) {
      return invalid_argument("{}: model.{} needs a field with keys", choice.origin.text,
                              choice.name);
    }
    for (const ModelField& field : shape.fields) {
      if (field.is_sequence && !model.takes_sequences) {
        return invalid_argument(
            "{}: model.{} takes no sequences: field '{}' needs pooling sum or mean",
            choice.origin.text, choice.name, field.name);
      }
      if (field.dim < model.dim_min || (model.dim_max > 0 && field.dim > model.dim_max)) {
        return invalid_argument("{}: model.{} needs rows of {} weights, field '{}' has {}",
                                choice.origin.text, choice.name,
                                model.dim_max == model.dim_min
                                    ? fmt::format("{}", model.dim_min)
                                    : fmt::format("at least {}", model.dim_min),
                                field.name, field.dim);
      }
      if (model.same_dims && field.dim != shape.fields.front().dim) {
        return invalid_argument(
            "{}: model.{} needs rows of one size, field '{}' has {} weights, field '{}' {}",
            choice.origin.text, choice.name, shape.fields.front().name, shape.fields.front().dim,
            field.name, field.dim);
      }
    }
    ModelParams params(choice);
    std::unique_ptr<Model> made = model.make(shape, params);
    STARLING_RETURN_IF_ERROR(params.done());
    return made;
  }
  return invalid_argument("{}: model '{}' is not known; the nearest is '{}'", choice.origin.text,
                          choice.name, nearest(choice.name, model_names()));
}

torch::Tensor first_weights(const TorchNet::Inputs& inputs) {
  torch::Tensor sum = inputs.fields.front().narrow(1, 0, 1);
  for (size_t i = 1; i < inputs.fields.size(); ++i) sum = sum + inputs.fields[i].narrow(1, 0, 1);
  return sum;
}

torch::Tensor factors(const TorchNet::Inputs& inputs) {
  const int64_t fields = static_cast<int64_t>(inputs.fields.size());
  const int64_t dim = inputs.fields.front().size(1);
  return inputs.pooled.view({-1, fields, dim}).narrow(2, 1, dim - 1);
}

torch::Tensor pairs(const torch::Tensor& factors) {
  const torch::Tensor sum = factors.sum(1);
  return (sum * sum - (factors * factors).sum(1)).sum(1, true) * 0.5;
}

}  // namespace starling
