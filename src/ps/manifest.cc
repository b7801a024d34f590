#include "ps/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/ids.h"
#include "ps/checkpoint_file.h"
#include "store/block_stream.h"

namespace starling {
namespace {

constexpr const char* kPrefix = "cut-";
constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;

bool is_plain_name(const std::string& name) {
  // No store has a name with a zero byte.
  constexpr std::string_view kRefused("/\0", 2);
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(kRefused) == std::string::npos;
}

Status check_manifest(const ckpt::Manifest& manifest, const std::string& url) {
  if (manifest.format() != kManifestFormat) {
    return data_loss("{}: format {}, this program knows {}", url, manifest.format(),
                     kManifestFormat);
  }
  if (manifest.cut_id() == 0) return data_loss("{}: cut number 0", url);
  if (!ckpt::Mode_IsValid(manifest.mode()) || !v1::SaveFilter_IsValid(manifest.filter())) {
    return data_loss("{}: mode {} and filter {}, this program does not know both", url,
                     static_cast<int>(manifest.mode()), static_cast<int>(manifest.filter()));
  }
  if (manifest.mode() == ckpt::MODE_INCREMENTAL &&
      (manifest.base_cut() == 0 || manifest.base_cut() >= manifest.cut_id() ||
       !is_plain_name(manifest.base()))) {
    return data_loss("{}: increment {} on base {} in '{}'", url, manifest.cut_id(),
                     manifest.base_cut(), manifest.base());
  }
  std::set<std::string> names;
  for (const ckpt::File& file : manifest.files()) {
    if (!is_plain_name(file.name()) || !names.insert(file.name()).second ||
        file.bucket_begin() > file.bucket_end() || file.bucket_end() > kBuckets) {
      return data_loss("{}: file '{}' with buckets [{}, {})", url, file.name(), file.bucket_begin(),
                       file.bucket_end());
    }
  }
  return absl::OkStatus();
}

Status remove_if_there(FileSystem& fs, const std::string& url, Recursive recursive) {
  const Status status = fs.remove(url, recursive);
  return status.code() == StatusCode::kNotFound ? absl::OkStatus() : status;
}

Status remove_cut(FileSystem& fs, const std::string& path) {
  // Without its manifest it is no cut any more, whatever stops us between here and the end.
  STARLING_RETURN_IF_ERROR(
      remove_if_there(fs, path + "/" + std::string(kManifestName), Recursive::kNo));
  return remove_if_there(fs, path, Recursive::kYes);
}

}  // namespace

std::string directory_of(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_in_directory(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = path.rfind('/', end);
  return path.substr(slash == std::string::npos ? 0 : slash + 1,
                     end - (slash == std::string::npos ? size_t{0} : slash + 1) + 1);
}

std::string cut_name(uint64_t cut_id) { return fmt::format("{}{:012}", kPrefix, cut_id); }

uint64_t id_of_cut_name(const std::string& name) {
  const std::string prefix = kPrefix;
  if (!name.starts_with(prefix)) return 0;
  uint64_t id = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, id);
  return error == std::errc() && stop == end && cut_name(id) == name ? id : 0;
}

StatusOr<Cut> read_cut(FileSystem& fs, const std::string& path) {
  const std::string url = path + "/" + kManifestName;
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Reader> file, fs.open_read(url));
  const std::unique_ptr<Reader> blocks = read_blocks(std::move(file));
  STARLING_ASSIGN_OR_RETURN(const std::string bytes, read_all(*blocks, kManifestBytesMax));
  Cut cut;
  cut.path = path;
  if (!cut.manifest.ParseFromString(bytes)) return data_loss("{}: not a manifest", url);
  STARLING_RETURN_IF_ERROR(check_manifest(cut.manifest, url));
  STARLING_ASSIGN_OR_RETURN(const FileInfo info, fs.stat(url));
  cut.modified_ms = info.modified_ms;
  return cut;
}

