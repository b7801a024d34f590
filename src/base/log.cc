#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

namespace starling {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::string prefix_of(std::string_view role, std::string_view node) {
  return node.empty() ? std::string(role) : fmt::format("{}/{}", role, node);
}

std::shared_ptr<spdlog::logger> logger_of(const LogOptions& options, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("starling", std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%f %L %v");
  logger->set_level(spdlog_level(options.level));
  logger->flush_on(spdlog::level::trace);
  return logger;
}

class CallbackSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit CallbackSink(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    write_({message.payload.data(), message.payload.size()});
  }
  void flush_() override {}

  std::function<void(std::string_view)> write_;
};

bool is_plain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
  }
  return true;
}

void append_quoted(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  line += '"';
}

}  // namespace

Log::Log() : Log(LogOptions{.level = LogLevel::kOff}, [](std::string_view) {}) {}

Log::Log(const LogOptions& options, std::shared_ptr<spdlog::logger> sink)
    : sink_(std::move(sink)), role_(options.role), prefix_(prefix_of(options.role, options.node)) {}

Log::Log(const LogOptions& options, std::function<void(std::string_view)> write)
    : Log(options, logger_of(options, std::make_shared<CallbackSink>(std::move(write)))) {}

StatusOr<Log> Log::open(const LogOptions& options) {
  if (options.file.empty()) {
    return Log(options, logger_of(options, std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  }
  try {
    return Log(
        options,
        logger_of(options, std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file)));
  } catch (const spdlog::spdlog_ex& error) {
    return invalid_argument("log file {}: {}", options.file, error.what());
  }
}

Log Log::with_node(std::string_view node) const {
  Log copy = *this;
  copy.prefix_ = prefix_of(role_, node);
  return copy;
}

void Log::write(LogLevel level, std::string_view event,
                std::initializer_list<LogField> fields) const {
  if (!sink_->should_log(spdlog_level(level))) return;
  std::string line = fmt::format("{} {}", prefix_, event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key();
    line += '=';
    if (is_plain(field.value())) {
      line += field.value();
    } else {
      append_quoted(line, field.value());
    }
  }
  sink_->log(spdlog_level(level), line);
}

}  // namespace starling
