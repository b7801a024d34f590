// Any network that was saved as TorchScript. Its forward() takes what the job feeds it by name:
//
//   forward(self, fields: Dict[str, Tensor], dense: Tensor) -> Tensor
//   forward(self, fields: Dict[str, Tensor], dense: Tensor, lengths: Dict[str, Tensor]) -> Tensor
//
// `fields` has a float tensor (samples, dim) per pooled field and (samples, longest, dim) per
// sequence, `lengths` a whole number per sample for each sequence, `dense` is (samples, dense),
// with no columns where the job has no dense fields. The result is (samples, labels): logits, or
// the outputs of a squared loss. The file's parameters are the job's dense variables and start with
// the values that they have in the file.
#include <torch/script.h>
#include <torch/version.h>

#include <fstream>

#include "trainer/models/models.h"

namespace starling {
namespace {

constexpr const char* kSignature =
    "forward(self, fields: Dict[str, Tensor], dense: Tensor[, lengths: Dict[str, Tensor]]) -> "
    "Tensor";

using TensorsByName = c10::Dict<std::string, torch::Tensor>;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

StatusOr<torch::jit::Module> load(const std::string& path) {
  if (!std::ifstream(path).good()) return not_found("model.torchscript: {} cannot be read", path);
  try {
    return torch::jit::load(path);
  } catch (const std::exception& error) {
    return failed_precondition(
        "model.torchscript: {} cannot be loaded by libtorch {}, which this program is linked with: "
        "{}. A file of a newer torch has to be saved by torch {} or older",
        path, TORCH_VERSION, first_line(error.what()), TORCH_VERSION);
  }
}

// Empty: the arguments are as they should be.
bool fits(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  if (arguments.size() < 3 || arguments.size() > 4 || schema.returns().size() != 1) return false;
  const auto is_named_tensors = [](const c10::TypePtr& type) {
    return *type == *c10::DictType::create(c10::StringType::get(), c10::TensorType::get());
  };
  return is_named_tensors(arguments[1].type()) && *arguments[2].type() == *c10::TensorType::get() &&
         (arguments.size() == 3 || is_named_tensors(arguments[3].type())) &&
         *schema.returns()[0].type() == *c10::TensorType::get();
}

class TorchScript final : public TorchNet {
 public:
  TorchScript(const ModelShape& shape, torch::jit::Module module)
      : TorchNet(shape), module_(std::move(module)) {
    takes_lengths_ = module_.get_method("forward").function().getSchema().arguments().size() == 4;
    for (const auto& parameter : module_.named_parameters()) {
      const torch::Tensor value = parameter.value.detach().to(torch::kFloat32).contiguous();
      const size_t number = add(parameter.name, value.sizes().vec(), 0);
      start_with(number, {value.data_ptr<float>(), value.data_ptr<float>() + value.numel()});
      parameters_.push_back(parameter.value);
    }
  }

  void bind(const std::vector<std::span<float>>& values) override {
    TorchNet::bind(values);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      // The module's own parameter, on the memory that all of this job write to.
      parameters_[i].set_data(value(i).detach());
      parameters_[i].set_requires_grad(true);
      replace(i, parameters_[i]);
    }
  }

  Status save(const std::string& path) override {
    try {
      module_.save(path);
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return internal_error("{} cannot be written: {}", path, first_line(error.what()));
    }
  }

  // What forward() makes of two samples of zeros. InvalidArgument: not what the job needs.
  Status try_out(const std::string& path);

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    TensorsByName fields, lengths;
    size_t pooled = 0, sequences = 0;
    for (const ModelField& field : shape().fields) {
      if (field.is_sequence) {
        lengths.insert(field.name, inputs.sequences[sequences].lengths);
        fields.insert(field.name, inputs.sequences[sequences++].values);
      } else {
        fields.insert(field.name, inputs.fields[pooled++]);
      }
    }
    const torch::Tensor dense =
        inputs.dense.defined() ? inputs.dense : torch::zeros({inputs.samples, 0});
    std::vector<torch::jit::IValue> arguments{fields, dense};
    if (takes_lengths_) arguments.emplace_back(lengths);
    return module_.forward(std::move(arguments)).toTensor();
  }

 private:
  torch::jit::Module module_;
  std::vector<torch::Tensor> parameters_;
  bool takes_lengths_ = false;
};

Status TorchScript::try_out(const std::string& path) {
  std::string fed;
  for (const ModelField& field : shape().fields) {
    fed += fmt::format("{}'{}' ({}, {})", fed.empty() ? "" : ", ", field.name,
                       field.is_sequence ? "samples, longest" : "samples", field.dim);
  }
  const std::string sides =
      fmt::format("The job feeds the fields {} and dense (samples, {}), and needs (samples, {})",
                  fed, shape().dense, shape().labels);
  Inputs inputs;
  inputs.samples = 2;
  inputs.pooled = torch::zeros({2, static_cast<int64_t>(shape().width())});
  if (shape().dense > 0) inputs.dense = torch::zeros({2, shape().dense});
  for (const ModelField& field : shape().fields) {
    if (field.is_sequence) {
      inputs.sequences.push_back(
          {.values = torch::zeros({2, 1, field.dim}), .lengths = torch::ones({2}, torch::kInt64)});
    } else {
      inputs.fields.push_back(torch::zeros({2, field.dim}));
    }
  }
  try {
    const torch::NoGradGuard guard;
    const torch::Tensor out = forward(inputs);
    if (out.sizes() == torch::IntArrayRef({2, shape().labels})) return absl::OkStatus();
    return invalid_argument("model.torchscript: {} answers two samples with {}. {}", path,
                            fmt::format("({})", fmt::join(out.sizes(), ", ")), sides);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return invalid_argument("model.torchscript: {} fails: {}. {}", path,
                            first_line(text.substr(text.rfind("RuntimeError") + 1)), sides);
  }
}

}  // namespace

StatusOr<std::unique_ptr<Model>> make_torchscript(const std::string& path,
                                                  const ModelShape& shape) {
  STARLING_ASSIGN_OR_RETURN(torch::jit::Module module, load(path));
  const auto method = module.find_method("forward");
  if (!method.has_value() || !fits(method->function().getSchema())) {
    return invalid_argument("model.torchscript: {} has {}, needed is {}", path,
                            method.has_value()
                                ? fmt::format("{}", c10::str(method->function().getSchema()))
                                : "no forward",
                            kSignature);
  }
  auto made = std::make_unique<TorchScript>(shape, std::move(module));
  STARLING_RETURN_IF_ERROR(made->try_out(path));
  return made;
}

}  // namespace starling
