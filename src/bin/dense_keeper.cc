#include "bin/dense_keeper.h"

#include <thread>

namespace starling {
namespace {

constexpr Duration kPatience = seconds(60);
constexpr Duration kLeavePatience = seconds(5);
constexpr Duration kLook = milliseconds(20);

Deadline soon() { return Deadline::in(RealClock(), kPatience); }

}  // namespace

StatusOr<std::unique_ptr<DenseKeeper>> DenseKeeper::start(Network& network,
                                                          const Address& scheduler,
                                                          const std::string& name, Store store) {
  STARLING_ASSIGN_OR_RETURN(
      std::unique_ptr<JobClient> client,
      JobClient::join(network, {.scheduler = scheduler, .name = name}, soon()));
  return std::unique_ptr<DenseKeeper>(new DenseKeeper(std::move(client), name, std::move(store)));
}

DenseKeeper::DenseKeeper(std::unique_ptr<JobClient> client, std::string name, Store store)
    : client_(std::move(client)), name_(std::move(name)), store_(std::move(store)) {
  thread_ = Thread({.name = "keep-dense"}, [this] { run(); });
}

DenseKeeper::~DenseKeeper() {
  is_ending_ = true;
  thread_.join();
  client_->leave(Deadline::in(RealClock(), kLeavePatience));
}

void DenseKeeper::run() {
  while (!is_ending_) {
    // A cut that cannot be served fails by its own deadline and says who was missing.
    if (client_->state() == v1::JOB_STATE_SAVING) look().IgnoreError();
    std::this_thread::sleep_for(kLook);
  }
}

Status DenseKeeper::look() {
  v1::SaveJobOption option;
  option.set_action(v1::SAVE_ACTION_STATUS);
  STARLING_ASSIGN_OR_RETURN(const v1::SaveJobReply now, client_->scheduler().save(option, soon()));
  if (now.cut().phase() != v1::CUT_PHASE_DRAIN || now.waiting_for_size() != 1 ||
      now.waiting_for(0) != name_) {
    return absl::OkStatus();
  }
  option.set_action(v1::SAVE_ACTION_REPORT);
  option.set_cut_id(now.cut().cut_id());
  option.set_phase(v1::CUT_PHASE_DRAIN);
  if (now.cut().has_clock()) option.mutable_save()->set_clock(now.cut().clock());
  const Status stored = store_();
  if (!stored.ok()) option.set_error(std::string(message_of(stored)));
  return client_->scheduler().save(option, soon()).status();
}

}  // namespace starling
