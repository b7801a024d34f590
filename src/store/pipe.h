// PipeReader gives what a user's command prints when it is fed the bytes of a file.
//
// The command is a list of arguments handed to the system as they are: no shell, no string built
// from data. Its non-zero exit and its last line on standard error become the error; it is killed,
// with its children, when the reader goes away. Uses: base. Threads: one owner at a time;
// interrupt() from any thread. No thread: the owner's read() pumps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "store/file_system.h"

namespace starling {

struct PipeOptions {
  Duration stall_timeout =
      seconds(300);  // without a byte in or out, the command is killed: DeadlineExceeded
};

// Starts `command` (found on the PATH when its name has no slash) and feeds it `source`. `clock`
// must outlive the reader.
//
// InvalidArgument: an empty command. NotFound, PermissionDenied: it cannot be started. Reading ends
// with FailedPrecondition when it fails (message: exit status or signal, last error line),
// DeadlineExceeded when it hangs. A command that ends well before it has read everything is fine.
StatusOr<std::unique_ptr<Reader>> pipe_command(std::unique_ptr<Reader> source,
                                               const std::vector<std::string>& command,
                                               const Clock& clock, PipeOptions options = {});

}  // namespace starling
