// The list of models: one line here and one file beside it for each.
//
// Uses: trainer/torch_net.h. Threads: free functions.
#pragma once

#include <memory>

#include "trainer/torch_net.h"

namespace starling {

using ModelMaker = std::unique_ptr<TorchNet> (*)(const ModelShape& shape, ModelParams& params);

std::unique_ptr<TorchNet> make_lr(const ModelShape& shape, ModelParams& params);
std::unique_ptr<TorchNet> make_fm(const ModelShape& shape, ModelParams& params);
std::unique_ptr<TorchNet> make_wide_deep(const ModelShape& shape, ModelParams& params);
std::unique_ptr<TorchNet> make_ctr_dnn(const ModelShape& shape, ModelParams& params);
std::unique_ptr<TorchNet> make_deepfm(const ModelShape& shape, ModelParams& params);
std::unique_ptr<TorchNet> make_dcn_v2(const ModelShape& shape, ModelParams& params);
std::unique_ptr<TorchNet> make_dlrm(const ModelShape& shape, ModelParams& params);
std::unique_ptr<TorchNet> make_din(const ModelShape& shape, ModelParams& params);

// NotFound, FailedPrecondition, InvalidArgument: the file cannot be read, is of a newer torch, or
// does not take what the job feeds it.
StatusOr<std::unique_ptr<Model>> make_torchscript(const std::string& path, const ModelShape& shape);

struct NamedModel {
  const char* name;
  ModelMaker make;
  // The least and the most weights per row; 0: any. All fields alike: they are summed or paired.
  uint32_t dim_min;
  uint32_t dim_max;
  bool same_dims;
  bool takes_sequences = false;
};

inline constexpr NamedModel kModels[] = {
    {"lr", make_lr, 1, 1, true},
    {"fm", make_fm, 2, 0, true},
    {"wide_deep", make_wide_deep, 2, 0, false},
    {"ctr_dnn", make_ctr_dnn, 1, 0, false},
    {"deepfm", make_deepfm, 2, 0, true},
    {"dcn_v2", make_dcn_v2, 1, 0, false},
    {"dlrm", make_dlrm, 1, 0, true},
    {"din", make_din, 1, 0, false, true},
};

// Of fields whose rows start with a linear weight: the sum of these weights (samples, 1), and the
// rest of each row, stacked (samples, fields, dim - 1).
torch::Tensor first_weights(const TorchNet::Inputs& inputs);
torch::Tensor factors(const TorchNet::Inputs& inputs);
// Half of (square of the sum - sum of the squares) over fields, summed over factors: (samples, 1).
torch::Tensor pairs(const torch::Tensor& factors);

}  // namespace starling
