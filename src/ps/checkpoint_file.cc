#include "ps/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/ids.h"
#include "store/block_stream.h"
#include "store/hash.h"
#include "store/read_ahead.h"
#include "store/write_behind.h"

namespace starling {
namespace {

constexpr std::array<char, 4> kMagic = {'S', 'C', 'F', '1'};
constexpr size_t kHeadBytes = 24;    // magic, kind, cut id, name bytes, zero
constexpr size_t kRecordBytes = 16;  // kind, number, bytes
constexpr size_t kPartHeadBytes = 44;
constexpr size_t kImageRowsAt = 16;
constexpr uint32_t kNameBytesMax = 4096;
// Memory is taken as bytes come: the length of a record may be wrong, and so may the manifest's.
constexpr uint64_t kGrowBytes = 1 << 20;
// A disk that takes 2.5 GB/s in pieces of 1 MiB takes a third more in these; three, so that one is
// written while the next is filled (docs/design/ps-speed.md).
constexpr WriteBehindOptions kBehind = {.chunk_bytes = 8 << 20, .chunks = 3};

}  // namespace

class CutFileWriter::Counted final : public Writer {
 public:
  explicit Counted(std::unique_ptr<Writer> target) : target_(std::move(target)) {}
  Status write(std::span<const std::byte> bytes) override {
    hash_.add(bytes);
    return target_->write(bytes);
  }
  Status publish() override { return target_->publish(); }
  const std::string& url() const override { return target_->url(); }
  const Xxh3& hash() const { return hash_; }

 private:
  const std::unique_ptr<Writer> target_;
  Xxh3 hash_;
};

StatusOr<std::unique_ptr<CutFileWriter>> CutFileWriter::open(FileSystem& fs,
                                                             const std::string& directory,
                                                             const std::string& name,
                                                             const FileHead& head) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> target,
                            fs.open_write(directory + "/" + name, Existing::kKeep));
  STARLING_ASSIGN_OR_RETURN(target, WriteBehind::start(std::move(target), kBehind));
  std::unique_ptr<CutFileWriter> writer(new CutFileWriter());
  auto counted = std::make_unique<Counted>(std::move(target));
  writer->counted_ = counted.get();
  STARLING_ASSIGN_OR_RETURN(writer->blocks_, write_blocks(std::move(counted)));
  writer->file_.set_name(name);
  writer->file_.set_kind(head.kind);
  writer->file_.set_table(head.table);
  std::vector<std::byte> bytes(kHeadBytes + head.table.size());
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  put_number(bytes.data() + 4, static_cast<uint32_t>(head.kind));
  put_number(bytes.data() + 8, head.cut_id);
  put_number(bytes.data() + 16, static_cast<uint32_t>(head.table.size()));
  std::memcpy(bytes.data() + kHeadBytes, head.table.data(), head.table.size());
  STARLING_RETURN_IF_ERROR(writer->blocks_->write(bytes));
  return writer;
}

Status CutFileWriter::add(CutRecordKind kind, uint32_t number, std::span<const std::byte> bytes) {
  std::array<std::byte, kRecordBytes> head{};
  put_number(head.data(), static_cast<uint32_t>(kind));
  put_number(head.data() + 4, number);
  put_number(head.data() + 8, uint64_t{bytes.size()});
  STARLING_RETURN_IF_ERROR(blocks_->write(head));
  STARLING_RETURN_IF_ERROR(blocks_->write(bytes));
  if (kind == CutRecordKind::kBucket || kind == CutRecordKind::kChanges) {
    const bool is_first = file_.bucket_end() == 0;
    file_.set_bucket_begin(is_first ? number : std::min(file_.bucket_begin(), number));
    file_.set_bucket_end(std::max(file_.bucket_end(), number + 1));
    file_.set_rows(file_.rows() + image_rows(bytes));
  } else if (kind == CutRecordKind::kDeleted) {
    file_.set_bucket_begin(0);
    file_.set_bucket_end(kBuckets);
  }
  if (kind != CutRecordKind::kEnd) ++records_;
  return absl::OkStatus();
}

uint64_t CutFileWriter::bytes() const { return counted_->hash().bytes(); }

