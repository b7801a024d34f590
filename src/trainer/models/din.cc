// Deep interest network: what a sample's history weighs depends on the target it is shown. Each of
// the history's vectors h gets a weight from layers over (h, t, h - t, h * t), t the target's; the
// weighted sum goes with everything else through layers with relu.
#include "trainer/models/models.h"

namespace starling {
namespace {

struct DinFields {
  size_t target = 0;   // among pooled fields
  size_t history = 0;  // among sequences
  int64_t dim = 0;     // of both
};

// What the parameters `target` and `history` name: a pooled field and a sequence of one dim.
DinFields fields_of(const ModelShape& shape, ModelParams& params) {
  const std::string target = params.text("target");
  const std::string history = params.text("history");
  DinFields out;
  uint32_t target_dim = 0, history_dim = 0;
  size_t pooled = 0, sequences = 0;
  for (const ModelField& field : shape.fields) {
    size_t& number = field.is_sequence ? sequences : pooled;
    if (!field.is_sequence && field.name == target) {
      out.target = number;
      target_dim = field.dim;
    }
    if (field.is_sequence && field.name == history) {
      out.history = number;
      history_dim = field.dim;
    }
    ++number;
  }
  if (target_dim == 0) params.refuse("target", "the name of a field with pooling sum or mean");
  if (history_dim == 0) params.refuse("history", "the name of a field with pooling none");
  if (target_dim != history_dim) params.refuse("history", "a field with rows as the target's");
  out.dim = history_dim;
  return out;
}

class Din final : public TorchNet {
 public:
  Din(const ModelShape& shape, DinFields fields, std::vector<int64_t> attention,
      std::vector<int64_t> hidden)
      : TorchNet(shape), fields_(fields) {
    attention.push_back(1);
    attention_ = add_layers("attention", 4 * fields.dim, std::move(attention));
    hidden.push_back(shape.labels);
    layers_ = add_layers("deep", width_all() + fields.dim, std::move(hidden));
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    const Sequence& history = inputs.sequences[fields_.history];
    const torch::Tensor& h = history.values;
    const torch::Tensor t = inputs.fields[fields_.target].unsqueeze(1).expand_as(h);
    const torch::Tensor scores = layers(attention_, torch::cat({h, t, h - t, h * t}, 2), true);
    // Vectors behind the end of a history are zeros, so their weights do not matter.
    const torch::Tensor interest = (scores * h).sum(1);
    return layers(layers_, torch::cat({inputs.all(), interest}, 1), true);
  }

 private:
  const DinFields fields_;
  std::vector<Linear> attention_, layers_;
};

}  // namespace

std::unique_ptr<TorchNet> make_din(const ModelShape& shape, ModelParams& params) {
  const DinFields fields = fields_of(shape, params);
  std::vector<int64_t> attention = params.wholes("attention", {32, 16});
  std::vector<int64_t> hidden = params.wholes("hidden", {200, 80});
  if (!params.done().ok()) return nullptr;
  return std::make_unique<Din>(shape, fields, std::move(attention), std::move(hidden));
}

}  // namespace starling
