#include "hub/position.h"

#include <xxhash.h>

#include <algorithm>

namespace starling {
namespace {

constexpr uint32_t kBatchSize = 512;

}  // namespace

uint32_t batch_size_of(const v1::StartSampleOption& option) {
  return option.batch_size() == 0 ? kBatchSize : option.batch_size();
}

v1::Watermark mark_of(uint32_t epoch, const v1::WorkProgress& progress) {
  v1::Watermark mark;
  mark.set_epoch(epoch);
  mark.set_item(progress.item());
  mark.set_done_below(progress.done_below());
  mark.set_finished(progress.finished());
  if (!progress.finished()) {
    mark.set_samples_trained(progress.samples_trained());
    mark.set_samples_skipped(progress.samples_skipped());
  }
  return mark;
}

v1::WorkProgress progress_of(const v1::Watermark& mark, uint32_t batch_size) {
  v1::WorkProgress progress;
  progress.set_item(mark.item());
  progress.set_done_below(mark.done_below());
  progress.set_finished(mark.finished());
  progress.set_samples_trained(mark.samples_trained());
  progress.set_samples_skipped(mark.samples_skipped());
  const bool is_counted = mark.samples_trained() + mark.samples_skipped() > 0;
  if (!is_counted) progress.set_samples_trained(mark.done_below() * batch_size);
  return progress;
}

Status resume_at(const std::vector<v1::WorkQueueInfo>& queues,
                 const std::vector<std::string>& positions, uint64_t clock,
                 v1::StartSampleOption& option) {
  option.clear_resume();
  hubs::Position out;
  out.add_datasets()->set_dataset(option.dataset());
  for (const v1::WorkQueueInfo& queue : queues) {
    if (queue.queue() != option.dataset()) continue;
    for (const v1::WorkProgress& progress : queue.progress()) {
      *option.add_resume() = mark_of(queue.epoch(), progress);
    }
  }
  for (const std::string& bytes : positions) {
    hubs::Position position;
    if (!position.ParseFromString(bytes)) {
      return data_loss("the cut has a position of {} bytes that is not a hub's", bytes.size());
    }
    const auto& datasets = position.datasets();
    const auto mine = std::find_if(datasets.begin(), datasets.end(), [&](const auto& one) {
      return one.dataset() == option.dataset();
    });
    // Every hub that reads the dataset says the same of it.
    if (mine != datasets.end()) *out.mutable_datasets(0) = *mine;
  }
  // A job that was done, or not training yet, was saved without a clock; its ranks have one.
  out.mutable_datasets(0)->set_clock(clock);
  option.set_position(out.SerializeAsString());
  return absl::OkStatus();
}

StatusOr<hubs::DatasetPosition> position_in(const v1::StartSampleOption& option) {
  hubs::Position position;
  if (!position.ParseFromString(option.position())) {
    return invalid_argument("Hub.StartSample: position of dataset {} is not a hub's",
                            option.dataset());
  }
  for (const hubs::DatasetPosition& one : position.datasets()) {
    if (one.dataset() == option.dataset()) return one;
  }
  return hubs::DatasetPosition();
}

uint64_t content_of(const v1::StartSampleOption& option, const std::vector<v1::WorkItem>& items) {
  v1::StartSampleOption kept;
  *kept.mutable_format() = option.format();
  *kept.mutable_fields() = option.fields();
  kept.set_kind(option.kind());
  kept.set_pipe_command(option.pipe_command());
  kept.set_batch_size(option.batch_size());
  kept.set_shuffle_samples(option.shuffle_samples());
  kept.set_seed(option.seed());
  kept.set_on_bad_line(option.on_bad_line());
  *kept.mutable_memory() = option.memory();
  kept.mutable_memory()->clear_preload();
  kept.set_negatives_rate(option.negatives_rate());
  kept.set_merge_by_id(option.merge_by_id());
  std::string text = kept.SerializeAsString();
  for (const v1::WorkItem& item : items) {
    text += fmt::format("\n{} {} {} {}", item.path(), item.begin(), item.end(), item.hint_bytes());
  }
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace starling
