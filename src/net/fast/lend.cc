#include "net/fast/lend.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace starling {
namespace {

constexpr size_t kIovMax = 512;

}  // namespace

LendBlock LendTable::lend(uint64_t request_id, Message message, Ticket ticket) {
  if (free_words_.empty()) {
    const auto first = static_cast<uint32_t>(words_.size() * Words::kCount);
    words_.push_back(std::make_unique<Words>());
    for (uint32_t i = Words::kCount; i > 0; --i) free_words_.push_back(first + i - 1);
  }
  const uint32_t index = free_words_.back();
  free_words_.pop_back();
  LendBlock block{.lend_id = ++lends_,
                  .generation = lends_,
                  .generation_address = reinterpret_cast<uint64_t>(&word(index))};
  word(index).store(block.generation, std::memory_order_release);
  lent_[request_id] = {std::move(message), std::move(ticket), index};
  return block;
}

void LendTable::free(Lent& lent) {
  // Before the buffers go back to be used again: whoever still reads them must see that they are
  // not the reply.
  word(lent.word).store(0, std::memory_order_seq_cst);
  free_words_.push_back(lent.word);
}

bool LendTable::release(uint64_t request_id) { return take(request_id).has_value(); }

std::optional<LendTable::Taken> LendTable::take(uint64_t request_id) {
  auto it = lent_.find(request_id);
  if (it == lent_.end()) return std::nullopt;
  free(it->second);
  Taken taken{std::move(it->second.message), std::move(it->second.ticket)};
  lent_.erase(it);
  return taken;
}

void LendTable::clear() {
  for (auto& [id, lent] : lent_) free(lent);
  lent_.clear();
}

Status pull(pid_t pid, const LendBlock& lend, std::span<const uint64_t> offsets, Buffer& payload) {
  uint64_t generation = 0;
  const size_t pieces = lend.pieces.size();
  for (size_t at = 0; at <= pieces; at += kIovMax - 1) {
    const size_t count = std::min(kIovMax - 1, pieces - at);
    std::array<iovec, kIovMax> local;
    std::array<iovec, kIovMax> remote;
    size_t ranges = 0;
    uint64_t range_end = 0;
    size_t wanted = sizeof(generation);
    for (size_t i = 0; i < count; ++i) {
      const LendPiece& piece = lend.pieces[at + i];
      local[i] = {payload.mutable_data() + offsets[at + i], piece.bytes};
      // The kernel takes hold of each range's pages anew, so slices of one buffer are one range.
      if (ranges > 0 && piece.address == range_end) {
        remote[ranges - 1].iov_len += piece.bytes;
      } else {
        remote[ranges++] = {reinterpret_cast<void*>(piece.address), piece.bytes};
      }
      range_end = piece.address + piece.bytes;
      wanted += piece.bytes;
    }
    // The word comes last, so it is read after the data it vouches for.
    local[count] = {&generation, sizeof(generation)};
    remote[ranges] = {reinterpret_cast<void*>(lend.generation_address), sizeof(generation)};
    const ssize_t got =
        process_vm_readv(pid, local.data(), count + 1, remote.data(), ranges + 1, 0);
    if (got < 0)
      return unavailable("cannot read the memory of process {}: {}", pid, std::strerror(errno));
    if (static_cast<size_t>(got) != wanted)
      return unavailable("the memory of process {} has gone", pid);
    if (generation != lend.generation) return aborted("the lent reply was given up meanwhile");
  }
  return absl::OkStatus();
}

bool probe(pid_t pid, uint64_t address, const ProbeValue& value) {
  ProbeValue read{};
  iovec local{read.data(), read.size()};
  iovec remote{reinterpret_cast<void*>(address), read.size()};
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(read.size()) &&
         read == value;
}

}  // namespace starling
