// Log writes structured lines that carry the role and node they come from: `… I ps/3 peer_gone
// peer=10.0.0.7:9000`.
//
// Uses: spdlog. Threads: any; copies share the sink.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spdlog {
class logger;
}

namespace starling {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// One `key=value` of a line. Values with spaces, quotes or control characters are quoted and
// escaped.
class LogField {
 public:
  template <typename T>
  LogField(std::string_view key, const T& value) : key_(key), value_(fmt::format("{}", value)) {}
  std::string_view key() const { return key_; }
  const std::string& value() const { return value_; }

 private:
  std::string_view key_;
  std::string value_;
};

struct LogOptions {
  std::string role = "starling";  // "ps", "hub", ...
  std::string node;               // the node's number or name; empty until it has one
  LogLevel level = LogLevel::kInfo;
  std::string file;  // appended to; standard error when empty
};

class Log {
 public:
  // A log that drops everything.
  Log();
  // InvalidArgument when the file cannot be opened for appending.
  static StatusOr<Log> open(const LogOptions& options);
  // Lines go to `write` instead of a file, one call per line, from the thread that logs.
  Log(const LogOptions& options, std::function<void(std::string_view)> write);

  // The same sink under the node number that the scheduler gave.
  Log with_node(std::string_view node) const;

  void debug(std::string_view event, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kDebug, event, fields);
  }
  void info(std::string_view event, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kInfo, event, fields);
  }
  void warning(std::string_view event, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kWarning, event, fields);
  }
  void error(std::string_view event, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kError, event, fields);
  }

 private:
  Log(const LogOptions& options, std::shared_ptr<spdlog::logger> sink);
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) const;

  std::shared_ptr<spdlog::logger> sink_;
  std::string role_;
  std::string prefix_;
};

}  // namespace starling
