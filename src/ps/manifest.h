// Cuts in a store: their manifests, which are complete, what a chain is made of, and which may go.
//
// A cut exists when its manifest is in place; nothing points to it, the newest is found by listing.
// Uses: base, store. Threads: free functions; several at once on one store are fine, but only the
// coordinator of a job removes anything.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "ps/checkpoint.pb.h"
#include "store/file_system.h"

namespace starling {

inline constexpr const char* kManifestName = "MANIFEST";
inline constexpr uint32_t kManifestFormat = 1;
inline constexpr size_t kChainMax = 1024;  // cuts in one chain, far above any limit of compaction

// The name of a cut's directory below the job's path.
std::string cut_name(uint64_t cut_id);
// The number in such a name; 0 for other names.
uint64_t id_of_cut_name(const std::string& name);

// The directory that a cut's directory lies in, and its name there.
std::string directory_of(const std::string& path);
std::string name_in_directory(const std::string& path);

struct Cut {
  std::string path;  // its directory
  ckpt::Manifest manifest;
  int64_t modified_ms = 0;  // since 1970, of the manifest
};

// NotFound: no cut is there, or none is complete. DataLoss: the manifest is damaged or of a format
// that this program does not know.
StatusOr<Cut> read_cut(FileSystem& fs, const std::string& path);
// Publishes the manifest: from now on the cut exists. AlreadyExists with kKeep: another manifest is
// there. Unavailable: it may be in place or not; read it again.
Status write_manifest(FileSystem& fs, const std::string& path, const ckpt::Manifest& manifest,
                      Existing existing = Existing::kKeep);

// A directory that has a manifest, or looks like a cut.
struct CutEntry {
  uint64_t cut_id = 0;
  std::string path;
  Status status;  // of the manifest: NotFound when there is none, DataLoss when it is damaged
  Cut cut;        // with OK
};
// What lies in a directory of cuts, ascending by id.
StatusOr<std::vector<CutEntry>> list_cuts(FileSystem& fs, const std::string& directory);

// A cut that holds all of the job, so that the whole job can go back to it.
bool is_whole(const ckpt::Manifest& manifest);

// `path` is a cut, or a directory of cuts: then number `cut_id`, or for 0 the newest whole one.
// NotFound: there is none. DataLoss: a damaged manifest is in the way; the message names it and the
// newest cut before it.
StatusOr<Cut> find_cut(FileSystem& fs, const std::string& path, uint64_t cut_id);

// The full cut first, then each increment up to `cut`. DataLoss: a base is missing or damaged.
StatusOr<std::vector<Cut>> chain_of(FileSystem& fs, const Cut& cut);

// Reads every byte of the cut's own files. One line for each file that is not as the manifest says;
// none when all is well.
StatusOr<std::vector<std::string>> verify_cut(FileSystem& fs, const Cut& cut);

// Removes whole cuts of `directory` but the newest `keep` and those they build on, and what cuts
// below number `newest` left that were never finished. The manifest goes first. Returns the ids
// that went. Only the coordinator calls this, with no cut below `newest` under way.
StatusOr<std::vector<uint64_t>> remove_old_cuts(FileSystem& fs, const std::string& directory,
                                                uint32_t keep, uint64_t newest);

// Everything that several shards know, as one: the highest clocks, steps and watermarks, and all
// sessions. InvalidArgument: they do not agree about the schema.
StatusOr<ckpt::ShardState> merge_states(const std::vector<ckpt::ShardState>& states);

}  // namespace starling
