// DLRM: dense numbers through a bottom network to one more vector, dot products of all pairs of
// vectors, and a top network over both.
#include "trainer/models/models.h"

namespace starling {
namespace {

class Dlrm final : public TorchNet {
 public:
  Dlrm(const ModelShape& shape, std::vector<int64_t> bottom, std::vector<int64_t> top)
      : TorchNet(shape) {
    const int64_t dim = shape.fields.front().dim;
    int64_t vectors = static_cast<int64_t>(shape.fields.size());
    int64_t in = 0;
    if (shape.dense > 0) {
      bottom.push_back(dim);
      bottom_ = add_layers("bottom", shape.dense, std::move(bottom));
      ++vectors;
      in = dim;
    }
    std::vector<int64_t> rows, columns;
    for (int64_t i = 1; i < vectors; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        rows.push_back(i);
        columns.push_back(j);
      }
    }
    rows_ = torch::tensor(rows, torch::kInt64);
    columns_ = torch::tensor(columns, torch::kInt64);
    in += static_cast<int64_t>(rows.size());
    top.push_back(shape.labels);
    // One vector alone has no pair: it stands for itself.
    top_ = add_layers("top", in == 0 ? dim : in, std::move(top));
  }

 protected:
  torch::Tensor forward(const Inputs& inputs) override {
    std::vector<torch::Tensor> vectors;
    if (!bottom_.empty()) vectors.push_back(layers(bottom_, inputs.dense, false));
    vectors.insert(vectors.end(), inputs.fields.begin(), inputs.fields.end());
    if (vectors.size() == 1) return layers(top_, vectors.front(), true);
    const torch::Tensor stacked = torch::stack(vectors, 1);
    const torch::Tensor dots = torch::bmm(stacked, stacked.transpose(1, 2));
    torch::Tensor x = dots.index({torch::indexing::Slice(), rows_, columns_});
    if (!bottom_.empty()) x = torch::cat({vectors.front(), x}, 1);
    return layers(top_, x, true);
  }

 private:
  std::vector<Linear> bottom_, top_;
  torch::Tensor rows_, columns_;
};

}  // namespace

std::unique_ptr<TorchNet> make_dlrm(const ModelShape& shape, ModelParams& params) {
  std::vector<int64_t> bottom = params.wholes("bottom", {64});
  return std::make_unique<Dlrm>(shape, std::move(bottom), params.wholes("top", {256, 128}));
}

}  // namespace starling
