#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/version.h>

#include <filesystem>
#include <fstream>

#include "trainer/model.h"

namespace starling {
namespace {

using testing::HasSubstr;

class TorchScriptFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  void save(const std::string& forward) {
    torch::jit::Module module("net");
    module.register_parameter("w", torch::full({5, 1}, 0.25F), false);
    module.define(forward);
    module.save(path_);
  }
  StatusOr<std::unique_ptr<Model>> load(const ModelShape& shape) const {
    Choice choice{.name = "torchscript", .origin = {.text = "job.yaml:1"}};
    choice.params.text = path_;
    return make_model(choice, shape);
  }
  std::string refused(const ModelShape& shape) const {
    return std::string(load(shape).status().message());
  }

  const ModelShape shape_{.fields = {{"a", 2}, {"h", 2, true}}, .dense = 1, .labels = 1};
  const std::string path_ = testing::TempDir() + "torchscript_test.pt";
};

constexpr const char* kGood = R"(
def forward(self, fields: Dict[str, Tensor], dense: Tensor, lengths: Dict[str, Tensor]) -> Tensor:
    history = fields["h"].sum(1) / lengths["h"].unsqueeze(1).clamp(min=1)
    return torch.cat([fields["a"], history, dense], 1).matmul(self.w)
)";

TEST_F(TorchScriptFile, IsSavedWithTheValuesThatItHasNow) {
  save(kGood);
  const auto made = load(shape_);
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<float> w{1, 2, 3, 4, 5};
  (*made)->bind({w});
  w[0] = 7;
  ASSERT_EQ((*made)->save(path_), absl::OkStatus());
  const auto again = load(shape_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->variables()[0].initial, w);
}

TEST_F(TorchScriptFile, TrainsFromTheValuesOfTheFile) {
  save(kGood);
  auto made = load(shape_);
  ASSERT_TRUE(made.ok()) << made.status();
  Model& model = **made;
  ASSERT_EQ(model.variables().size(), 1);
  EXPECT_EQ(model.variables()[0].name, "w");
  EXPECT_EQ(model.variables()[0].initial, std::vector<float>(5, 0.25F));
  std::vector<float> w{1, 2, 3, 4, 5}, w_gradient(5);
  model.bind({w});
  const std::vector<float> pooled{1, 0, 0, 1}, dense{1, 2}, labels{1, 0}, history{2, 4, 4, 2, 1, 1};
  const std::vector<uint32_t> lengths{2, 1};
  std::vector<float> predictions(2), pooled_gradient(4), history_gradient(6);
  const ModelInput input{.samples = 2,
                         .pooled = pooled,
                         .dense = dense,
                         .labels = labels,
                         .sequences = {{.values = history, .lengths = lengths}}};
  const StatusOr<double> loss = model.train(input, {.predictions = predictions,
                                                    .pooled = pooled_gradient,
                                                    .variables = {w_gradient},
                                                    .sequences = {history_gradient}});
  ASSERT_TRUE(loss.ok()) << loss.status();
  // Logits: 1 + 3 * 3 + 4 * 3 + 5 and 2 + 3 + 4 + 10.
  EXPECT_FLOAT_EQ(predictions[0], 1 / (1 + std::exp(-27.0F)));
  EXPECT_FLOAT_EQ(predictions[1], 1 / (1 + std::exp(-19.0F)));
  EXPECT_NEAR(pooled_gradient[3], 2 * 0.5, 1e-5);
  EXPECT_NEAR(history_gradient[4], 3 * 0.5, 1e-5);
  EXPECT_NEAR(w_gradient[4], 2 * 0.5, 1e-5);
}

TEST_F(TorchScriptFile, AnotherSignatureShowsBothSides) {
  save("def forward(self, x: Tensor) -> Tensor:\n    return x\n");
  EXPECT_THAT(refused(shape_), HasSubstr("Tensor x"));
  EXPECT_THAT(refused(shape_), HasSubstr("fields: Dict[str, Tensor], dense: Tensor"));
}

TEST_F(TorchScriptFile, OtherFieldsOrLabelsShowBothSides) {
  save(kGood);
  ModelShape two = shape_;
  two.labels = 2;
  EXPECT_THAT(refused(two), HasSubstr("answers two samples with (2, 1)"));
  EXPECT_THAT(refused(two), HasSubstr("needs (samples, 2)"));
  ModelShape other = shape_;
  other.fields[0].name = "b";
  EXPECT_THAT(refused(other), HasSubstr("'b' (samples, 2)"));
}

TEST_F(TorchScriptFile, ANewerFileNamesTheVersions) {
  save(kGood);
  std::ifstream in(path_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  // The record `version` of the archive holds a digit and a line end, stored as they are.
  const size_t name = bytes.find("/version");
  ASSERT_NE(name, std::string::npos);
  bytes.replace(bytes.find('\n', name) - 1, 2, "99");
  std::ofstream(path_, std::ios::binary) << bytes;
  EXPECT_THAT(refused(shape_), HasSubstr(TORCH_VERSION));
  EXPECT_THAT(refused(shape_), HasSubstr("cannot be loaded"));
}

TEST_F(TorchScriptFile, AMissingFileIsNamed) { EXPECT_THAT(refused(shape_), HasSubstr(path_)); }

}  // namespace
}  // namespace starling
