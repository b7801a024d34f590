#include "trainer/dump.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace starling {
namespace {

std::string list_of(std::span<const float> values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Dump::Dump(std::string path, std::FILE* file, std::vector<std::string> names,
           const ModelShape& shape)
    : path_(std::move(path)), names_(std::move(names)), shape_(shape), file_(file) {}

StatusOr<std::unique_ptr<Dump>> Dump::open(const std::string& path, std::vector<std::string> names,
                                           const ModelShape& shape,
                                           const std::vector<ModelVariable>& variables) {
  for (const std::string& name : names) {
    const auto is_named = [&](const auto& one) { return one.name == name; };
    if (std::any_of(shape.fields.begin(), shape.fields.end(), is_named)) continue;
    if (std::any_of(variables.begin(), variables.end(), is_named)) continue;
    return invalid_argument("train.dump_fields: '{}' is neither a field nor a variable", name);
  }
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return unavailable("train.dump: {}: {}", path, std::strerror(errno));
  return std::unique_ptr<Dump>(new Dump(path, file, std::move(names), shape));
}

Dump::~Dump() { close().IgnoreError(); }

bool Dump::wants(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void Dump::write(const std::string& line) {
  if (file_ == nullptr) return;
  has_failed_ |= std::fwrite(line.data(), 1, line.size(), file_) != line.size();
}

void Dump::variables(const std::vector<ModelVariable>& variables,
                     const std::vector<std::span<float>>& values) {
  const MutexLock lock(mutex_);
  if (std::exchange(has_variables_, true)) return;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!wants(variables[i].name)) continue;
    write(fmt::format("{{\"variable\": {}, \"shape\": [{}], \"values\": {}}}\n",
                      quoted(variables[i].name), fmt::join(variables[i].shape, ", "),
                      list_of(values[i])));
  }
}

std::string Dump::vector_of(size_t field, const ModelInput& input, uint32_t sample) const {
  size_t column = 0, sequence = 0;
  for (size_t i = 0; i < field; ++i) {
    (shape_.fields[i].is_sequence ? sequence : column) +=
        shape_.fields[i].is_sequence ? 1 : shape_.fields[i].dim;
  }
  const size_t dim = shape_.fields[field].dim;
  if (!shape_.fields[field].is_sequence) {
    return list_of(input.pooled.subspan(sample * shape_.width() + column, dim));
  }
  const ModelSequence& from = input.sequences[sequence];
  size_t before = 0;
  for (uint32_t i = 0; i < sample; ++i) before += from.lengths[i];
  return list_of(from.values.subspan(before * dim, from.lengths[sample] * dim));
}

void Dump::batch(const StepBatch& batch, const ModelInput& input,
                 std::span<const float> predictions, double loss) {
  std::string lines;
  for (uint32_t i = 0; i < input.samples; ++i) {
    const std::string id = batch.ids.empty() ? fmt::format("{}", i) : batch.ids[i];
    lines += fmt::format(
        "{{\"id\": {}, \"batch\": \"{}/{}/{}\", \"step\": {}, \"loss\": {}, \"labels\": {}, "
        "\"predictions\": {}, \"fields\": {{",
        quoted(id), batch.id.epoch(), batch.id.item(), batch.id.number(), batch.step, loss,
        list_of(input.labels.subspan(i * shape_.labels, shape_.labels)),
        list_of(predictions.subspan(i * shape_.labels, shape_.labels)));
    const char* comma = "";
    for (size_t f = 0; f < shape_.fields.size(); ++f) {
      if (!wants(shape_.fields[f].name)) continue;
      lines +=
          fmt::format("{}{}: {}", comma, quoted(shape_.fields[f].name), vector_of(f, input, i));
      comma = ", ";
    }
    lines += "}}\n";
  }
  const MutexLock lock(mutex_);
  write(lines);
}

Status Dump::close() {
  const MutexLock lock(mutex_);
  if (file_ == nullptr) return absl::OkStatus();
  has_failed_ |= std::fclose(std::exchange(file_, nullptr)) != 0;
  return has_failed_ ? unavailable("train.dump: {}: not all was written", path_) : absl::OkStatus();
}

}  // namespace starling
