#include "ps/checkpoint_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "ps/checkpoint_file.h"
#include "ps/cut_restore.h"

namespace starling {
namespace {

constexpr size_t kGatherBytes = 1 << 20;
constexpr size_t kNumpyAlignment = 64;

// Gathers small writes.
class Output {
 public:
  static StatusOr<std::unique_ptr<Output>> open(FileSystem& fs, const std::string& url) {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> writer, fs.open_write(url));
    return std::make_unique<Output>(std::move(writer));
  }
  explicit Output(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}

  fmt::memory_buffer& text() { return text_; }
  Status flush_if_full() { return text_.size() < kGatherBytes ? absl::OkStatus() : flush(); }
  Status publish() {
    STARLING_RETURN_IF_ERROR(flush());
    return writer_->publish();
  }
  const std::string& url() const { return writer_->url(); }

 private:
  Status flush() {
    Status status = writer_->write(bytes_of({text_.data(), text_.size()}));
    text_.clear();
    return status;
  }

  const std::unique_ptr<Writer> writer_;
  fmt::memory_buffer text_;
};

// The head of a .npy file, format version 1.0.
std::string numpy_head(const char* type, const std::string& shape) {
  std::string head =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  constexpr size_t kFixed = 10;  // magic, version, length
  head.append(kNumpyAlignment - (kFixed + head.size() + 1) % kNumpyAlignment, ' ');
  head += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(head.size() & 0xff);
  out += static_cast<char>(head.size() >> 8);
  return out + head;
}

// The files of one table or variable.
class Sink {
 public:
  static StatusOr<std::unique_ptr<Sink>> open(FileSystem& fs, const std::string& prefix,
                                              ExportFormat format, uint64_t rows, size_t dim) {
    auto sink = std::make_unique<Sink>();
    sink->format_ = format;
    const auto add = [&](const char* suffix) -> Status {
      STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Output> output, Output::open(fs, prefix + suffix));
      sink->outputs_.push_back(std::move(output));
      return absl::OkStatus();
    };
    if (format == ExportFormat::kNumpy) {
      STARLING_RETURN_IF_ERROR(add(".keys.npy"));
      STARLING_RETURN_IF_ERROR(add(".weights.npy"));
      sink->outputs_[0]->text().append(numpy_head("<u8", fmt::format("({},)", rows)));
      sink->outputs_[1]->text().append(numpy_head("<f4", fmt::format("({}, {})", rows, dim)));
      return sink;
    }
    STARLING_RETURN_IF_ERROR(add(format == ExportFormat::kCsv ? ".csv" : ".txt"));
    if (format == ExportFormat::kCsv) {
      auto out = std::back_inserter(sink->outputs_[0]->text());
      fmt::format_to(out, "key");
      for (size_t i = 0; i < dim; ++i) fmt::format_to(out, ",w{}", i);
      fmt::format_to(out, "\n");
    }
    return sink;
  }

  Status row(uint64_t key, std::span<const float> weights) {
    ++rows_;
    if (format_ == ExportFormat::kNumpy) {
      const auto* bytes = reinterpret_cast<const char*>(&key);
      outputs_[0]->text().append(bytes, bytes + sizeof key);
      const auto* floats = reinterpret_cast<const char*>(weights.data());
      outputs_[1]->text().append(floats, floats + weights.size_bytes());
      STARLING_RETURN_IF_ERROR(outputs_[1]->flush_if_full());
      return outputs_[0]->flush_if_full();
    }
    const char separator = format_ == ExportFormat::kCsv ? ',' : ' ';
    auto out = std::back_inserter(outputs_[0]->text());
    fmt::format_to(out, "{}", key);
    for (const float weight : weights) fmt::format_to(out, "{}{}", separator, weight);
    fmt::format_to(out, "\n");
    return outputs_[0]->flush_if_full();
  }

  StatusOr<Exported> publish(const std::string& name) {
    Exported out{.name = name, .rows = rows_};
    for (const auto& output : outputs_) {
      STARLING_RETURN_IF_ERROR(output->publish());
      out.files.push_back(output->url());
    }
    return out;
  }

 private:
  ExportFormat format_ = ExportFormat::kText;
  std::vector<std::unique_ptr<Output>> outputs_;
  uint64_t rows_ = 0;
};

// Calls visit(table) for tables that hold one range of buckets after the other.
Status by_range(FileSystem& fs, const std::vector<Cut>& chain, const TableOptions& options,
                uint64_t range_bytes, const std::function<Status(Table&)>& visit) {
  uint64_t bytes = 0;
  for (const Cut& cut : chain) {
    for (const ckpt::File& file : cut.manifest.files()) {
      if (file.table() == options.name) bytes += file.bytes();
    }
  }
  const uint64_t ranges =
      std::min<uint64_t>(bytes / std::max<uint64_t>(range_bytes, 1) + 1, kBuckets);
  const auto step = static_cast<uint32_t>((kBuckets + ranges - 1) / ranges);
  for (uint32_t first = 0; first < kBuckets; first += step) {
    std::vector<uint8_t> owns(kBuckets);
    std::fill(owns.begin() + first, owns.begin() + std::min(first + step, kBuckets), 1);
    STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Table> table, Table::make(options));
    STARLING_RETURN_IF_ERROR(read_table(fs, chain, *table, owns).status());
    STARLING_RETURN_IF_ERROR(visit(*table));
  }
  return absl::OkStatus();
}

