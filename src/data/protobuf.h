// ProtobufReader walks the fields of a protobuf message in memory, without copying.
//
// Uses: std. Threads: a value.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace starling {

static_assert(std::endian::native == std::endian::little, "protobuf numbers are read in place");

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : rest_(bytes) {}

  enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  // Steps to the next field. False: the end, or broken().
  bool next() {
    uint64_t tag = 0;
    if (rest_.empty() || !read_varint(tag)) return false;
    field_ = static_cast<uint32_t>(tag >> 3);
    wire_ = static_cast<Wire>(tag & 7);
    if (field_ == 0 || tag > UINT32_MAX) return fail();
    if (wire_ == Wire::kVarint) return read_varint(number_);
    if (wire_ == Wire::kBytes) {
      uint64_t length = 0;
      return read_varint(length) && take(length);
    }
    if (wire_ == Wire::kFixed64 || wire_ == Wire::kFixed32)
      return take(wire_ == Wire::kFixed64 ? 8 : 4);
    return fail();
  }

  bool broken() const { return broken_; }
  uint32_t field() const { return field_; }
  Wire wire() const { return wire_; }
  uint64_t number() const { return number_; }        // of a varint
  std::string_view bytes() const { return bytes_; }  // of every other

 private:
  bool fail() {
    broken_ = true;
    return false;
  }
  bool read_varint(uint64_t& out) {
    out = 0;
    for (size_t i = 0; i < 10 && i < rest_.size(); ++i) {
      const auto byte = static_cast<uint8_t>(rest_[i]);
      out |= uint64_t{byte & 0x7fU} << (7 * i);
      if (byte < 0x80) {
        rest_.remove_prefix(i + 1);
        return true;
      }
    }
    return fail();
  }
  bool take(uint64_t length) {
    if (length > rest_.size()) return fail();
    bytes_ = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }

  std::string_view rest_;
  std::string_view bytes_;
  uint64_t number_ = 0;
  uint32_t field_ = 0;
  Wire wire_ = Wire::kVarint;
  bool broken_ = false;
};

inline void append_varint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

// A field of bytes: a text, a message, packed numbers.
inline void append_bytes(uint32_t field, std::string_view bytes, std::string& out) {
  append_varint(uint64_t{field} << 3 | 2, out);
  append_varint(bytes.size(), out);
  out += bytes;
}

}  // namespace starling
