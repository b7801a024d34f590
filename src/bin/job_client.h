// JobClient is this process as a member of a running job: registered, watching, with clients of
// scheduler, ps and hubs; and what is asked of a job as a whole: cuts, restores, its state.
//
// Uses: doors of scheduler, ps and hub. Threads: any; each of its lanes has one of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "conf/options.h"
#include "hub/client.h"
#include "net/network.h"
#include "ps/client.h"
#include "ps/manifest.h"
#include "scheduler/client.h"

namespace starling {

class JobClient : public SchedulerEvents {
 public:
  struct Options {
    Address scheduler;
    v1::Role role = v1::ROLE_CLIENT;
    std::string name;
    uint32_t workers = 0;  // of a trainer: the ranks it asks for
    uint32_t lanes = 1;    // each with clients of ps and hubs
  };
  // Registers. `network` outlives it. Codes as SchedulerClient::join_wait.
  static StatusOr<std::unique_ptr<JobClient>> join(Network& network, const Options& options,
                                                   Deadline deadline);
  ~JobClient() override;

  SchedulerClient& scheduler() { return *scheduler_; }
  size_t lanes() const { return lanes_.size(); }
  PsClient& ps(size_t lane = 0) { return *lanes_[lane].ps; }
  HubClient& hubs(size_t lane = 0) { return *lanes_[lane].hubs; }
  // As the scheduler took it in.
  const v1::RegisterReply& registered() const { return registered_; }
  // Waits for `hubs` of them and for a map.
  Status wait_for_servers(size_t hubs, Deadline deadline);

  // As the scheduler told last.
  v1::JobState state() const;
  // Ranks that hubs deal to since the last cut of a synchronous job; 0: those that it began with.
  uint32_t seats() const;
  // Why there is no going on: the job failed, or this process was declared dead.
  Status failure() const;
  // What the next heartbeats tell. Called on the first lane.
  void set_rates(std::vector<std::pair<std::string, double>> rates);

  // Leaves the job, so that nobody waits for it; then is of no more use.
  void leave(Deadline deadline);

 private:
  struct LaneOfClients {
    std::shared_ptr<LoopLane> lane;
    std::unique_ptr<PsClient> ps;
    std::unique_ptr<HubClient> hubs;
  };

  JobClient() = default;
  void add_lane(Network& network, const SchedulerClientOptions& member);
  void on_event(const v1::Event& event) override;
  void on_refused(const Status& status) override;
  void on_heartbeat(v1::SchedulerHeartbeatOption* option) override;

  std::unique_ptr<SchedulerClient> scheduler_;  // on the first lane
  std::vector<LaneOfClients> lanes_;
  v1::RegisterReply registered_;

  mutable Mutex mutex_;
  v1::JobInfo job_ ABSL_GUARDED_BY(mutex_);
  Status refused_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, double>> rates_ ABSL_GUARDED_BY(mutex_);
};

// Makes a cut and waits until it is in place; its path. `directory` empty: below checkpoint.path;
// `keep` 0: as the job says. `may_wait` is asked several times a second; false gives up, the cut
// goes on. FailedPrecondition: another cut runs, or the job is not frozen. Aborted: the cut failed.
StatusOr<std::string> save_cut(SchedulerClient& scheduler, const std::string& directory,
                               uint32_t keep, const std::function<bool()>& may_wait);

struct StopOptions {
  std::string checkpoint_path;  // of the job; empty: it makes none
  std::string resume;           // the command that goes on
  std::function<void(const std::string&)> say;
  std::function<Status()> prepare = [] { return absl::OkStatus(); };  // before each try
  std::function<bool()> may_wait;  // false: all is trained, or nobody waits any more
};

// Makes the cut with which a job stops. True: it may be stopped now. False: `may_wait` said no.
// Errors: as save_cut(), but another cut is waited for.
StatusOr<bool> stop_with_cut(SchedulerClient& scheduler, const StopOptions& options);

// The keys of the scheduler under which a restored job finds what its trainers must know.
inline constexpr const char* kResumeKey = "job/resume";            // a StartSampleOption
inline constexpr const char* kEvaluationsKey = "job/evaluations";  // numbers below it are taken

// How many evaluations a cut's job had begun: shards take their batches for done.
uint32_t evaluations_of(const ckpt::Manifest& manifest);

// Takes the job back to a cut: tables, variables, and how far the samples were read. Leaves it
// frozen unless `trains`. Codes as restore_job().
StatusOr<RestoredJob> resume_job(JobClient& client, const Cut& cut, const JobOptions& job,
                                 bool trains, Deadline deadline);

// Sets the state of the job.
Status set_job_state(SchedulerClient& scheduler, v1::JobState state, const std::string& reason,
                     Deadline deadline);

}  // namespace starling
