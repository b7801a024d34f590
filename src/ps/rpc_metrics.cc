#include "ps/rpc_metrics.h"

#include <fmt/format.h>

namespace starling {

RpcMetrics::RpcMetrics(Metrics& metrics) {
  for (const MethodInfo& info : kMethodTable) {
    if (info.service != Service::kPs) continue;
    One& one = methods_[static_cast<size_t>(info.method)];
    one.latency = &metrics.histogram(fmt::format("{}.latency", info.name), "ns");
    one.errors = &metrics.counter(fmt::format("{}.errors", info.name));
    one.bytes_in = &metrics.counter(fmt::format("{}.bytes_in", info.name));
    one.bytes_out = &metrics.counter(fmt::format("{}.bytes_out", info.name));
  }
}

void RpcMetrics::record(Method method, bool is_error, size_t bytes_in, size_t bytes_out,
                        Duration took) {
  const One& one = methods_[static_cast<size_t>(method)];
  one.latency->record(took);
  if (is_error) one.errors->add();
  one.bytes_in->add(bytes_in);
  one.bytes_out->add(bytes_out);
}

void RpcMetrics::describe(v1::StatReply& reply) const {
  for (const MethodInfo& info : kMethodTable) {
    const One& one = methods_[static_cast<size_t>(info.method)];
    if (one.latency == nullptr) continue;
    const Histogram::Summary summary = one.latency->summary();
    if (summary.count == 0) continue;
    v1::RpcStat* out = reply.add_rpcs();
    out->set_method(std::string(info.name));
    out->set_calls(summary.count);
    out->set_errors(one.errors->value());
    out->set_bytes_in(one.bytes_in->value());
    out->set_bytes_out(one.bytes_out->value());
    out->set_p50_us(static_cast<double>(summary.p50) / 1e3);
    out->set_p95_us(static_cast<double>(summary.p95) / 1e3);
    out->set_p99_us(static_cast<double>(summary.p99) / 1e3);
    out->set_max_us(static_cast<double>(summary.max) / 1e3);
  }
}

uint64_t RpcMetrics::calls() const {
  uint64_t calls = 0;
  for (const One& one : methods_) {
    if (one.latency != nullptr) calls += one.latency->summary().count;
  }
  return calls;
}

size_t message_bytes(const Message& message) {
  size_t bytes = message.meta.ByteSizeLong();
  for (const Tensor& tensor : message.tensors) bytes += tensor.bytes();
  return bytes;
}

}  // namespace starling