StatusOr<ckpt::File> CutFileWriter::publish() {
  std::array<std::byte, sizeof(uint64_t)> count{};
  put_number(count.data(), records_);
  STARLING_RETURN_IF_ERROR(add(CutRecordKind::kEnd, 0, count));
  STARLING_RETURN_IF_ERROR(blocks_->publish());
  file_.set_bytes(counted_->hash().bytes());
  file_.set_xxh3(counted_->hash().digest());
  return file_;
}

class CutFileReader::Hashed final : public Reader {
 public:
  explicit Hashed(std::unique_ptr<Reader> source) : source_(std::move(source)) {}
  StatusOr<size_t> read(std::span<std::byte> into) override {
    STARLING_ASSIGN_OR_RETURN(const size_t got, source_->read(into));
    hash_.add(into.first(got));
    return got;
  }
  void interrupt() override { source_->interrupt(); }
  const std::string& url() const override { return source_->url(); }
  const Xxh3& hash() const { return hash_; }

 private:
  const std::unique_ptr<Reader> source_;
  Xxh3 hash_;
};

StatusOr<std::unique_ptr<CutFileReader>> CutFileReader::open(FileSystem& fs,
                                                             const std::string& directory,
                                                             const ckpt::File& file,
                                                             uint64_t cut_id) {
  const std::string url = directory + "/" + file.name();
  StatusOr<std::unique_ptr<Reader>> source = fs.open_read(url, {.is_once = true});
  if (!source.ok() && source.status().code() == StatusCode::kNotFound) {
    return data_loss("{}: missing, though the manifest of cut {} lists it", url, cut_id);
  }
  STARLING_RETURN_IF_ERROR(source.status());
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Reader> ahead, ReadAhead::start(*std::move(source)));
  return over(std::move(ahead), file, cut_id);
}

StatusOr<std::unique_ptr<CutFileReader>> CutFileReader::over(std::unique_ptr<Reader> source,
                                                             const ckpt::File& file,
                                                             uint64_t cut_id) {
  std::unique_ptr<CutFileReader> reader(new CutFileReader());
  reader->file_ = file;
  reader->url_ = source->url();
  auto hashed = std::make_unique<Hashed>(std::move(source));
  reader->hashed_ = hashed.get();
  reader->blocks_ = read_blocks(std::move(hashed));
  STARLING_RETURN_IF_ERROR(reader->read_head(cut_id));
  return reader;
}

Status CutFileReader::read_exactly(std::span<std::byte> into) {
  STARLING_ASSIGN_OR_RETURN(const size_t got, read_full(*blocks_, into));
  if (got != into.size()) return data_loss("{}: ends inside a record", url_);
  return absl::OkStatus();
}

Status CutFileReader::read_head(uint64_t cut_id) {
  std::array<std::byte, kHeadBytes> head{};
  STARLING_RETURN_IF_ERROR(read_exactly(head));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return data_loss("{}: not a file of a cut", url_);
  }
  const auto name_bytes = number_at<uint32_t>(head.data() + 16);
  if (name_bytes > kNameBytesMax) {
    return data_loss("{}: a table's name of {} bytes", url_, name_bytes);
  }
  std::string table(name_bytes, '\0');
  STARLING_RETURN_IF_ERROR(read_exactly(std::as_writable_bytes(std::span(table))));
  const auto kind = number_at<uint32_t>(head.data() + 4);
  const auto of_cut = number_at<uint64_t>(head.data() + 8);
  if (of_cut != cut_id || kind != static_cast<uint32_t>(file_.kind()) || table != file_.table()) {
    return data_loss("{}: is of cut {}, kind {}, table '{}'; cut {} says kind {}, table '{}'", url_,
                     of_cut, kind, table, cut_id, static_cast<int>(file_.kind()), file_.table());
  }
  return absl::OkStatus();
}

Status CutFileReader::check_end() {
  std::array<std::byte, 1> more{};
  STARLING_ASSIGN_OR_RETURN(const size_t got, blocks_->read(more));
  if (got != 0) return data_loss("{}: bytes after its last record", url_);
  const Xxh3& hash = hashed_->hash();
  if (hash.bytes() != file_.bytes() || hash.digest() != file_.xxh3()) {
    return data_loss("{}: {} bytes with checksum {:016x}, the manifest says {} with {:016x}", url_,
                     hash.bytes(), hash.digest(), file_.bytes(), file_.xxh3());
  }
  return absl::OkStatus();
}