Status write_manifest(FileSystem& fs, const std::string& path, const ckpt::Manifest& manifest,
                      Existing existing) {
  STARLING_RETURN_IF_ERROR(check_manifest(manifest, path + "/" + kManifestName));
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> file,
                            fs.open_write(path + "/" + kManifestName, existing));
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> blocks, write_blocks(std::move(file)));
  STARLING_RETURN_IF_ERROR(blocks->write(bytes_of(manifest.SerializeAsString())));
  return blocks->publish();
}

StatusOr<std::vector<CutEntry>> list_cuts(FileSystem& fs, const std::string& directory) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<FileInfo> infos, fs.list_directory(directory));
  std::vector<CutEntry> entries;
  for (const FileInfo& info : infos) {
    if (!info.is_directory) continue;
    CutEntry entry;
    entry.path = directory + "/" + info.name();
    entry.cut_id = id_of_cut_name(info.name());
    StatusOr<Cut> cut = read_cut(fs, entry.path);
    entry.status = cut.status();
    if (cut.ok()) {
      entry.cut = *std::move(cut);
      entry.cut_id = entry.cut.manifest.cut_id();
    }
    const StatusCode code = entry.status.code();
    const bool is_cut = entry.status.ok() || code == StatusCode::kDataLoss || entry.cut_id != 0;
    if (!is_cut) continue;
    // The store itself failing is no property of a cut.
    if (!entry.status.ok() && code != StatusCode::kNotFound && code != StatusCode::kDataLoss) {
      return entry.status;
    }
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const CutEntry& a, const CutEntry& b) { return a.cut_id < b.cut_id; });
  return entries;
}

bool is_whole(const ckpt::Manifest& manifest) {
  return manifest.names().empty() &&
         (manifest.filter() == v1::SAVE_FILTER_ALL || manifest.filter() == v1::SAVE_FILTER_DAILY);
}

StatusOr<Cut> find_cut(FileSystem& fs, const std::string& path, uint64_t cut_id) {
  StatusOr<Cut> here = read_cut(fs, path);
  if (here.ok()) {
    if (cut_id == 0 || here->manifest.cut_id() == cut_id) return here;
    return not_found("{}: is cut {}, not {}", path, here->manifest.cut_id(), cut_id);
  }
  if (here.status().code() != StatusCode::kNotFound) return here.status();
  STARLING_ASSIGN_OR_RETURN(const std::vector<CutEntry> entries, list_cuts(fs, path));
  for (size_t i = entries.size(); i-- > 0;) {
    const CutEntry& entry = entries[i];
    if (cut_id != 0 && entry.cut_id != cut_id) continue;
    if (entry.status.code() == StatusCode::kDataLoss) {
      std::string before = "no cut before it is complete";
      for (size_t j = i; j-- > 0;) {
        if (!entries[j].status.ok() || !is_whole(entries[j].cut.manifest)) continue;
        before = fmt::format("the newest before it is cut {}", entries[j].cut_id);
        break;
      }
      return data_loss("{} ({})", message_of(entry.status), before);
    }
    if (!entry.status.ok()) continue;
    if (cut_id != 0 || is_whole(entry.cut.manifest)) return entry.cut;
  }
  if (cut_id != 0) return not_found("{}: no complete cut {}", path, cut_id);
  return not_found("{}: no complete cut of a whole job", path);
}

