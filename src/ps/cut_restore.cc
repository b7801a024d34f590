#include "ps/cut_restore.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/queue.h"
#include "base/thread.h"
#include "ps/checkpoint_file.h"

namespace starling {
namespace {

using DenseParts = std::map<uint64_t, DensePart>;  // by first element

// Why the rows of a table with `saved` options cannot be a table with `ours`; empty: they can.
// Rates, schedules, limits and thresholds may differ.
StatusOr<std::string> misfit(const v1::TableOptions& saved, const v1::TableOptions& ours) {
  STARLING_ASSIGN_OR_RETURN(const TableOptions before, table_options(saved, 0));
  STARLING_ASSIGN_OR_RETURN(const TableOptions now, table_options(ours, 0));
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Table> old_table, Table::make(before));
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Table> new_table, Table::make(now));
  const auto differs = [](const char* what, const auto& a, const auto& b) {
    return fmt::format("{} was {}, is {}", what, a, b);
  };
  if (before.dim != now.dim) return differs("dim", before.dim, now.dim);
  if (before.storage != now.storage) return differs("storage", before.storage, now.storage);
  if (before.optimizer.rule != now.optimizer.rule) {
    return differs("optimizer", before.optimizer.rule, now.optimizer.rule);
  }
  const std::string rest_before = before.rest_optimizer ? before.rest_optimizer->rule : "none";
  const std::string rest_now = now.rest_optimizer ? now.rest_optimizer->rule : "none";
  if (rest_before != rest_now) return differs("rest optimizer", rest_before, rest_now);
  if (before.placement.low != now.placement.low || before.placement.high != now.placement.high) {
    return differs("range", fmt::format("[{}, {})", before.placement.low, before.placement.high),
                   fmt::format("[{}, {})", now.placement.low, now.placement.high));
  }
  if (before.admission.kind != now.admission.kind) {
    return differs("admission", before.admission.kind, now.admission.kind);
  }
  if (now.admission.kind == "bloom" &&
      (before.admission.expected_keys != now.admission.expected_keys ||
       before.admission.false_positive_rate != now.admission.false_positive_rate)) {
    return std::string("the size of its Bloom filter differs");
  }
  const RowLayout& a = old_table->layout();
  const RowLayout& b = new_table->layout();
  if (a.state_floats != b.state_floats) {
    return differs("state floats", a.state_floats, b.state_floats);
  }
  if ((a.click != 0) != (b.click != 0) || (a.last_step != 0) != (b.last_step != 0) ||
      (a.touches != 0) != (b.touches != 0) || (a.second != 0) != (b.second != 0)) {
    return std::string("the statistics that its rows keep differ");
  }
  return std::string();
}

StatusOr<std::string> misfit(const v1::DenseOptions& saved, const v1::DenseOptions& ours) {
  STARLING_ASSIGN_OR_RETURN(const DenseOptions before, dense_options(saved, 0));
  STARLING_ASSIGN_OR_RETURN(const DenseOptions now, dense_options(ours, 0));
  if (before.shape != now.shape) {
    return fmt::format("shape was [{}], is [{}]", fmt::join(before.shape, ", "),
                       fmt::join(now.shape, ", "));
  }
  if (before.optimizer.rule != now.optimizer.rule) {
    return fmt::format("optimizer was {}, is {}", before.optimizer.rule, now.optimizer.rule);
  }
  return std::string();
}

template <typename Options>
std::map<std::string, Options> by_name(const google::protobuf::RepeatedPtrField<Options>& list) {
  std::map<std::string, Options> out;
  for (const Options& one : list) out.emplace(one.name(), one);
  return out;
}

// Which of the names in the cut and in the job are restored, and why others are not.
struct Selection {
  std::set<std::string> tables;
  std::set<std::string> variables;
  std::vector<std::string> left_out;
};

