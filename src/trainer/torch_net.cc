#include "trainer/torch_net.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "conf/units.h"
#include "trainer/linear.h"

namespace starling {
namespace {

constexpr int64_t kFusedOutputsMin = 8;

// Torch only reads through it.
float* data_of(std::span<const float> values) { return const_cast<float*>(values.data()); }

void copy_out(const torch::Tensor& from, std::span<float> to) {
  const torch::Tensor flat = from.contiguous();
  STARLING_CHECK(static_cast<size_t>(flat.numel()) == to.size(), "a gradient of another shape");
  std::copy_n(flat.data_ptr<float>(), to.size(), to.data());
}

TorchNet::Sequence padded(const ModelSequence& from, int64_t dim, bool with_grad) {
  const int64_t samples = static_cast<int64_t>(from.lengths.size());
  // At least one, so that no tensor is empty.
  const int64_t longest =
      std::max<int64_t>(1, *std::max_element(from.lengths.begin(), from.lengths.end()));
  TorchNet::Sequence out{.values = torch::zeros({samples, longest, dim}),
                         .lengths = torch::empty({samples}, torch::kInt64)};
  float* to = out.values.data_ptr<float>();
  const float* at = from.values.data();
  for (int64_t i = 0; i < samples; ++i, to += longest * dim) {
    const int64_t length = from.lengths[static_cast<size_t>(i)];
    std::copy_n(at, length * dim, to);
    at += length * dim;
    out.lengths.data_ptr<int64_t>()[i] = length;
  }
  out.values.set_requires_grad(with_grad);
  return out;
}

void copy_unpadded(const torch::Tensor& from, std::span<const uint32_t> lengths,
                   std::span<float> to) {
  const torch::Tensor flat = from.contiguous();
  const int64_t stride = flat.size(1) * flat.size(2);
  const float* at = flat.data_ptr<float>();
  float* out = to.data();
  for (size_t i = 0; i < lengths.size(); ++i, at += stride) {
    out = std::copy_n(at, lengths[i] * flat.size(2), out);
  }
  STARLING_CHECK(out == to.data() + to.size(), "a gradient of another shape");
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

std::string ModelParams::text(const std::string& name) {
  const ConfValue* value = find(name);
  return value == nullptr ? std::string() : value->text;
}

void ModelParams::refuse(const std::string& name, const std::string& allowed) {
  if (!status_.ok()) return;
  const ConfValue* value = find(name);
  const std::string& where = value == nullptr ? choice_.origin.text : value->origin.text;
  status_ = invalid_argument("{}: model.{}.{} is {}; allowed: {}", where, choice_.name, name,
                             value == nullptr ? "missing" : value->named(), allowed);
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

torch::Tensor TorchNet::linear(const Linear& layer, const torch::Tensor& x, bool relu) const {
  const torch::Tensor& weight = value(layer.weight);
  // Few outputs are no work for a product of matrices.
  if (weight.size(0) >= kFusedOutputsMin && !is_traced_) {
    return fused_linear(x, weight, value(layer.bias), relu, shape_.precision);
  }
  const torch::Tensor y = at::linear(x, weight, value(layer.bias));
  return relu ? at::relu(y) : y;
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
    x = linear(list[i], x, i + 1 < list.size() || !is_last_plain);
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
    if (field.is_sequence) {
      out.sequences.push_back(padded(input.sequences[out.sequences.size()], field.dim, with_grad));
      continue;
    }
    out.fields.push_back(out.pooled.narrow(1, column, field.dim));
    column += field.dim;
  }
  return out;
}

torch::Tensor TorchNet::predictions_of(const torch::Tensor& logits) const {
  switch (shape_.loss.kind) {
    case LossKind::kBinary:
      return at::sigmoid(logits);
    case LossKind::kSoftmax:
      return at::softmax(logits, 1);
    case LossKind::kSquared:
      break;
  }
  return logits;
}

torch::Tensor TorchNet::loss_of(const torch::Tensor& logits, const ModelInput& input) const {
  const torch::Tensor labels =
      torch::from_blob(data_of(input.labels), {input.samples, shape_.labels}, torch::kFloat32);
  torch::Tensor weights;
  if (!input.weights.empty()) {
    weights = torch::from_blob(data_of(input.weights), {input.samples, 1}, torch::kFloat32);
  }
  if (!shape_.loss.label_weights.empty()) {
    const torch::Tensor parts =
        torch::from_blob(data_of(shape_.loss.label_weights), {1, shape_.labels}, torch::kFloat32);
    weights = weights.defined() ? weights * parts : parts;
  }
  if (shape_.loss.kind == LossKind::kBinary) {
    const torch::Tensor mean =
        at::binary_cross_entropy_with_logits(logits, labels, weights, {}, at::Reduction::Mean);
    return shape_.labels == 1 ? mean : mean * static_cast<double>(shape_.labels);
  }
  torch::Tensor each = shape_.loss.kind == LossKind::kSoftmax ? -labels * at::log_softmax(logits, 1)
                                                              : at::square(logits - labels);
  if (weights.defined()) each = each * weights;
  return each.sum() / static_cast<double>(input.samples);
}

double TorchNet::run(const ModelInput& input, const ModelOutput& out) {
  const Inputs inputs = inputs_of(input, true);
  const torch::Tensor logits = forward(inputs);
  const torch::Tensor loss = loss_of(logits, input);
  torch::autograd::variable_list asked{inputs.pooled};
  asked.insert(asked.end(), values_.begin(), values_.end());
  for (const Sequence& sequence : inputs.sequences) asked.push_back(sequence.values);
  const torch::Tensor scale =
      torch::full_like(loss, static_cast<float>(shape_.loss.gradient_scale));
  const torch::autograd::variable_list grads = torch::autograd::grad({loss}, asked, {scale});
  copy_out(grads[0], out.pooled);
  for (size_t i = 0; i < values_.size(); ++i) copy_out(grads[i + 1], out.variables[i]);
  for (size_t i = 0; i < inputs.sequences.size(); ++i) {
    copy_unpadded(grads[values_.size() + 1 + i], input.sequences[i].lengths, out.sequences[i]);
  }
  copy_out(predictions_of(logits.detach()), out.predictions);
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
    copy_out(predictions_of(forward(inputs_of(input, false))), predictions);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return internal_error("the network failed: {}", error.what());
  }
}

}  // namespace starling
