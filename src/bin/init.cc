// `starling init`: a first job file for a user's data.
#include <fmt/format.h>

#include "bin/command.h"
#include "bin/process.h"
#include "hub/guess.h"
#include "store/file_systems.h"
#include "store/streams.h"

namespace starling {
namespace {

constexpr const char* kInitHelp =
    R"(usage: starling init FILE [--out JOB.yaml]

Looks at the beginning of FILE (csv, criteo, libsvm, libffm or multislot; plain, .gz or .zst) and writes a commented job
file that reads it. Then: starling data show JOB.yaml
  --out JOB.yaml  where it goes; - for the screen. Default: job.yaml. A file that is there is not touched
)";

constexpr size_t kHeadBytes = 1 << 20;

}  // namespace

StatusOr<int> run_init(std::vector<std::string> arguments) {
  if (arguments.empty() || take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kInitHelp);
    return arguments.empty() ? 2 : 0;
  }
  STARLING_ASSIGN_OR_RETURN(std::string out, take_value(arguments, "--out"));
  if (out.empty()) out = "job.yaml";
  const std::string path = arguments.empty() ? "" : arguments.front();
  if (path.empty()) return invalid_argument("FILE is needed");
  arguments.erase(arguments.begin());
  STARLING_RETURN_IF_ERROR(no_more(arguments, "init"));
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, open_decompressed(*files, path));
  std::string head(kHeadBytes, '\0');
  STARLING_ASSIGN_OR_RETURN(const size_t got,
                            read_full(*reader, std::as_writable_bytes(std::span(head))));
  head.resize(got);
  STARLING_ASSIGN_OR_RETURN(const std::string job, guess_job(path, head));
  if (out == "-") {
    fmt::print("{}", job);
    return 0;
  }
  STARLING_RETURN_IF_ERROR(write_file(*files, out, job, Existing::kKeep));
  fmt::print("{} is written; see what it reads: starling data show {}\n", out, out);
  return 0;
}

}  // namespace starling
