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
  bool is_sequence = false;  // every key's vector, in order, instead of one pooled vector
};

enum class LossKind {
  kBinary,   // cross-entropy of each label; predictions are probabilities
  kSoftmax,  // cross-entropy over all labels of a sample, which are parts of 1
  kSquared,  // squared error of each label; predictions are the outputs
};

// The mean over samples of (weight of the sample) x (sum over labels of weight x loss).
struct ModelLoss {
  LossKind kind = LossKind::kBinary;
  std::vector<float> label_weights;  // empty: 1 each
  double gradient_scale = 1;         // of every gradient, not of the loss
};

enum class Precision { kFloat32, kBFloat16 };

// What the job feeds a network.
struct ModelShape {
  std::vector<ModelField> fields;  // pooled ones in the order of their columns
  uint32_t dense = 0;              // numbers per sample
  uint32_t labels = 1;
  ModelLoss loss;
  Precision precision = Precision::kFloat32;  // of what linear layers multiply
  size_t width() const {
    size_t sum = 0;
    for (const ModelField& field : fields) sum += field.is_sequence ? 0 : field.dim;
    return sum;
  }
};

struct ModelVariable {
  std::string name;
  std::vector<int64_t> shape;
  double bound = 0;            // starts uniform in [-bound, bound]; 0: zeros
  std::vector<float> initial;  // the values to start with, instead; empty: by `bound`
  size_t elements() const {
    size_t product = 1;
    for (const int64_t extent : shape) product *= static_cast<size_t>(extent);
    return product;
  }
};

// A field's vectors, one behind the other.
struct ModelSequence {
  std::span<const float> values;      // (keys of all samples, dim)
  std::span<const uint32_t> lengths;  // (samples): how many keys each has
};

struct ModelInput {
  uint32_t samples = 0;
  std::span<const float> pooled;         // (samples, width)
  std::span<const float> dense;          // (samples, dense)
  std::span<const float> labels;         // (samples, labels); empty to predict
  std::span<const float> weights;        // (samples); empty: 1 each
  std::vector<ModelSequence> sequences;  // one per field that is a sequence, in their order
};

struct ModelOutput {
  std::span<float> predictions;             // (samples, labels)
  std::span<float> pooled;                  // gradient of ModelInput.pooled
  std::vector<std::span<float>> variables;  // gradient of each variable
  std::vector<std::span<float>> sequences;  // gradient of each of ModelInput.sequences
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
  // Writes the network with its values as a file that other programs run: TorchScript, with the
  // signature that models/torchscript.cc documents, so that it can be trained on as well. Internal:
  // the engine failed, or the file does not compute what this network does.
  virtual Status save(const std::string& path) = 0;
};

// What `model:` of a job file says, for this shape. InvalidArgument: an unknown name (with the
// nearest known one) or parameter, or fields that the model cannot take.
StatusOr<std::unique_ptr<Model>> make_model(const Choice& choice, const ModelShape& shape);
std::vector<std::string> model_names();

}  // namespace starling
