// Rates turns the counters of a hub into what its heartbeats and its last words tell: samples per
// second of every stage, how long a stage takes, how deep the queues are, bytes per sample.
//
// Uses: base, wire. Threads: one owner.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/metrics.h"
#include "wire/message.h"

namespace starling {

// Names of the counters and histograms, which datasets fill.
inline constexpr const char* kBytesRead = "hub.bytes_read";
inline constexpr const char* kSamplesParsed = "hub.samples_parsed";
inline constexpr const char* kSamplesFed = "hub.samples_fed";
inline constexpr const char* kBytesFed = "hub.bytes_fed";
inline constexpr const char* kBytesLeased = "hub.bytes_leased";
inline constexpr const char* kParseTime = "hub.parse";
inline constexpr const char* kAssembleTime = "hub.assemble";
inline constexpr const char* kFeedTime = "hub.feed";

class Rates {
 public:
  explicit Rates(Metrics& metrics) : metrics_(metrics) {}

  // What stands now, of all datasets.
  struct Depths {
    uint64_t samples_done = 0;
    uint64_t open_batches = 0;  // made and not done
    uint64_t fed_batches = 0;   // of these: their feeds are kept
    uint64_t memory_bytes = 0;
  };
  // Appends to `out`; per-second values are since the call before.
  void tell(TimePoint now, const Depths& depths,
            google::protobuf::RepeatedPtrField<v1::NamedValue>* out);

 private:
  Metrics& metrics_;
  TimePoint last_;
  std::map<std::string, uint64_t> before_;
};

}  // namespace starling
