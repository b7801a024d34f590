// PartByPart is a communicator that sends every table and variable of a step in a message of its
// own: what a job asks for with train.tensor_fuse: false.
//
// Uses: base, wire, ps/client.h. Threads: as the communicator behind it.
#pragma once

#include <string>
#include <vector>

#include "ps/client.h"

namespace starling {

class PartByPart final : public Communicator {
 public:
  // `next` outlives it. `tables`: all of the job's.
  PartByPart(Communicator& next, std::vector<std::string> tables)
      : next_(next), tables_(std::move(tables)) {}

  Routes routes() const override { return next_.routes(); }
  void call(Method method, std::vector<ShardMessage> messages, Deadline deadline,
            DoneOr<std::vector<Message>> done) override;
  Status push(std::vector<KeyValues> keys, std::vector<DenseValues> dense,
              Deadline deadline) override {
    return next_.push(std::move(keys), std::move(dense), deadline);
  }
  StatusOr<std::vector<DenseCopy>> pull_dense(std::vector<DenseCopy> known,
                                              Deadline deadline) override {
    return next_.pull_dense(std::move(known), deadline);
  }

 private:
  Communicator& next_;
  const std::vector<std::string> tables_;
};

}  // namespace starling
