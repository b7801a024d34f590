// Dump writes what a network saw and said, sample by sample, as one JSON object per line.
//
//   {"id": "17", "batch": "0/2/5", "step": 5, "loss": 0.52, "labels": [1], "predictions": [0.7],
//    "fields": {"C1": [0.01, -0.3]}}
//   {"variable": "dnn.0.weight", "shape": [2, 2], "values": [0.1, 0.2, 0.3, 0.4]}
// The id is the sample's, or its number in the batch where samples have none; the loss is the
// batch's. Vectors of sequences stand one behind the other. Variables stand first, with their
// values before the first step. Numbers read back to the same bits.
// Uses: base, worker. Threads: any.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "trainer/model.h"
#include "worker/worker.h"

namespace starling {

class Dump {
 public:
  // `names`: fields and variables whose values are dumped. InvalidArgument: neither. Unavailable:
  // the file cannot be written.
  static StatusOr<std::unique_ptr<Dump>> open(const std::string& path,
                                              std::vector<std::string> names,
                                              const ModelShape& shape,
                                              const std::vector<ModelVariable>& variables);
  ~Dump();

  // The first call writes, later ones do nothing.
  void variables(const std::vector<ModelVariable>& variables,
                 const std::vector<std::span<float>>& values);
  void batch(const StepBatch& batch, const ModelInput& input, std::span<const float> predictions,
             double loss);
  // Unavailable: something could not be written.
  Status close();

 private:
  Dump(std::string path, std::FILE* file, std::vector<std::string> names, const ModelShape& shape);
  bool wants(const std::string& name) const;
  std::string vector_of(size_t field, const ModelInput& input, uint32_t sample) const;
  void write(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::vector<std::string> names_;
  const ModelShape shape_;

  Mutex mutex_;
  std::FILE* file_ ABSL_GUARDED_BY(mutex_);
  bool has_variables_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling
