// Model is the dense network behind one small door: inputs in; loss, predictions and gradients out.
// What computes it, libtorch or another engine, is nobody's business outside.
//
// Uses: base, conf. Threads: each worker has a model of its own; the values of the variables are
// the caller's memory, which several models may share without locks (Hogwild).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "conf/options.h"

namespace starling {

struct ModelField {
  std::string name;
  uint32_t dim = 0;
};

// What the job feeds a network.
struct ModelShape {
  std::vector<ModelField> fields;  // pooled, in the order of their columns
  uint32_t dense = 0;              // numbers per sample
  uint32_t labels = 1;
  size_t width() const {
    size_t sum = 0;
    for (const ModelField& field : fields) sum += field.dim;
    return sum;
  }
};

struct ModelVariable {
  std::string name;
  std::vector<int64_t> shape;
  double bound = 0;  // starts uniform in [-bound, bound]; 0: zeros
  size_t elements() const {
    size_t product = 1;
    for (const int64_t extent : shape) product *= static_cast<size_t>(extent);
    return product;
  }
};

struct ModelInput {
  uint32_t samples = 0;
  std::span<const float> pooled;   // (samples, width)
  std::span<const float> dense;    // (samples, dense)
  std::span<const float> labels;   // (samples, labels); empty to predict
  std::span<const float> weights;  // (samples); empty: 1 each
};

struct ModelOutput {
  std::span<float> predictions;             // (samples, labels)
  std::span<float> pooled;                  // gradient of ModelInput.pooled
  std::vector<std::span<float>> variables;  // gradient of each variable
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const std::vector<ModelVariable>& variables() const = 0;
  // Where the values of each variable are, for as long as the model lives.
  virtual void bind(const std::vector<std::span<float>>& values) = 0;
  // Forward and backward: fills `out`, answers the mean loss. Internal: the engine failed.
  virtual StatusOr<double> train(const ModelInput& input, const ModelOutput& out) = 0;
  virtual Status predict(const ModelInput& input, std::span<float> predictions) = 0;
};

// What `model:` of a job file says, for this shape. InvalidArgument: an unknown name (with the
// nearest known one) or parameter, or fields that the model cannot take.
StatusOr<std::unique_ptr<Model>> make_model(const Choice& choice, const ModelShape& shape);
std::vector<std::string> model_names();

}  // namespace starling
