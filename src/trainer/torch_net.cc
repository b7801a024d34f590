#include "trainer/torch_net.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "conf/units.h"

namespace starling {
namespace {

// Torch only reads through it.
float* data_of(std::span<const float> values) { return const_cast<float*>(values.data()); }

void copy_out(const torch::Tensor& from, std::span<float> to) {
  const torch::Tensor flat = from.contiguous();
  STARLING_CHECK(static_cast<size_t>(flat.numel()) == to.size(), "a gradient of another shape");
  std::copy_n(flat.data_ptr<float>(), to.size(), to.data());
}

}  // namespace

const ConfValue* ModelParams::find(const std::string& name) {
  asked_.push_back(name);
  for (const ConfMember& member : choice_.params.members) {
    if (member.key == name) return &member.value;
  }
  return nullptr;
}

int64_t ModelParams::whole(const std::string& name, int64_t fallback, int64_t least, int64_t most) {
  const ConfValue* value = find(name);
  if (value == nullptr) return fallback;
  const std::optional<int64_t> number = parse_whole(value->text, Unit::kNone);
  if (!number.has_value() || *number < least || *number > most) {
    if (status_.ok()) {
      status_ = invalid_argument("{}: model.{}.{} is {}; allowed: {} to {}", value->origin.text,
                                 choice_.name, name, value->named(), least, most);
    }
    return fallback;
  }
  return *number;
}

std::vector<int64_t> ModelParams::wholes(const std::string& name, std::vector<int64_t> fallback) {
  const ConfValue* value = find(name);
  if (value == nullptr) return fallback;
  std::vector<int64_t> out;
  for (const ConfValue& item : value->items) {
    const std::optional<int64_t> number = parse_whole(item.text, Unit::kNone);
    if (!number.has_value() || *number < 1 || *number > 65536) {
      out.clear();
      break;
    }
    out.push_back(*number);
  }
  if (out.empty() && status_.ok()) {
    status_ = invalid_argument("{}: model.{}.{} is {}; a list of numbers from 1 to 65536 is needed",
                               value->origin.text, choice_.name, name, value->named());
  }
  return out;
}

Status ModelParams::done() const {
  STARLING_RETURN_IF_ERROR(status_);
  for (const ConfMember& member : choice_.params.members) {
    if (std::find(asked_.begin(), asked_.end(), member.key) != asked_.end()) continue;
    return invalid_argument(
        "{}: model.{} has no '{}'; it has: {}", member.value.origin.text, choice_.name, member.key,
        asked_.empty() ? "nothing" : fmt::format("{}", fmt::join(asked_, ", ")));
  }
  return absl::OkStatus();
}

size_t TorchNet::add(std::string name, std::vector<int64_t> shape, double bound) {
  variables_.push_back({.name = std::move(name), .shape = std::move(shape), .bound = bound});
  return variables_.size() - 1;
}

TorchNet::Linear TorchNet::add_linear(const std::string& name, int64_t in, int64_t out) {
  // As torch.nn.Linear starts.
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return {.weight = add(name + ".weight", {out, in}, bound),
          .bias = add(name + ".bias", {out}, bound)};
}

torch::Tensor TorchNet::linear(const Linear& layer, const torch::Tensor& x) const {
  return at::linear(x, value(layer.weight), value(layer.bias));
}

std::vector<TorchNet::Linear> TorchNet::add_layers(const std::string& name, int64_t in,
                                                   std::vector<int64_t> sizes) {
  std::vector<Linear> out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    out.push_back(add_linear(fmt::format("{}.{}", name, i), in, sizes[i]));
    in = sizes[i];
  }
  return out;
}

torch::Tensor TorchNet::layers(const std::vector<Linear>& list, torch::Tensor x,
                               bool is_last_plain) const {
  for (size_t i = 0; i < list.size(); ++i) {
    x = linear(list[i], x);
    if (i + 1 < list.size() || !is_last_plain) x = at::relu_(x);
  }
  return x;
}

void TorchNet::bind(const std::vector<std::span<float>>& values) {
  STARLING_CHECK(values.size() == variables_.size(), "memory for every variable");
  values_.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    STARLING_CHECK(values[i].size() == variables_[i].elements(), "memory of the variable's size");
    values_.push_back(torch::from_blob(values[i].data(), variables_[i].shape, torch::kFloat32)
                          .set_requires_grad(true));
  }
}

TorchNet::Inputs TorchNet::inputs_of(const ModelInput& input, bool with_grad) const {
  const int64_t samples = input.samples;
  const int64_t width = static_cast<int64_t>(shape_.width());
  Inputs out;
  out.samples = samples;
  out.pooled = torch::from_blob(data_of(input.pooled), {samples, width}, torch::kFloat32)
                   .set_requires_grad(with_grad);
  if (shape_.dense > 0) {
    out.dense = torch::from_blob(data_of(input.dense), {samples, shape_.dense}, torch::kFloat32);
  }
  int64_t column = 0;
  for (const ModelField& field : shape_.fields) {
    out.fields.push_back(out.pooled.narrow(1, column, field.dim));
    column += field.dim;
  }
  return out;
}

double TorchNet::run(const ModelInput& input, const ModelOutput& out) {
  const Inputs inputs = inputs_of(input, true);
  const torch::Tensor logits = forward(inputs);
  const torch::Tensor labels =
      torch::from_blob(data_of(input.labels), {input.samples, shape_.labels}, torch::kFloat32);
  torch::Tensor weights;
  if (!input.weights.empty()) {
    weights = torch::from_blob(data_of(input.weights), {input.samples, 1}, torch::kFloat32);
  }
  const torch::Tensor loss =
      at::binary_cross_entropy_with_logits(logits, labels, weights, {}, at::Reduction::Mean);
  torch::autograd::variable_list asked{inputs.pooled};
  asked.insert(asked.end(), values_.begin(), values_.end());
  const torch::autograd::variable_list grads = torch::autograd::grad({loss}, asked);
  copy_out(grads[0], out.pooled);
  for (size_t i = 0; i < values_.size(); ++i) copy_out(grads[i + 1], out.variables[i]);
  copy_out(at::sigmoid(logits.detach()), out.predictions);
  return loss.item<double>();
}

StatusOr<double> TorchNet::train(const ModelInput& input, const ModelOutput& out) {
  try {
    return run(input, out);
  } catch (const std::exception& error) {
    return internal_error("the network failed: {}", error.what());
  }
}

Status TorchNet::predict(const ModelInput& input, std::span<float> predictions) {
  try {
    const torch::NoGradGuard guard;
    copy_out(at::sigmoid(forward(inputs_of(input, false))), predictions);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return internal_error("the network failed: {}", error.what());
  }
}

}  // namespace starling