StatusOr<std::vector<Cut>> chain_of(FileSystem& fs, const Cut& cut) {
  std::vector<Cut> chain = {cut};
  while (chain.back().manifest.mode() == ckpt::MODE_INCREMENTAL) {
    if (chain.size() >= kChainMax) {
      return data_loss("{}: a chain of more than {} cuts", cut.path, kChainMax);
    }
    const ckpt::Manifest& top = chain.back().manifest;
    const std::string path = directory_of(chain.back().path) + "/" + top.base();
    StatusOr<Cut> base = read_cut(fs, path);
    if (!base.ok() && base.status().code() == StatusCode::kNotFound) {
      return data_loss("{}: its base, cut {}, is missing", chain.back().path, top.base_cut());
    }
    STARLING_RETURN_IF_ERROR(base.status());
    if (base->manifest.cut_id() != top.base_cut()) {
      return data_loss("{}: is cut {}, cut {} builds on {}", path, base->manifest.cut_id(),
                       top.cut_id(), top.base_cut());
    }
    chain.push_back(*std::move(base));
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

StatusOr<std::vector<std::string>> verify_cut(FileSystem& fs, const Cut& cut) {
  std::vector<std::string> problems;
  for (const ckpt::File& file : cut.manifest.files()) {
    const auto check = [&]() -> Status {
      STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<CutFileReader> reader,
                                CutFileReader::open(fs, cut.path, file, cut.manifest.cut_id()));
      FileRecord record;
      do {
        STARLING_RETURN_IF_ERROR(reader->next(record));
      } while (record.kind != CutRecordKind::kEnd);
      return absl::OkStatus();
    };
    Status status = check();
    if (status.code() == StatusCode::kDataLoss) {
      problems.emplace_back(message_of(status));
    } else if (!status.ok()) {
      return status;
    }
  }
  return problems;
}

StatusOr<std::vector<uint64_t>> remove_old_cuts(FileSystem& fs, const std::string& directory,
                                                uint32_t keep, uint64_t newest) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<CutEntry> entries, list_cuts(fs, directory));
  std::set<std::string> needed;
  std::map<std::string, const CutEntry*> by_name;
  for (const CutEntry& entry : entries) by_name[name_in_directory(entry.path)] = &entry;
  uint32_t kept = 0;
  for (size_t i = entries.size(); i-- > 0;) {
    const CutEntry& entry = entries[i];
    if (!entry.status.ok()) continue;
    const bool counts = is_whole(entry.cut.manifest);
    if (keep != 0 && counts && kept >= keep) continue;
    kept += counts ? 1 : 0;
    // It and all that it builds on.
    for (const CutEntry* at = &entry; at != nullptr;) {
      needed.insert(name_in_directory(at->path));
      if (!at->status.ok() || at->cut.manifest.mode() != ckpt::MODE_INCREMENTAL) break;
      const auto base = by_name.find(at->cut.manifest.base());
      at = base == by_name.end() || needed.contains(base->first) ? nullptr : base->second;
    }
  }
  std::vector<uint64_t> removed;
  // Oldest last: an increment goes before its base, so that no complete cut ever lacks one.
  for (size_t i = entries.size(); i-- > 0;) {
    const CutEntry& entry = entries[i];
    const uint64_t named = id_of_cut_name(name_in_directory(entry.path));
    // Other names are the user's own, and a damaged manifest is for the user to look at.
    if (named == 0 || entry.status.code() == StatusCode::kDataLoss) continue;
    if (entry.status.ok()
            ? needed.contains(name_in_directory(entry.path)) || !is_whole(entry.cut.manifest)
            : named >= newest) {
      continue;
    }
    STARLING_RETURN_IF_ERROR(remove_cut(fs, entry.path));
    if (entry.status.ok()) removed.push_back(entry.cut_id);
  }
  std::reverse(removed.begin(), removed.end());
  return removed;
}

