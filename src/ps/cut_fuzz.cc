// Any bytes inside of the checksummed blocks of a cut: as its manifest, as one of its files, as a
// part of a variable. They are read as what they are or are DataLoss.
#include <google/protobuf/stubs/logging.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/ids.h"
#include "fuzz/fuzz.h"
#include "ps/checkpoint_file.h"
#include "ps/manifest.h"
#include "store/block_stream.h"
#include "store/file_systems.h"
#include "store/hash.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

constexpr uint64_t kCut = 7;
constexpr const char* kTable = "t";
constexpr uint32_t kBlockBytes = 4096;

class StringWriter final : public Writer {
 public:
  explicit StringWriter(std::string& out) : out_(out) {}
  Status write(std::span<const std::byte> bytes) override {
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  }
  Status publish() override { return absl::OkStatus(); }
  const std::string& url() const override { return url_; }

 private:
  std::string& out_;
  const std::string url_ = "test://out";
};

class StringReader final : public Reader {
 public:
  explicit StringReader(std::string text) : text_(std::move(text)) {}
  StatusOr<size_t> read(std::span<std::byte> into) override {
    const size_t count = std::min(into.size(), text_.size() - at_);
    std::memcpy(into.data(), text_.data() + at_, count);
    at_ += count;
    return count;
  }
  const std::string& url() const override { return url_; }

 private:
  const std::string text_;
  const std::string url_ = "test://in";
  size_t at_ = 0;
};

std::string in_blocks(std::span<const std::byte> bytes) {
  std::string out;
  const auto writer = write_blocks(std::make_unique<StringWriter>(out), kBlockBytes).value();
  STARLING_CHECK(writer->write(bytes).ok() && writer->publish().ok(), "a string takes anything");
  return out;
}

void check_manifest(std::span<const std::byte> bytes) {
  static const RealClock clock;
  static const std::unique_ptr<FileSystems> fs = FileSystems::standard({}, clock);
  const std::string path = "mem://fuzz/job/" + cut_name(kCut);
  const auto put = [&](std::string_view text) {
    auto file = fs->open_write(path + "/" + kManifestName, Existing::kReplace).value();
    STARLING_CHECK(file->write(bytes_of(text)).ok() && file->publish().ok(),
                   "memory takes any file");
  };
  put(in_blocks(bytes));
  const StatusOr<Cut> cut = read_cut(*fs, path);
  if (!cut.ok()) {
    STARLING_CHECK(cut.status().code() == StatusCode::kDataLoss, "damage is DataLoss");
    return;
  }
  const StatusOr<std::vector<Cut>> chain = chain_of(*fs, *cut);
  const bool is_increment = cut->manifest.mode() == ckpt::MODE_INCREMENTAL;
  STARLING_CHECK(chain.ok() ? chain->size() == 1 && !is_increment
                            : chain.status().code() == StatusCode::kDataLoss,
                 "a base that is not there is DataLoss");
  STARLING_CHECK(
      write_manifest(*fs, path, cut->manifest, Existing::kReplace).ok() &&
          read_cut(*fs, path)->manifest.SerializeAsString() == cut->manifest.SerializeAsString(),
      "a manifest survives");
}

void check_part(std::span<const std::byte> bytes) {
  const StatusOr<DensePart> part = DensePart::decode(bytes);
  if (!part.ok()) {
    STARLING_CHECK(part.status().code() == StatusCode::kDataLoss, "damage is DataLoss");
    return;
  }
  const std::vector<std::byte> again = part->encode();
  STARLING_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()),
                 "a part survives");
}

// The manifest knows the file whole, with its checksum; the first bytes say how long it claims to
// be.
void check_file(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(uint64_t)) return;
  const std::string stream = in_blocks(bytes.subspan(sizeof(uint64_t)));
  ckpt::File file;
  uint64_t more = 0;
  std::memcpy(&more, bytes.data(), sizeof(more));
  file.set_kind(ckpt::FILE_KIND_ROWS);
  file.set_table(kTable);
  file.set_bytes(stream.size() + more);
  file.set_xxh3(xxh3(bytes_of(stream), 0));
  const auto reader = CutFileReader::over(std::make_unique<StringReader>(stream), file, kCut);
  Status status = reader.status();
  FileRecord record;
  do {
    if (status.ok()) status = (*reader)->next(record);
    if (status.ok() && record.kind == CutRecordKind::kPart) check_part(record.bytes);
  } while (status.ok() && record.kind != CutRecordKind::kEnd);
  STARLING_CHECK(status.ok() || status.code() == StatusCode::kDataLoss, "damage is DataLoss");
}

DensePart small_part() {
  return {.variable = "w",
          .begin = 2,
          .end = 5,
          .version = 3,
          .updates = 4,
          .weights = {1, 2, 3},
          .state = {0.5F}};
}

// What a writer puts into the blocks, behind the eight bytes of check_file().
std::string file_of(const std::vector<std::pair<CutRecordKind, std::vector<std::byte>>>& records) {
  const RealClock clock;
  const auto fs = FileSystems::standard({}, clock);
  const std::string directory = "mem://seeds/cut";
  const FileHead head{.kind = ckpt::FILE_KIND_ROWS, .cut_id = kCut, .table = kTable};
  const auto writer = CutFileWriter::open(*fs, directory, "f", head).value();
  for (const auto& [kind, bytes] : records) {
    STARLING_CHECK(writer->add(kind, 5, bytes).ok(), "memory takes any file");
  }
  STARLING_CHECK(writer->publish().ok(), "memory takes any file");
  const auto blocks = read_blocks(fs->open_read(directory + "/f", {}).value());
  return std::string(sizeof(uint64_t), '\0') + read_all(*blocks, 1 << 20).value();
}

ckpt::Manifest small_manifest() {
  ckpt::Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_cut_id(kCut);
  manifest.set_job("j");
  manifest.set_clock(4);
  manifest.mutable_map()->set_version(2);
  manifest.mutable_state()->add_clocks()->set_rank(1);
  manifest.add_positions()->set_hub("hub-0");
  manifest.add_queues()->set_queue("d");
  ckpt::File& file = *manifest.add_files();
  file.set_name("rows-0");
  file.set_kind(ckpt::FILE_KIND_ROWS);
  file.set_table(kTable);
  file.set_bucket_end(kBuckets);
  return manifest;
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  ckpt::Manifest increment = small_manifest();
  increment.set_mode(ckpt::MODE_INCREMENTAL);
  increment.set_base_cut(kCut - 1);
  increment.set_base(cut_name(kCut - 1));
  const std::vector<std::byte> part = small_part().encode();
  const std::vector<std::byte> nothing = DensePart{.variable = "w", .begin = 3, .end = 3}.encode();
  const std::vector<std::byte> zeros(40);
  return {
      {"manifest",
       check_manifest,
       {small_manifest().SerializeAsString(), increment.SerializeAsString()}},
      {"file",
       check_file,
       {file_of({{CutRecordKind::kBucket, zeros}, {CutRecordKind::kDeleted, zeros}}),
        file_of({{CutRecordKind::kPart, part}, {CutRecordKind::kPart, part}}), file_of({})}},
      {"part", check_part, {std::string(text_of(part)), std::string(text_of(nothing))}},
  };
}
