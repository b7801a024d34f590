// DCN-V2, stacked: cross layers x' = x0 * (W x + b) + x, then layers with relu.
#include "trainer/models/models.h"

namespace starling {
namespace {

class DcnV2 final : public TorchNet {
 public:
  DcnV2(const ModelShape& shape, int64_t crosses, std::vector<int64_t> hidden) : TorchNet(shape) {
    for (int64_t i = 0; i < crosses; ++i) {
      crosses_.push_back(add_linear(fmt::format("cross.{}", i), width_all(), width_all()));
    }
    hidden.push_back(shape.labels);
    layers_ = add_layers("deep", width_all(), std::move(hidden));
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    const torch::Tensor first = inputs.all();
    torch::Tensor x = first;
    for (const Linear& cross : crosses_) x = first * linear(cross, x) + x;
    return layers(layers_, x, true);
  }

 private:
  std::vector<Linear> crosses_;
  std::vector<Linear> layers_;
};

}  // namespace

std::unique_ptr<TorchNet> make_dcn_v2(const ModelShape& shape, ModelParams& params) {
  const int64_t crosses = params.whole("crosses", 3, 1, 16);
  return std::make_unique<DcnV2>(shape, crosses, params.wholes("hidden", {400, 400, 400}));
}

}  // namespace starling
