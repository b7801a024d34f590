// TorchNet computes a Model with libtorch's autograd. A model is a class with a constructor that
// adds its variables and a forward(); see models/.
//
// Uses: base, conf, libtorch. Threads: as Model. Exceptions of libtorch end here.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/model.h"

namespace starling {

// Reads the parameters of a model in a job file. Errors are kept until done().
class ModelParams {
 public:
  explicit ModelParams(const Choice& choice) : choice_(choice) {}
  int64_t whole(const std::string& name, int64_t fallback, int64_t least, int64_t most);
  std::vector<int64_t> wholes(const std::string& name, std::vector<int64_t> fallback);
  std::string text(const std::string& name);  // empty: not given
  // What the model read of `name` does not fit; `allowed` would.
  void refuse(const std::string& name, const std::string& allowed);
  // InvalidArgument: the first that was wrong, or one that nobody asked for.
  Status done() const;

 private:
  const ConfValue* find(const std::string& name);
  const Choice& choice_;
  std::vector<std::string> asked_;
  Status status_;
};

class TorchNet : public Model {
 public:
  struct Sequence {
    torch::Tensor values;   // (samples, longest, dim), zeros behind the end of each
    torch::Tensor lengths;  // (samples), whole numbers
  };
  struct Inputs {
    torch::Tensor pooled;               // (samples, width)
    torch::Tensor dense;                // (samples, dense); undefined without dense fields
    std::vector<torch::Tensor> fields;  // views of `pooled`, (samples, dim) each
    std::vector<Sequence> sequences;    // of the fields that are
    int64_t samples = 0;
    // What a network sees as plain numbers: all embeddings, then the dense values.
    torch::Tensor all() const { return dense.defined() ? torch::cat({pooled, dense}, 1) : pooled; }
  };

  explicit TorchNet(ModelShape shape) : shape_(std::move(shape)) {}
  const std::vector<ModelVariable>& variables() const override { return variables_; }
  void bind(const std::vector<std::span<float>>& values) override;
  StatusOr<double> train(const ModelInput& input, const ModelOutput& out) override;
  Status predict(const ModelInput& input, std::span<float> predictions) override;
  // In torch_save.cc: forward() is traced.
  Status save(const std::string& path) override;

 protected:
  // Logits, or outputs of a squared loss: (samples, labels).
  virtual torch::Tensor forward(const Inputs& inputs) = 0;

  const ModelShape& shape() const { return shape_; }
  int64_t width_all() const { return static_cast<int64_t>(shape_.width()) + shape_.dense; }
  // Adds a variable; its number is good for value().
  size_t add(std::string name, std::vector<int64_t> shape, double bound);
  void start_with(size_t variable, std::vector<float> initial) {
    variables_[variable].initial = std::move(initial);
  }
  const torch::Tensor& value(size_t variable) const { return values_[variable]; }
  // After bind(): whose gradient is asked for instead, on the same memory.
  void replace(size_t variable, torch::Tensor value) { values_[variable] = std::move(value); }

  // A layer y = x W^T + b, or relu of it; its numbers are those of W and b.
  struct Linear {
    size_t weight = 0, bias = 0;
  };
  Linear add_linear(const std::string& name, int64_t in, int64_t out);
  torch::Tensor linear(const Linear& layer, const torch::Tensor& x, bool relu = false) const;
  // Layers with relu between them; the last without when `is_last_plain`.
  std::vector<Linear> add_layers(const std::string& name, int64_t in, std::vector<int64_t> sizes);
  torch::Tensor layers(const std::vector<Linear>& list, torch::Tensor x, bool is_last_plain) const;

 private:
  Inputs inputs_of(const ModelInput& input, bool with_grad) const;
  double run(const ModelInput& input, const ModelOutput& out);
  torch::Tensor loss_of(const torch::Tensor& logits, const ModelInput& input) const;
  torch::Tensor predictions_of(const torch::Tensor& logits) const;
  void save_traced(const std::string& path);
  Status check_saved(const std::string& path);

  const ModelShape shape_;
  bool is_traced_ = false;  // linear layers by operations that a file can hold
  std::vector<ModelVariable> variables_;
  std::vector<torch::Tensor> values_;
};

}  // namespace starling
