// DenseKeeper takes part in every cut of a job whose trainer keeps the dense variables: when every
// batch is done and before the shards hold that moment, the variables go to the ps.
//
// It is a member of the job by itself, as a client: these are waited for before the snapshot.
// Uses: JobClient. Threads: one of its own, on which `store` is called.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/thread.h"
#include "bin/job_client.h"

namespace starling {

class DenseKeeper {
 public:
  using Store = std::function<Status()>;
  // `network` outlives it. Codes as JobClient::join.
  static StatusOr<std::unique_ptr<DenseKeeper>> start(Network& network, const Address& scheduler,
                                                      const std::string& name, Store store);
  // Leaves the job.
  ~DenseKeeper();

 private:
  DenseKeeper(std::unique_ptr<JobClient> client, std::string name, Store store);
  void run();
  // Stores once nobody else is waited for.
  Status look();

  const std::unique_ptr<JobClient> client_;
  const std::string name_;
  const Store store_;
  std::atomic<bool> is_ending_{false};
  Thread thread_;
};

}  // namespace starling
