// What the tests of the dealer share: batches of a few samples, requests of a trainer, and a hub
// whose feeds and words with the scheduler always arrive.
//
// Uses: hub/dealer.h; for tests only. Threads: one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hub/dealer.h"

namespace starling::hub_testing {

inline constexpr uint32_t kSamples = 4;

inline HubBatch batch_of(const BatchId& id, uint32_t samples = kSamples) {
  HubBatch batch;
  batch.id = id;
  batch.lease.set_samples(samples);
  batch.lease.set_labels_tensor(0);
  batch.tensors.push_back(
      Tensor::of<float>({samples, 1}, std::vector<float>(samples, static_cast<float>(id.number))));
  return batch;
}

// A trainer's session.
struct Asker {
  uint64_t session = 1;
  uint32_t node = 10;
  uint64_t number = 0;
  uint32_t rank = 0;
  uint64_t clock = 0;

  Message ask(uint32_t batches_max) {
    Message message;
    v1::Header* header = message.meta.mutable_header();
    header->set_session(session);
    header->set_number(++number);
    header->set_role_id(node);
    header->set_rank(rank);
    header->set_clock(clock);
    message.meta.mutable_read_sample()->set_batches_max(batches_max);
    return message;
  }
};

inline std::vector<BatchId> ids_in(const Message& reply) {
  std::vector<BatchId> out;
  for (const v1::BatchLease& lease : reply.meta.read_sample_reply().batches()) {
    out.push_back(batch_id_of(lease.batch()));
  }
  return out;
}

inline v1::DatasetState state_in(const Message& reply) {
  return reply.meta.read_sample_reply().state();
}

inline void report_done(Message& request, const std::vector<BatchId>& ids) {
  for (const BatchId& id : ids) to_proto(id, request.meta.mutable_read_sample()->add_done());
}

// Everything that waits for shards or the scheduler happens.
inline void settle(Dealer& dealer) {
  for (const BatchId& id : dealer.take_feeds()) dealer.fed(id);
  for (const auto& [name, progress] : dealer.finished()) dealer.acked(name);
  for (const auto& [name, progress] : dealer.progress()) dealer.known(name, progress);
  dealer.marked(dealer.marks());
}

// A whole item at once; the window must be large enough.
inline void add_whole_item(Dealer& dealer, const ItemName& name, uint64_t batches,
                           const ItemStart& start = {}) {
  dealer.add_item(name, start);
  for (uint64_t i = start.done_below; i < batches; ++i) {
    dealer.add(batch_of({name.epoch, name.item, i}));
  }
  dealer.end_item(name, batches,
                  {.samples_read = batches * kSamples,
                   .samples_before = start.done_below * kSamples,
                   .bytes_read = batches});
  settle(dealer);
}

}  // namespace starling::hub_testing
