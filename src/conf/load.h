// Loads a job: YAML, then the environment, then flags, each stronger than the one before; and
// prints where values came from.
//
// Uses: base. Threads: any; free functions and values. read_environment is the one place of the
// project that reads it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "conf/options.h"

namespace starling {

using Environment = std::map<std::string, std::string>;

// All variables of this process.
Environment read_environment();

// What a job is loaded from.
//
// The environment, weakest first:
//   PS_ENABLE_POLLING           ps.net.polling
//   WORKER_ENABLE_POLLING       trainer.net.polling
//   NETWORK_PS_CORE_NUMBER      cluster.shards: the lanes of a ps process
//   NETWORK_WORKER_CORE_NUMBER  trainer.lanes
//   PS_DISABLE_PIN_CORES        ps.net.pin_cores, negated
//   WORKER_DISABLE_PIN_CORES    trainer.net.pin_cores, negated
//   STARLING_SET                "a.b=c;d.e=f": any keys
//   STARLING_A__B               the key a.b: two underscores for a dot
//   STARLING_TOKEN              the cluster's shared secret, which no file or flag can hold
// Any other variable that begins with STARLING_ is an error, but for STARLING_TEST_...
struct Sources {
  std::string file;  // path of the YAML file; empty: none
  Environment environment;
  std::vector<std::string>
      sets;  // of --set, each "a.b=c"; c is YAML: 4, inf, [x, y], {adam: {lr: 0.1}}
};

struct Job {
  JobOptions options;
  std::vector<Setting> settings;  // every key with its value and origin, in the order of the list
};

// NotFound: the file cannot be read. InvalidArgument: a line per problem, each naming file and
// line, or variable, or flag; the key; what is wrong; what is allowed; for an unknown key or word
// the nearest that is known.
StatusOr<Job> load(const Sources& sources);

// The same with the file's text at hand; `sources.file` only names it.
StatusOr<Job> load_text(const std::string& yaml, const Sources& sources);

// The same of lines `key=value`, as a run leaves them beside its cuts; what is no key is not looked
// at. `sources.file` only names it.
StatusOr<Job> load_settings(const std::string& lines, const Sources& sources);

// --print-config: a line per key, `data.batch_size=512  # job.yaml:3`. Each is what --set takes;
// secrets are not shown.
std::string print_settings(const Job& job);

// Every key with its type, bounds, default and meaning, a line each.
std::string print_keys();

}  // namespace starling