namespace {

void merge_clock(const ckpt::Clock& from, std::map<uint32_t, ckpt::Clock>& into) {
  const auto [it, is_new] = into.try_emplace(from.rank(), from);
  if (is_new) return;
  ckpt::Clock& clock = it->second;
  std::set<uint64_t> ahead(clock.ahead().begin(), clock.ahead().end());
  ahead.insert(from.ahead().begin(), from.ahead().end());
  clock.set_clock(std::max(clock.clock(), from.clock()));
  clock.set_joined(std::max(clock.joined(), from.joined()));
  if (from.has_leaves()) clock.set_leaves(std::max(clock.leaves(), from.leaves()));
  clock.clear_ahead();
  for (const uint64_t step : ahead) {
    if (step >= clock.clock()) clock.add_ahead(step);
  }
}

void merge_session(const ckpt::Session& from, std::map<uint64_t, ckpt::Session>& into) {
  const auto [it, is_new] = into.try_emplace(from.session(), from);
  if (is_new) return;
  std::map<uint64_t, ckpt::Applied> applied;
  for (const auto* session : std::initializer_list<const ckpt::Session*>{&it->second, &from}) {
    for (const ckpt::Applied& one : session->applied()) applied.try_emplace(one.number(), one);
  }
  ckpt::Session& session = it->second;
  session.set_acked_below(std::max(session.acked_below(), from.acked_below()));
  session.clear_applied();
  for (const auto& [number, one] : applied) {
    if (number >= session.acked_below()) *session.add_applied() = one;
  }
}

void merge_watermark(const v1::Watermark& from,
                     std::map<std::pair<uint32_t, uint32_t>, v1::Watermark>& into) {
  v1::Watermark& mark = into[{from.epoch(), from.item()}];
  mark.set_epoch(from.epoch());
  mark.set_item(from.item());
  mark.set_done_below(std::max(mark.done_below(), from.done_below()));
  mark.set_finished(mark.finished() || from.finished());
}

using PartName = std::tuple<uint32_t, uint32_t, uint64_t, std::string>;

PartName name_of(const ckpt::AppliedPart& part) {
  return {part.batch().epoch(), part.batch().item(), part.batch().number(), part.part()};
}

}  // namespace

StatusOr<ckpt::ShardState> merge_states(const std::vector<ckpt::ShardState>& states) {
  ckpt::ShardState out;
  std::map<uint32_t, ckpt::Clock> clocks;
  std::map<uint64_t, ckpt::Session> sessions;
  std::map<std::pair<uint32_t, uint32_t>, v1::Watermark> marks;
  std::map<PartName, ckpt::AppliedPart> parts;
  std::map<std::string, uint64_t> steps;
  std::set<uint64_t> fenced;
  for (const ckpt::ShardState& state : states) {
    const bool has_schema = state.has_schema();
    if (has_schema && out.has_schema() && out.schema_hash() != state.schema_hash()) {
      return invalid_argument("shards have schemas {:016x} and {:016x}", out.schema_hash(),
                              state.schema_hash());
    }
    if (has_schema) {
      *out.mutable_schema() = state.schema();
      out.set_schema_hash(state.schema_hash());
    }
    out.set_step(std::max(out.step(), state.step()));
    out.set_generation(std::max(out.generation(), state.generation()));
    for (const ckpt::Clock& clock : state.clocks()) merge_clock(clock, clocks);
    for (const ckpt::Session& session : state.sessions()) merge_session(session, sessions);
    for (const v1::Watermark& mark : state.watermarks()) merge_watermark(mark, marks);
    for (const ckpt::AppliedPart& part : state.parts()) parts.try_emplace(name_of(part), part);
    for (const ckpt::TableStep& step : state.table_steps()) {
      steps[step.table()] = std::max(steps[step.table()], step.step());
    }
    fenced.insert(state.fenced().begin(), state.fenced().end());
  }
  for (const auto& [rank, clock] : clocks) *out.add_clocks() = clock;
  for (const auto& [id, mark] : marks) *out.add_watermarks() = mark;
  for (const auto& [id, part] : parts) {
    const auto mark = marks.find({part.batch().epoch(), part.batch().item()});
    const bool is_over = mark != marks.end() && (mark->second.finished() ||
                                                 part.batch().number() < mark->second.done_below());
    if (!is_over) *out.add_parts() = part;
  }
  for (const auto& [id, session] : sessions) *out.add_sessions() = session;
  for (const uint64_t session : fenced) out.add_fenced(session);
  for (const auto& [table, step] : steps) {
    ckpt::TableStep* one = out.add_table_steps();
    one->set_table(table);
    one->set_step(step);
  }
  return out;
}

}  // namespace starling
