// Logistic regression: one weight per key, and one per dense number.
#include "trainer/models/models.h"

namespace starling {
namespace {

class Lr final : public TorchNet {
 public:
  explicit Lr(const ModelShape& shape) : TorchNet(shape) {
    bias_ = add("lr.bias", {shape.labels}, 0);
    if (shape.dense > 0) weight_ = add("lr.weight", {shape.labels, shape.dense}, 0);
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    const torch::Tensor sum = first_weights(inputs) + value(bias_);
    return inputs.dense.defined() ? sum + inputs.dense.matmul(value(weight_).t()) : sum;
  }

 private:
  size_t bias_ = 0, weight_ = 0;
};

}  // namespace

std::unique_ptr<TorchNet> make_lr(const ModelShape& shape, ModelParams&) {
  return std::make_unique<Lr>(shape);
}

}  // namespace starling
