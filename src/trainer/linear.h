// A linear layer with bias and relu in one pass, inside libtorch's autograd, computed by oneDNN.
//
// Measured against at::linear and at::relu_ on OpenBLAS by bench/train (dense_limit).
// Uses: libtorch, oneDNN. Threads: free functions; the products run on the caller's thread.
#pragma once

#include <torch/types.h>

#include "base/status.h"
#include "trainer/model.h"

namespace starling {

// relu(x W^T + b), or without relu: x (..., in), weight (out, in), bias (out). In bfloat16 the
// operands of the three products (x, W and the gradient of the result) are rounded, sums and
// results are float32.
torch::Tensor fused_linear(const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias, bool relu, Precision precision);

// Whether products in bfloat16 work on this machine, tried in a child process: on virtual machines
// that show AMX and hide its tile sizes they end the process. FailedPrecondition says how it ended.
Status probe_bfloat16();

}  // namespace starling