template <typename Options>
Status select(const std::map<std::string, Options>& saved,
              const std::map<std::string, Options>& ours, const std::set<std::string>& wanted,
              std::set<std::string>& out, std::vector<std::string>& left_out) {
  for (const auto& [name, options] : saved) {
    if (!wanted.empty() && !wanted.contains(name)) continue;
    const auto mine = ours.find(name);
    if (mine == ours.end()) {
      left_out.push_back(name + ": the job has none");
      continue;
    }
    STARLING_ASSIGN_OR_RETURN(const std::string why, misfit(options, mine->second));
    if (why.empty()) {
      out.insert(name);
    } else {
      left_out.push_back(fmt::format("{}: {}", name, why));
    }
  }
  for (const auto& [name, options] : ours) {
    if (!wanted.empty() && !wanted.contains(name)) continue;
    if (!saved.contains(name)) left_out.push_back(name + ": the cut has none");
  }
  return absl::OkStatus();
}

StatusOr<Selection> select(const Cut& cut, const v1::RestoreOption& option,
                           const ShardSchema& schema) {
  const std::set<std::string> wanted(option.names().begin(), option.names().end());
  auto tables = by_name(cut.manifest.state().schema().tables());
  auto variables = by_name(cut.manifest.state().schema().variables());
  const std::set<std::string> taken(cut.manifest.names().begin(), cut.manifest.names().end());
  const auto not_taken = [&](const auto& entry) {
    return !taken.empty() && !taken.contains(entry.first);
  };
  std::erase_if(tables, not_taken);
  std::erase_if(variables, not_taken);
  for (const std::string& name : wanted) {
    if (!tables.contains(name) && !variables.contains(name)) {
      return not_found("cut {}: no table or variable named {}", cut.manifest.cut_id(), name);
    }
  }
  Selection selection;
  STARLING_RETURN_IF_ERROR(
      select(tables, schema.tables(), wanted, selection.tables, selection.left_out));
  STARLING_RETURN_IF_ERROR(
      select(variables, schema.variables(), wanted, selection.variables, selection.left_out));
  if (!selection.left_out.empty() && !option.partial()) {
    return failed_precondition("cut {} does not fit the job: {}", cut.manifest.cut_id(),
                               fmt::join(selection.left_out, "; "));
  }
  return selection;
}

bool owns_any(const std::vector<uint8_t>& owns, const ckpt::File& file) {
  return std::any_of(owns.begin() + file.bucket_begin(), owns.begin() + file.bucket_end(),
                     [](uint8_t mine) { return mine != 0; });
}

Status apply_record(const FileRecord& record, bool is_base, Table& table,
                    const std::vector<uint8_t>& owns) {
  if (record.kind == CutRecordKind::kDeleted) {
    std::vector<Key> keys(record.bytes.size() / sizeof(Key));
    std::memcpy(keys.data(), record.bytes.data(), keys.size() * sizeof(Key));
    return table.erase(keys).status();
  }
  if (record.kind != CutRecordKind::kBucket && record.kind != CutRecordKind::kChanges) {
    return data_loss("a record of kind {} among rows", static_cast<uint32_t>(record.kind));
  }
  if (record.number >= kBuckets) return data_loss("bucket {}", record.number);
  if (owns[record.number] == 0) return absl::OkStatus();
  const auto bucket = static_cast<BucketId>(record.number);
  if (record.kind == CutRecordKind::kBucket && !is_base) table.drop_bucket(bucket);
  return table.import_bucket(record.bytes);
}

// Reads the records of files one after the other on a thread of its own, a few ahead of who takes
// them, so that checking bytes and filling tables go side by side.
class RecordStream {
 public:
  struct Source {
    const Cut* cut = nullptr;
    const ckpt::File* file = nullptr;
    bool is_base = false;  // of the chain's first cut
  };
  struct Item {
    const Source* source = nullptr;  // null: all files have been read
    FileRecord record;               // kEnd after the last of a file
    uint64_t bytes_read = 0;         // of a file, at its end
  };

