#include "hub/rates.h"

#include <utility>

namespace starling {

void Rates::tell(TimePoint now, const Depths& depths,
                 google::protobuf::RepeatedPtrField<v1::NamedValue>* out) {
  const auto add = [out](const std::string& name, double value) {
    v1::NamedValue* one = out->Add();
    one->set_name(name);
    one->set_value(value);
  };
  const auto counted = [this](const char* name) { return metrics_.counter(name).value(); };
  const bool is_first = last_ == TimePoint() || now <= last_;
  const double time = static_cast<double>((now - last_).count()) / 1e9;
  const auto add_rate = [&](const std::string& name, uint64_t value) {
    const uint64_t before = std::exchange(before_[name], value);
    // A dataset that was released takes its count along.
    if (!is_first && value >= before) add(name, static_cast<double>(value - before) / time);
  };
  add_rate("bytes_read_per_s", counted(kBytesRead));
  add_rate("samples_parsed_per_s", counted(kSamplesParsed));
  add_rate("samples_fed_per_s", counted(kSamplesFed));
  add_rate("samples_per_s", depths.samples_done);
  last_ = now;
  for (const auto& [name, histogram] :
       {std::pair("parse", kParseTime), {"assemble", kAssembleTime}, {"feed", kFeedTime}}) {
    const Histogram::Summary summary = metrics_.histogram(histogram, "ns").summary();
    if (summary.count == 0) continue;
    add(std::string(name) + "_p50_us", static_cast<double>(summary.p50) / 1e3);
    add(std::string(name) + "_p99_us", static_cast<double>(summary.p99) / 1e3);
  }
  if (const uint64_t samples = counted(kSamplesFed); samples > 0) {
    add("bytes_to_ps_per_sample",
        static_cast<double>(counted(kBytesFed)) / static_cast<double>(samples));
    add("bytes_to_trainer_per_sample",
        static_cast<double>(counted(kBytesLeased)) / static_cast<double>(samples));
  }
  add("open_batches", static_cast<double>(depths.open_batches));
  add("fed_batches", static_cast<double>(depths.fed_batches));
  add("memory_bytes", static_cast<double>(depths.memory_bytes));
}

}  // namespace starling
