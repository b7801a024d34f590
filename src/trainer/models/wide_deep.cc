// Wide and deep: the first weight of each row is the wide, linear part, the rest goes through
// layers with the dense numbers.
#include "trainer/models/models.h"

namespace starling {
namespace {

class WideDeep final : public TorchNet {
 public:
  WideDeep(const ModelShape& shape, std::vector<int64_t> hidden) : TorchNet(shape) {
    hidden.push_back(shape.labels);
    const int64_t in = width_all() - static_cast<int64_t>(shape.fields.size());
    layers_ = add_layers("deep", in, std::move(hidden));
    if (shape.dense > 0) wide_ = add("wide.weight", {shape.labels, shape.dense}, 0);
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    std::vector<torch::Tensor> deep;
    for (const torch::Tensor& field : inputs.fields) {
      deep.push_back(field.narrow(1, 1, field.size(1) - 1));
    }
    if (inputs.dense.defined()) deep.push_back(inputs.dense);
    const torch::Tensor sum = layers(layers_, torch::cat(deep, 1), true) + first_weights(inputs);
    return inputs.dense.defined() ? sum + inputs.dense.matmul(value(wide_).t()) : sum;
  }

 private:
  std::vector<Linear> layers_;
  size_t wide_ = 0;
};

}  // namespace

std::unique_ptr<TorchNet> make_wide_deep(const ModelShape& shape, ModelParams& params) {
  return std::make_unique<WideDeep>(shape, params.wholes("hidden", {400, 400, 400}));
}

}  // namespace starling
