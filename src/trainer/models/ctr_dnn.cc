// All embeddings and dense numbers through layers with relu.
#include "trainer/models/models.h"

namespace starling {
namespace {

class CtrDnn final : public TorchNet {
 public:
  CtrDnn(const ModelShape& shape, std::vector<int64_t> hidden) : TorchNet(shape) {
    hidden.push_back(shape.labels);
    layers_ = add_layers("dnn", width_all(), std::move(hidden));
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    return layers(layers_, inputs.all(), true);
  }

 private:
  std::vector<Linear> layers_;
};

}  // namespace

std::unique_ptr<TorchNet> make_ctr_dnn(const ModelShape& shape, ModelParams& params) {
  return std::make_unique<CtrDnn>(shape, params.wholes("hidden", {400, 400, 400}));
}

}  // namespace starling