  RecordStream(FileSystem& fs, std::vector<Source> sources)
      : fs_(fs),
        sources_(std::move(sources)),
        thread_({.name = "cut-decoder"}, [this] { run(); }) {}
  ~RecordStream() {
    items_.close();
    thread_.join();
  }
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  // Waits for as long as the store does, which has its own deadlines.
  StatusOr<Item> next() {
    STARLING_ASSIGN_OR_RETURN(StatusOr<Item> item, items_.pop(Deadline::never()));
    return item;
  }
  // Its memory is used for another record.
  void recycle(std::vector<std::byte> bytes) { (void)spent_.try_push(std::move(bytes)); }

 private:
  static constexpr size_t kAhead = 4;  // records

  void run() {
    for (const Source& source : sources_) {
      if (const Status status = read(source); !status.ok()) {
        (void)items_.push(StatusOr<Item>(status), Deadline::never());
        return;
      }
    }
    (void)items_.push(StatusOr<Item>(Item{}), Deadline::never());
  }
  // Cancelled: nobody takes them any more.
  Status read(const Source& source) {
    STARLING_ASSIGN_OR_RETURN(
        const std::unique_ptr<CutFileReader> reader,
        CutFileReader::open(fs_, source.cut->path, *source.file, source.cut->manifest.cut_id()));
    while (true) {
      Item item{.source = &source};
      if (StatusOr<std::vector<std::byte>> spent = spent_.try_pop(); spent.ok()) {
        item.record.bytes = *std::move(spent);
      }
      STARLING_RETURN_IF_ERROR(reader->next(item.record));
      const bool is_end = item.record.kind == CutRecordKind::kEnd;
      if (is_end) item.bytes_read = reader->bytes_read();
      STARLING_RETURN_IF_ERROR(items_.push(StatusOr<Item>(std::move(item)), Deadline::never()));
      if (is_end) return absl::OkStatus();
    }
  }

  FileSystem& fs_;
  const std::vector<Source> sources_;
  Queue<StatusOr<Item>> items_{kAhead};
  Queue<std::vector<std::byte>> spent_{2 * kAhead};
  Thread thread_;
};

// Makes memory for a table's rows present on a thread of its own, while others are filled: a first
// use of memory may take a virtual machine a millisecond per megabyte.
class RowMemory {
 public:
  RowMemory(size_t chunk_bytes, uint64_t chunks)
      : thread_({.name = "cut-memory"}, [this, chunk_bytes, chunks] {
          for (uint64_t i = 0; i < chunks; ++i) {
            Pages chunk = Pages::map(chunk_bytes);
            if (chunk.data() == nullptr) return;
            chunk.ensure(chunk_bytes);
            if (!made_.push(std::move(chunk), Deadline::never()).ok()) return;
          }
        }) {}
  ~RowMemory() {
    made_.close();
    thread_.join();
  }
  RowMemory(const RowMemory&) = delete;
  RowMemory& operator=(const RowMemory&) = delete;

  // Where the table lacks it and it is there; what is missing the table makes by itself.
  void hand_to(Table& table) {
    if (table.is_stocked()) return;
    if (StatusOr<Pages> chunk = made_.try_pop(); chunk.ok()) table.stock_rows(*std::move(chunk));
  }

 private:
  static constexpr size_t kAhead = 4;
  Queue<Pages> made_{kAhead};
  Thread thread_;
};

// How many rows of a file are of buckets that are owned, if all have as many.
uint64_t rows_owned(const std::vector<uint8_t>& owns, const ckpt::File& file) {
  const auto begin = owns.begin() + file.bucket_begin();
  const auto end = owns.begin() + file.bucket_end();
  const auto mine =
      static_cast<uint64_t>(std::count_if(begin, end, [](uint8_t is) { return is != 0; }));
  return file.rows() * mine / std::max<uint64_t>(file.bucket_end() - file.bucket_begin(), 1);
}

