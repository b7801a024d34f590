// Lending: a large reply stays where it is, and the caller on the same host reads it once, straight
// from this process's memory (process_vm_readv), instead of twice through a socket.
//
// Uses: base, wire. Threads: lane-local; the generation words are read by other processes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "net/intake.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace starling {

// The replies that a connection has lent out. They are kept until the caller releases them or the
// connection ends.
class LendTable {
 public:
  LendTable() = default;
  LendTable(const LendTable&) = delete;
  LendTable& operator=(const LendTable&) = delete;

  // Keeps the message and its ticket. The block's pieces are left to the encoder.
  LendBlock lend(uint64_t request_id, Message message, Ticket ticket);
  // Forgets a lent reply; from now on its generation word differs. False when there is none of that
  // request.
  bool release(uint64_t request_id);
  bool contains(uint64_t request_id) const { return lent_.contains(request_id); }
  // Takes a lent reply back, to send it on the stream; an empty optional when there is none.
  struct Taken {
    Message message;
    Ticket ticket;
  };
  std::optional<Taken> take(uint64_t request_id);
  // Forgets everything, when the connection has ended: its callers cannot give it back any more.
  void clear();

 private:
  struct Lent {
    Message message;
    Ticket ticket;
    uint32_t word = 0;
  };
  // A word per open lend. Never moved or freed while the connection lives, since peers hold their
  // addresses.
  struct Words {
    static constexpr size_t kCount = 64;
    std::atomic<uint64_t> words[kCount] = {};
  };
  std::atomic<uint64_t>& word(uint32_t index) {
    return words_[index / Words::kCount]->words[index % Words::kCount];
  }
  void free(Lent& lent);

  std::map<uint64_t, Lent> lent_;  // by request
  std::vector<std::unique_ptr<Words>> words_;
  std::vector<uint32_t> free_words_;
  uint64_t lends_ = 0;
};

// Reads the pieces from the memory of process `pid` into their places of `payload`, then the
// generation word. Unavailable: the kernel refused, or the memory has gone. Aborted: the word has
// changed, so the bytes are not the reply.
Status pull(pid_t pid, const LendBlock& lend, std::span<const uint64_t> offsets, Buffer& payload);

// True when this process may read the other's memory: the probe value lies at the probe address.
bool probe(pid_t pid, uint64_t address, const ProbeValue& value);

}  // namespace starling
