#include "trainer/linear.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

namespace starling {
namespace {

struct Result {
  torch::Tensor y, dx, dw, db;
};

Result run(bool is_fused, bool relu, Precision precision) {
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({7, 3, 19}).set_requires_grad(true);
  const torch::Tensor w = torch::randn({12, 19}).set_requires_grad(true);
  const torch::Tensor b = torch::randn({12}).set_requires_grad(true);
  const torch::Tensor scale = torch::randn({7, 3, 12});
  torch::Tensor y = is_fused ? fused_linear(x, w, b, relu, precision) : at::linear(x, w, b);
  if (!is_fused && relu) y = at::relu(y);
  const auto grads = torch::autograd::grad({(y * scale).sum()}, {x, w, b});
  return {y.detach(), grads[0], grads[1], grads[2]};
}

void expect_close(const Result& a, const Result& b, double room) {
  EXPECT_TRUE(at::allclose(a.y, b.y, room, room));
  EXPECT_TRUE(at::allclose(a.dx, b.dx, room, room));
  EXPECT_TRUE(at::allclose(a.dw, b.dw, room, room));
  EXPECT_TRUE(at::allclose(a.db, b.db, room, room));
}

// First: a child of a process whose pool of threads has begun to work may not use it.
TEST(FusedLinear, BFloat16RoundsOperandsAlone) {
  if (const Status works = probe_bfloat16(); !works.ok()) GTEST_SKIP() << message_of(works);
  const Result half = run(true, false, Precision::kBFloat16);
  const Result full = run(false, false, Precision::kFloat32);
  expect_close(half, full, 0.1);
  EXPECT_FALSE(at::allclose(half.y, full.y, 1e-4, 1e-4));
}

TEST(FusedLinear, IsWhatTorchComputes) {
  for (const bool relu : {false, true}) {
    expect_close(run(true, relu, Precision::kFloat32), run(false, relu, Precision::kFloat32), 1e-4);
  }
}

TEST(FusedLinear, WhatIsNotANumberIsNotHiddenByRelu) {
  const torch::Tensor x = torch::full({2, 9}, std::numeric_limits<float>::quiet_NaN());
  const torch::Tensor y =
      fused_linear(x, torch::ones({8, 9}), torch::ones({8}), true, Precision::kFloat32);
  EXPECT_TRUE(at::isnan(y).all().item<bool>());
}

}  // namespace
}  // namespace starling