StatusOr<uint64_t> rows_of(FileSystem& fs, const std::vector<Cut>& chain,
                           const TableOptions& options, uint64_t range_bytes) {
  uint64_t rows = 0;
  if (chain.size() == 1) {
    for (const ckpt::File& file : chain[0].manifest.files()) {
      if (file.table() == options.name) rows += file.rows();
    }
    return rows;
  }
  STARLING_RETURN_IF_ERROR(by_range(fs, chain, options, range_bytes, [&](Table& table) {
    rows += table.rows();
    return absl::OkStatus();
  }));
  return rows;
}

Status write_rows(Table& table, Sink& sink) {
  std::vector<float> weights;
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    const std::vector<Key> keys = table.keys_in(static_cast<BucketId>(bucket));
    weights.resize(keys.size() * table.dim());
    STARLING_RETURN_IF_ERROR(table.gather(keys, nullptr, weights));
    for (size_t i = 0; i < keys.size(); ++i) {
      STARLING_RETURN_IF_ERROR(
          sink.row(value(keys[i]), std::span(weights).subspan(i * table.dim(), table.dim())));
    }
  }
  return absl::OkStatus();
}

struct Wanted {
  std::vector<v1::TableOptions> tables;
  std::vector<v1::DenseOptions> variables;
};

StatusOr<Wanted> wanted_of(const Cut& cut, const std::vector<std::string>& names) {
  const v1::CreateOption& schema = cut.manifest.state().schema();
  const auto is_wanted = [&](const std::string& name) {
    const auto& taken = cut.manifest.names();
    if (!taken.empty() && std::find(taken.begin(), taken.end(), name) == taken.end()) return false;
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  Wanted wanted;
  std::vector<std::string> found;
  for (const v1::TableOptions& table : schema.tables()) {
    if (!is_wanted(table.name())) continue;
    wanted.tables.push_back(table);
    found.push_back(table.name());
  }
  for (const v1::DenseOptions& variable : schema.variables()) {
    if (!is_wanted(variable.name())) continue;
    wanted.variables.push_back(variable);
    found.push_back(variable.name());
  }
  for (const std::string& name : names) {
    if (std::find(found.begin(), found.end(), name) == found.end()) {
      return not_found("cut {}: no table or variable named {}", cut.manifest.cut_id(), name);
    }
  }
  return wanted;
}

}  // namespace

StatusOr<ExportFormat> export_format(const std::string& name) {
  if (name == "text") return ExportFormat::kText;
  if (name == "csv") return ExportFormat::kCsv;
  if (name == "npy") return ExportFormat::kNumpy;
  return invalid_argument("format '{}': text, csv and npy are there", name);
}

StatusOr<std::vector<Exported>> export_cut(FileSystem& fs, const Cut& cut,
                                           const std::vector<std::string>& names,
                                           ExportFormat format, const std::string& directory,
                                           uint64_t range_bytes) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<Cut> chain, chain_of(fs, cut));
  STARLING_ASSIGN_OR_RETURN(const Wanted wanted, wanted_of(cut, names));
  std::vector<Exported> out;
  for (const v1::TableOptions& proto : wanted.tables) {
    STARLING_ASSIGN_OR_RETURN(const TableOptions options,
                              table_options(proto, cut.manifest.state().schema().seed()));
    STARLING_ASSIGN_OR_RETURN(const uint64_t rows, rows_of(fs, chain, options, range_bytes));
    STARLING_ASSIGN_OR_RETURN(
        const std::unique_ptr<Sink> sink,
        Sink::open(fs, directory + "/" + options.name, format, rows, options.dim));
    STARLING_RETURN_IF_ERROR(by_range(fs, chain, options, range_bytes,
                                      [&sink](Table& table) { return write_rows(table, *sink); }));
    STARLING_ASSIGN_OR_RETURN(Exported one, sink->publish(options.name));
    if (one.rows != rows) {
      return data_loss("{}: table {} has {} rows, its files say {}", cut.path, options.name,
                       one.rows, rows);
    }
    out.push_back(std::move(one));
  }
  if (wanted.variables.empty()) return out;
  STARLING_ASSIGN_OR_RETURN(const auto dense, read_dense(fs, cut));
  for (const v1::DenseOptions& proto : wanted.variables) {
    const auto parts = dense.find(proto.name());
    if (parts == dense.end()) {
      return data_loss("{}: variable {} is missing", cut.path, proto.name());
    }
    uint64_t rows = 0;
    for (const auto& [begin, part] : parts->second) rows += part.weights.size();
    STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                              Sink::open(fs, directory + "/" + proto.name(), format, rows, 1));
    for (const auto& [begin, part] : parts->second) {
      for (size_t i = 0; i < part.weights.size(); ++i) {
        STARLING_RETURN_IF_ERROR(sink->row(begin + i, std::span(part.weights).subspan(i, 1)));
      }
    }
    STARLING_ASSIGN_OR_RETURN(Exported one, sink->publish(proto.name()));
    out.push_back(std::move(one));
  }
  return out;
}

StatusOr<std::map<std::string, std::vector<float>>> dense_values(FileSystem& fs, const Cut& cut) {
  STARLING_ASSIGN_OR_RETURN(const auto dense, read_dense(fs, cut));
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, parts] : dense) {
    std::vector<float>& values = out[name];
    for (const auto& [begin, part] : parts) {
      if (begin != values.size()) {
        return data_loss("{}: variable {} has no element {}", cut.path, name, values.size());
      }
      values.insert(values.end(), part.weights.begin(), part.weights.end());
    }
  }
  return out;
}

}  // namespace starling
