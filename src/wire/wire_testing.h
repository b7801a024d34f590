// What the tests, fuzzers and benchmarks of this room share: sample messages and comparisons.
//
// Uses: base, message.h. Threads: free functions.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "wire/message.h"

namespace starling::wire_testing {

inline bool equal(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.buffer().view() == b.buffer().view();
}

inline bool equal(const Message& a, const Message& b) {
  return a.meta.SerializeAsString() == b.meta.SerializeAsString() &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [](const Tensor& x, const Tensor& y) { return equal(x, y); });
}

// What generated code would hold: the tensors inside of the message.
inline v1::TensorMessage whole(const Message& message) {
  v1::TensorMessage proto = message.meta;
  for (const Tensor& tensor : message.tensors) to_proto(tensor, proto.add_tensors());
  return proto;
}

// Bytes that differ from their neighbours, so that a shifted copy shows.
inline Tensor numbered(DType dtype, std::vector<int64_t> shape) {
  Buffer buffer = Buffer::allocate(*tensor_bytes(dtype, shape));
  size_t i = 0;
  for (std::byte& byte : buffer.mutable_bytes()) byte = static_cast<std::byte>(i++ * 7 + 1);
  return *Tensor::make(dtype, std::move(shape), std::move(buffer));
}

// A header with every field set, and tensors of several types, sizes and shapes.
inline Message sample_message() {
  Message message;
  v1::Header* header = message.meta.mutable_header();
  header->set_role(v1::ROLE_TRAINER);
  header->set_role_id(7);
  header->set_incarnation(0x1122334455667788);
  header->set_generation(2);
  header->set_session(0x8877665544332211);
  header->set_number(300);
  header->set_acked_below(290);
  header->set_request_id(99);
  header->mutable_batch()->set_epoch(1);
  header->mutable_batch()->set_item(2);
  header->mutable_batch()->set_number(3);
  header->set_map_version(4);
  header->set_lane(1);
  header->set_rank(0);
  header->set_clock(17);
  header->set_deadline_us(30'000'000);
  message.meta.set_name("users");
  message.tensors.push_back(numbered(DType::kUInt64, {3}));
  message.tensors.push_back(numbered(DType::kInt8, {5}));
  message.tensors.push_back(numbered(DType::kFloat32, {0, 16}));
  message.tensors.push_back(numbered(DType::kFloat64, {}));
  message.tensors.push_back(numbered(DType::kFloat32, {64, 16}));
  message.tensors.push_back(numbered(DType::kBFloat16, {3, 1, 700}));
  return message;
}

// The same without large tensors: what a fuzzer mutates.
inline Message small_message() {
  Message message = sample_message();
  message.tensors.resize(4);
  return message;
}

inline std::string as_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string joined(std::span<const Buffer> pieces) {
  std::string all;
  for (const Buffer& piece : pieces) all += piece.view();
  return all;
}

// A property that a fuzzer found broken: aborts, so that every driver sees it.
inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken property: %s\n", what);
  std::abort();
}

}  // namespace starling::wire_testing
