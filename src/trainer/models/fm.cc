// Factorization machine: of each row the first weight is linear, the rest are factors of pairs.
#include "trainer/models/models.h"

namespace starling {
namespace {

class Fm final : public TorchNet {
 public:
  explicit Fm(const ModelShape& shape) : TorchNet(shape) {
    bias_ = add("fm.bias", {shape.labels}, 0);
    if (shape.dense > 0) weight_ = add("fm.weight", {shape.labels, shape.dense}, 0);
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    const torch::Tensor sum = first_weights(inputs) + pairs(factors(inputs)) + value(bias_);
    return inputs.dense.defined() ? sum + inputs.dense.matmul(value(weight_).t()) : sum;
  }

 private:
  size_t bias_ = 0, weight_ = 0;
};

}  // namespace

std::unique_ptr<TorchNet> make_fm(const ModelShape& shape, ModelParams&) {
  return std::make_unique<Fm>(shape);
}

}  // namespace starling
