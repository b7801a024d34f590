#include "bin/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace starling {
namespace {

constexpr Duration kPlainEvery = seconds(10);

std::string time_text(double time_s) {
  const auto whole = static_cast<int64_t>(time_s);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string RunProgress::text() const {
  std::string text = fmt::format("{:>10} samples  {:>7.0f}/s", samples, samples_per_s);
  if (loss >= 0) text += fmt::format("  loss {:.4f}", loss);
  if (auc >= 0) text += fmt::format("  AUC {:.4f}", auc);
  if (part >= 0) text += fmt::format("  {:3.0f} %", 100 * part);
  if (left_s >= 0) text += fmt::format("  {} left", time_text(left_s));
  return text;
}

std::string RunProgress::json() const {
  std::string text = fmt::format(R"({{"time_s": {:.1f}, "samples": {}, "samples_per_s": {:.0f})",
                                 time_s, samples, samples_per_s);
  const auto add = [&](const char* name, double value) {
    if (value >= 0 && std::isfinite(value)) text += fmt::format(R"(, "{}": {:.6g})", name, value);
  };
  add("loss", loss);
  add("auc", auc);
  add("part", part);
  add("left_s", left_s);
  return text + "}";
}

std::optional<double> json_number(const std::string& line, const std::string& name) {
  const std::string key = fmt::format("\"{}\": ", name);
  const size_t at = line.find(key);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = line.c_str() + at + key.size();
  char* end = nullptr;
  const double number = std::strtod(begin, &end);
  return end == begin ? std::nullopt : std::optional(number);
}

std::optional<RunProgress> parse_progress(const std::string& line) {
  const std::optional<double> rate = json_number(line, "samples_per_s");
  if (!rate.has_value()) return std::nullopt;
  RunProgress out;
  out.time_s = json_number(line, "time_s").value_or(0);
  out.samples = static_cast<uint64_t>(json_number(line, "samples").value_or(0));
  out.samples_per_s = *rate;
  out.loss = json_number(line, "loss").value_or(-1);
  out.auc = json_number(line, "auc").value_or(-1);
  out.part = json_number(line, "part").value_or(-1);
  out.left_s = json_number(line, "left_s").value_or(-1);
  return out;
}

Display::Display() : is_terminal_(::isatty(STDOUT_FILENO) == 1), shown_at_(clock_.now()) {}

void Display::show(const RunProgress& progress) {
  const MutexLock lock(mutex_);
  if (is_terminal_) {
    fmt::print("\r{:<100}", progress.text());
    is_open_ = true;
  } else {
    if (clock_.now() < shown_at_ + kPlainEvery) return;
    fmt::print("{}\n", progress.text());
  }
  shown_at_ = clock_.now();
  std::fflush(stdout);
}

void Display::say(const std::string& text) {
  const MutexLock lock(mutex_);
  if (is_open_) fmt::print("\n");
  is_open_ = false;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

}  // namespace starling