// The floats of `from` that lie in [begin, end), where both count elements of the variable.
void copy_overlap(const DensePart& from, uint64_t begin, uint64_t end, size_t vectors,
                  DensePart& to) {
  const uint64_t first = std::max(begin, from.begin);
  const uint64_t last = std::min(end, from.end);
  if (first >= last) return;
  const auto copy = [&](const float* source, float* target) {
    std::copy_n(source + (first - from.begin), last - first, target + (first - begin));
  };
  copy(from.weights.data(), to.weights.data());
  for (size_t k = 0; k < vectors; ++k) {
    copy(from.state.data() + k * (from.end - from.begin), to.state.data() + k * (end - begin));
  }
}

// Elements [begin, end) of a variable out of parts that may be cut elsewhere.
StatusOr<DensePart> resplit(const DenseParts& parts, uint64_t begin, uint64_t end,
                            const RuleSettings& rule, const std::string& name) {
  const size_t vectors = rule.ops->vectors;
  const size_t scalars = rule.ops->scalars;
  DensePart out{.variable = name, .begin = begin, .end = end};
  out.weights.resize(end - begin);
  out.state.resize(rule.ops->state_floats(end - begin));
  uint64_t covered = begin;
  bool is_first = true;
  for (const auto& [first, part] : parts) {
    if (part.end <= begin || part.begin >= end) continue;
    if (part.state.size() != rule.ops->state_floats(part.end - part.begin)) {
      return data_loss("{}: elements [{}, {}) have {} floats of state, the rule keeps {}", name,
                       part.begin, part.end, part.state.size(),
                       rule.ops->state_floats(part.end - part.begin));
    }
    if (part.begin > covered) break;
    copy_overlap(part, begin, end, vectors, out);
    const float* theirs = part.state.data() + vectors * (part.end - part.begin);
    float* ours = out.state.data() + vectors * (end - begin);
    if (!is_first && !std::equal(theirs, theirs + scalars, ours)) {
      return failed_precondition(
          "{}: its parts have made different numbers of steps and cannot be cut anew", name);
    }
    std::copy_n(theirs, scalars, ours);
    out.version = std::max(out.version, part.version);
    out.updates = std::max(out.updates, part.updates);
    covered = std::max(covered, part.end);
    is_first = false;
  }
  if (covered < end) {
    return data_loss("{}: elements [{}, {}) are missing", name, covered, end);
  }
  return out;
}

StatusOr<std::unique_ptr<DenseVariable>> restore_variable(const v1::DenseOptions& proto,
                                                          const DenseParts& parts,
                                                          const RestoreTarget& target) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<DenseVariable> variable,
                            DenseVariable::make(proto, target.schema.seed(), [&](uint32_t bucket) {
                              return target.owns[bucket] != 0;
                            }));
  STARLING_ASSIGN_OR_RETURN(const DenseOptions options, dense_options(proto, target.schema.seed()));
  STARLING_ASSIGN_OR_RETURN(const RuleSettings rule,
                            make_rule(options.optimizer, RuleUse::kDense, proto.name()));
  uint64_t version = variable->version();
  uint64_t updates = 0;
  for (auto& [part, table] : variable->parts()) {
    STARLING_ASSIGN_OR_RETURN(
        const DensePart values,
        resplit(parts, table->begin(), table->begin() + table->size(), rule, proto.name()));
    STARLING_RETURN_IF_ERROR(table->restore(values.weights, values.state));
    version = std::max(version, values.version);
    updates = std::max(updates, values.updates);
  }
  variable->set_version(version);
  variable->set_updates(updates);
  return variable;
}

}  // namespace