Status CutFileReader::next(FileRecord& record) {
  record.kind = CutRecordKind::kEnd;
  if (is_ended_) return absl::OkStatus();
  std::array<std::byte, kRecordBytes> head{};
  STARLING_RETURN_IF_ERROR(read_exactly(head));
  const auto kind = number_at<uint32_t>(head.data());
  const auto bytes = number_at<uint64_t>(head.data() + 8);
  if (kind > static_cast<uint32_t>(CutRecordKind::kState) || bytes > file_.bytes()) {
    return data_loss("{}: a record of kind {} with {} bytes", url_, kind, bytes);
  }
  record.number = number_at<uint32_t>(head.data() + 4);
  record.bytes.clear();
  while (record.bytes.size() < bytes) {
    const size_t have = record.bytes.size();
    record.bytes.resize(have + std::min(bytes - have, kGrowBytes));
    STARLING_RETURN_IF_ERROR(read_exactly(std::span(record.bytes).subspan(have)));
  }
  record.kind = static_cast<CutRecordKind>(kind);
  if (record.kind != CutRecordKind::kEnd) {
    ++records_;
    return absl::OkStatus();
  }
  if (bytes != sizeof(uint64_t) || number_at<uint64_t>(record.bytes.data()) != records_) {
    return data_loss("{}: the end does not count {} records", url_, records_);
  }
  is_ended_ = true;
  return check_end();
}

uint64_t CutFileReader::bytes_read() const { return hashed_->hash().bytes(); }

uint64_t image_rows(std::span<const std::byte> image) {
  return image.size() < kImageRowsAt + sizeof(uint64_t)
             ? 0
             : number_at<uint64_t>(image.data() + kImageRowsAt);
}

std::vector<std::byte> DensePart::encode() const {
  const size_t floats = (weights.size() + state.size()) * sizeof(float);
  std::vector<std::byte> bytes(kPartHeadBytes + variable.size() + floats);
  std::byte* at = bytes.data();
  put_number(at, begin);
  put_number(at + 8, end);
  put_number(at + 16, version);
  put_number(at + 24, updates);
  put_number(at + 32, uint64_t{state.size()});
  put_number(at + 40, static_cast<uint32_t>(variable.size()));
  at += kPartHeadBytes;
  std::memcpy(at, variable.data(), variable.size());
  at += variable.size();
  if (!weights.empty()) std::memcpy(at, weights.data(), weights.size() * sizeof(float));
  at += weights.size() * sizeof(float);
  if (!state.empty()) std::memcpy(at, state.data(), state.size() * sizeof(float));
  return bytes;
}

StatusOr<DensePart> DensePart::decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kPartHeadBytes) return data_loss("a part of {} bytes", bytes.size());
  DensePart part;
  const std::byte* at = bytes.data();
  part.begin = number_at<uint64_t>(at);
  part.end = number_at<uint64_t>(at + 8);
  part.version = number_at<uint64_t>(at + 16);
  part.updates = number_at<uint64_t>(at + 24);
  const auto state = number_at<uint64_t>(at + 32);
  const auto name_bytes = number_at<uint32_t>(at + 40);
  const size_t body = bytes.size() - kPartHeadBytes;
  if (name_bytes > body || part.end < part.begin) {
    return data_loss("a part with a name of {} bytes and elements [{}, {})", name_bytes, part.begin,
                     part.end);
  }
  const uint64_t floats = (body - name_bytes) / sizeof(float);
  const uint64_t elements = part.end - part.begin;
  if ((body - name_bytes) % sizeof(float) != 0 || elements > floats || state != floats - elements) {
    return data_loss("a part with {} elements and {} floats of state in {} bytes", elements, state,
                     bytes.size());
  }
  at += kPartHeadBytes;
  part.variable.assign(reinterpret_cast<const char*>(at), name_bytes);
  at += name_bytes;
  part.weights.resize(elements);
  part.state.resize(state);
  if (elements != 0) std::memcpy(part.weights.data(), at, elements * sizeof(float));
  at += elements * sizeof(float);
  if (state != 0) std::memcpy(part.state.data(), at, state * sizeof(float));
  return part;
}

}  // namespace starling
