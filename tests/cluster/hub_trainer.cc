// A trainer by script as a process, to be killed: trains a dataset until its end.
//
// usage: hub_trainer SCHEDULER NAME INCARNATION FILES EPOCHS [global]
#include <fmt/format.h>

#include <charconv>

#include "tests/cluster/hub_world.h"

namespace starling::cluster {
namespace {

uint64_t number_of(const std::string& text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Status run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5) return invalid_argument("5 arguments are needed");
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(NetOptions(), Log(), metrics);
  STARLING_ASSIGN_OR_RETURN(const Address scheduler, Address::parse(arguments[0]));
  Trainer trainer(*network, scheduler, arguments[1], number_of(arguments[2]));
  STARLING_RETURN_IF_ERROR(trainer.join());
  v1::StartSampleOption option;
  option.set_dataset("train");
  option.add_files(arguments[3]);
  option.set_epochs(static_cast<uint32_t>(number_of(arguments[4])));
  option.set_batch_size(16);
  option.set_shuffle_samples(64);
  option.set_window(16);
  option.set_lease_ms(2000);
  add_count_fields(option);
  if (arguments.size() > 5) {
    option.set_kind(v1::DATASET_KIND_MEMORY);
    option.mutable_memory()->set_global_shuffle(true);
  }
  trainer.start_again = option;
  STARLING_RETURN_IF_ERROR(trainer.hub->start(option, soon()).status());
  fmt::print("training\n");
  std::fflush(stdout);
  return trainer.train("train", {.pause = milliseconds(1)});
}

}  // namespace
}  // namespace starling::cluster

int main(int argc, char** argv) {
  const starling::Status status = starling::cluster::run({argv + 1, argv + argc});
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