StatusOr<TableRead> read_table(FileSystem& fs, const std::vector<Cut>& chain, Table& table,
                               const std::vector<uint8_t>& owns,
                               const std::function<Status()>& interrupted) {
  std::vector<RecordStream::Source> sources;
  for (size_t i = 0; i < chain.size(); ++i) {
    for (const ckpt::File& file : chain[i].manifest.files()) {
      if (file.kind() != ckpt::FILE_KIND_ROWS || file.table() != table.options().name) continue;
      if (owns_any(owns, file)) sources.push_back({&chain[i], &file, i == 0});
    }
  }
  uint64_t rows = 0;
  for (const RecordStream::Source& source : sources) {
    if (source.is_base) rows += rows_owned(owns, *source.file);
  }
  // The last chunk is the table's own: it makes present what it uses.
  RowMemory memory(table.row_chunk_bytes(), rows * table.layout().stride / table.row_chunk_bytes());
  TableRead read;
  RecordStream stream(fs, std::move(sources));
  while (true) {
    memory.hand_to(table);
    if (interrupted) STARLING_RETURN_IF_ERROR(interrupted());
    STARLING_ASSIGN_OR_RETURN(RecordStream::Item item, stream.next());
    if (item.source == nullptr) return read;
    const FileRecord& record = item.record;
    if (record.kind == CutRecordKind::kEnd) {
      read.bytes += item.bytes_read;
      continue;
    }
    STARLING_RETURN_IF_ERROR(
        with_context(apply_record(record, item.source->is_base, table, owns),
                     item.source->cut->path + "/" + item.source->file->name()));
    if (record.kind != CutRecordKind::kDeleted && owns[record.number] != 0) {
      read.rows += image_rows(record.bytes);
    }
    stream.recycle(std::move(item.record.bytes));
  }
}

StatusOr<std::map<std::string, DenseParts>> read_dense(FileSystem& fs, const Cut& cut) {
  std::map<std::string, DenseParts> out;
  for (const ckpt::File& file : cut.manifest.files()) {
    if (file.kind() != ckpt::FILE_KIND_DENSE) continue;
    STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<CutFileReader> reader,
                              CutFileReader::open(fs, cut.path, file, cut.manifest.cut_id()));
    for (FileRecord record;;) {
      STARLING_RETURN_IF_ERROR(reader->next(record));
      if (record.kind == CutRecordKind::kEnd) break;
      StatusOr<DensePart> part = record.kind == CutRecordKind::kPart
                                     ? DensePart::decode(record.bytes)
                                     : StatusOr<DensePart>(data_loss("not a part of a variable"));
      if (!part.ok()) return with_context(part.status(), cut.path + "/" + file.name());
      std::string variable = part->variable;
      const uint64_t begin = part->begin;
      out[std::move(variable)].insert_or_assign(begin, *std::move(part));
    }
  }
  return out;
}

StatusOr<RestoredShard> restore_shard(FileSystem& fs, const v1::RestoreOption& option,
                                      const RestoreTarget& target) {
  STARLING_ASSIGN_OR_RETURN(const Cut cut, find_cut(fs, option.path(), option.cut_id()));
  STARLING_ASSIGN_OR_RETURN(const std::vector<Cut> chain, chain_of(fs, cut));
  STARLING_ASSIGN_OR_RETURN(const Selection selection, select(cut, option, target.schema));
  RestoredShard out;
  out.cut_id = cut.manifest.cut_id();
  out.left_out = selection.left_out;
  for (const std::string& name : selection.tables) {
    STARLING_ASSIGN_OR_RETURN(const TableOptions options,
                              table_options(target.schema.tables().at(name), target.schema.seed()));
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Table> table, Table::make(options));
    STARLING_ASSIGN_OR_RETURN(const TableRead read,
                              read_table(fs, chain, *table, target.owns, target.interrupted));
    // What publishing the cut changed in rows belongs to the cut.
    if (cut.manifest.filter() == v1::SAVE_FILTER_DAILY) table->finish_save(SaveFilter::kDaily);
    out.rows += table->rows();
    out.bytes += read.bytes;
    out.tables.emplace(name, std::move(table));
  }
  if (!selection.variables.empty()) {
    STARLING_ASSIGN_OR_RETURN(const auto dense, read_dense(fs, cut));
    for (const std::string& name : selection.variables) {
      const auto parts = dense.find(name);
      if (parts == dense.end()) return data_loss("{}: variable {} is missing", cut.path, name);
      STARLING_ASSIGN_OR_RETURN(
          out.variables[name],
          restore_variable(target.schema.variables().at(name), parts->second, target));
    }
  }
  if (option.names().empty() && cut.manifest.names().empty()) out.state = cut.manifest.state();
  return out;
}

}  // namespace starling
