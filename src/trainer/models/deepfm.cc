// DeepFM: a factorization machine and layers over the same factors.
#include "trainer/models/models.h"

namespace starling {
namespace {

class DeepFm final : public TorchNet {
 public:
  DeepFm(const ModelShape& shape, std::vector<int64_t> hidden) : TorchNet(shape) {
    hidden.push_back(shape.labels);
    const int64_t in = width_all() - static_cast<int64_t>(shape.fields.size());
    layers_ = add_layers("deep", in, std::move(hidden));
    if (shape.dense > 0) weight_ = add("fm.weight", {shape.labels, shape.dense}, 0);
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    const torch::Tensor rows = factors(inputs);
    torch::Tensor deep = rows.reshape({-1, rows.size(1) * rows.size(2)});
    if (inputs.dense.defined()) deep = torch::cat({deep, inputs.dense}, 1);
    const torch::Tensor sum = layers(layers_, deep, true) + first_weights(inputs) + pairs(rows);
    return inputs.dense.defined() ? sum + inputs.dense.matmul(value(weight_).t()) : sum;
  }

 private:
  std::vector<Linear> layers_;
  size_t weight_ = 0;
};

}  // namespace

std::unique_ptr<TorchNet> make_deepfm(const ModelShape& shape, ModelParams& params) {
  return std::make_unique<DeepFm>(shape, params.wholes("hidden", {400, 400, 400}));
}

}  // namespace starling
