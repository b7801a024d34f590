// How a network becomes a TorchScript file: its forward() runs once and is recorded, with its
// variables as the parameters of a module. What was recorded is then read back and compared.
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/script.h>

#include <algorithm>

#include "trainer/torch_net.h"

namespace starling {
namespace {

using TensorsByName = c10::Dict<std::string, torch::Tensor>;

// Another number of samples is compared than is recorded: a file that holds it fails.
constexpr int64_t kTracedSamples = 3;
constexpr int64_t kComparedSamples = 5;
constexpr double kNear = 1e-5;  // the order of additions differs

// Numbers between -1 and 1 that are all different.
torch::Tensor numbers(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return torch::sin(torch::arange(1, count + 1, torch::kFloat32)).reshape(shape);
}

// What forward() of a file takes.
std::vector<torch::jit::IValue> arguments_of(const ModelShape& shape, int64_t samples) {
  TensorsByName fields, lengths;
  for (const ModelField& field : shape.fields) {
    if (field.is_sequence) {
      fields.insert(field.name, numbers({samples, samples, field.dim}));
      lengths.insert(field.name, torch::full({samples}, samples, torch::kInt64));
    } else {
      fields.insert(field.name, numbers({samples, field.dim}));
    }
  }
  std::vector<torch::jit::IValue> out{fields, numbers({samples, shape.dense})};
  if (!lengths.empty()) out.emplace_back(lengths);
  return out;
}

// The same as a network takes it.
TorchNet::Inputs taken(const ModelShape& shape, const std::vector<torch::jit::IValue>& from) {
  const auto fields = c10::impl::toTypedDict<std::string, torch::Tensor>(from[0].toGenericDict());
  TorchNet::Inputs out;
  for (const ModelField& field : shape.fields) {
    const torch::Tensor values = fields.at(field.name);
    out.samples = values.size(0);
    if (field.is_sequence) {
      const auto lengths =
          c10::impl::toTypedDict<std::string, torch::Tensor>(from[2].toGenericDict());
      out.sequences.push_back({.values = values, .lengths = lengths.at(field.name)});
    } else {
      out.fields.push_back(values);
    }
  }
  if (!out.fields.empty()) out.pooled = torch::cat(out.fields, 1);
  if (shape.dense > 0) out.dense = from[1].toTensor();
  return out;
}

}  // namespace

void TorchNet::save_traced(const std::string& path) {
  torch::jit::Module module("Network");
  for (size_t i = 0; i < variables_.size(); ++i) {
    std::string name = variables_[i].name;
    std::replace(name.begin(), name.end(), '.', '_');
    module.register_parameter(name, values_[i], false);
  }
  std::vector<std::string> names{"fields", "dense", "lengths"};
  std::vector<torch::jit::IValue> arguments = arguments_of(shape_, kTracedSamples);
  names.resize(arguments.size());
  const auto traced = torch::jit::tracer::trace(
      std::move(arguments),
      [this](const torch::jit::Stack& inputs) {
        return torch::jit::Stack{forward(taken(shape_, inputs))};
      },
      [](const torch::Tensor&) { return std::string(); }, true, false, &module, names);
  torch::jit::Function* function = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), traced.first->graph);
  module.type()->addMethod(function);
  module.save(path);
}

Status TorchNet::check_saved(const std::string& path) {
  const std::vector<torch::jit::IValue> arguments = arguments_of(shape_, kComparedSamples);
  const torch::Tensor mine = forward(taken(shape_, arguments));
  const torch::Tensor other = torch::jit::load(path).forward(arguments).toTensor();
  if (mine.sizes() == other.sizes() && at::allclose(mine, other, kNear, kNear)) {
    return absl::OkStatus();
  }
  return internal_error("{} does not compute what the network does", path);
}

Status TorchNet::save(const std::string& path) {
  try {
    const torch::NoGradGuard guard;
    is_traced_ = true;
    save_traced(path);
    is_traced_ = false;
    return check_saved(path);
  } catch (const std::exception& error) {
    is_traced_ = false;
    const std::string text = error.what();
    return internal_error("{} cannot be written: {}", path, text.substr(0, text.find('\n')));
  }
}

}  // namespace starling
