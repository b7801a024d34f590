#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "wire/frame.h"
#include "wire/wire_testing.h"

namespace starling {
namespace {

using wire_testing::as_bytes_of;
using wire_testing::equal;
using wire_testing::numbered;

class Lend : public testing::Test {
 protected:
  Lend() {
    message_.meta.set_name("users");
    message_.tensors.push_back(numbered(DType::kFloat32, {4096}));
    message_.tensors.push_back(numbered(DType::kFloat32, {0, 4}));
    message_.tensors.push_back(numbered(DType::kUInt8, {3}));
    message_.tensors.push_back(numbered(DType::kInt64, {1000}));
    FrameHeader header;
    header.kind = FrameKind::kReply;
    frame_ = *encode_lent_frame(header, message_,
                                {.lend_id = 9, .generation = 4, .generation_address = 4096});
    header_ = *decode_header(frame_.bytes().first<kFrameHeaderBytes>(), {});
    meta_ = frame_.bytes().subspan(kFrameHeaderBytes, header_.meta_bytes);
    block_ = frame_.bytes().subspan(kFrameHeaderBytes + header_.meta_bytes);
  }
  // The right block after one change.
  Status decode_changed(const std::function<void(LendBlock&)>& change) {
    LendBlock lend = *decode_lend(header_, block_);
    change(lend);
    std::string bytes(lend_bytes(static_cast<uint32_t>(lend.pieces.size())), '\0');
    encode_lend(lend, std::as_writable_bytes(std::span(bytes)));
    STARLING_ASSIGN_OR_RETURN(const LendBlock got, decode_lend(header_, as_bytes_of(bytes)));
    return lend_offsets(header_, meta_, got).status();
  }

  Message message_;
  Buffer frame_;
  FrameHeader header_;
  std::span<const std::byte> meta_;
  std::span<const std::byte> block_;
};

TEST_F(Lend, SaysWhereTheTensorsLie) {
  const StatusOr<LendBlock> lend = decode_lend(header_, block_);
  ASSERT_TRUE(lend.ok()) << lend.status();
  EXPECT_EQ(lend->lend_id, 9u);
  EXPECT_EQ(lend->generation, 4u);
  EXPECT_EQ(lend->generation_address, 4096u);
  ASSERT_EQ(lend->pieces.size(), 3u);
  const auto address = [&](size_t i) {
    return reinterpret_cast<uintptr_t>(message_.tensors[i].buffer().data());
  };
  EXPECT_EQ(lend->pieces[0], (LendPiece{address(0), 16384}));
  EXPECT_EQ(lend->pieces[1], (LendPiece{address(2), 3}));
  EXPECT_EQ(lend->pieces[2], (LendPiece{address(3), 8000}));
  EXPECT_EQ(header_.flags, kFlagLent);
}

TEST_F(Lend, PulledPiecesGiveTheMessage) {
  const LendBlock lend = *decode_lend(header_, block_);
  const StatusOr<std::vector<uint64_t>> offsets = lend_offsets(header_, meta_, lend);
  ASSERT_TRUE(offsets.ok()) << offsets.status();
  EXPECT_EQ(*offsets, (std::vector<uint64_t>{0, 16384, 16448}));
  Buffer payload = Buffer::allocate(header_.payload_bytes);
  for (size_t i = 0; i < offsets->size(); ++i) {
    std::memcpy(payload.mutable_data() + (*offsets)[i],
                reinterpret_cast<const void*>(lend.pieces[i].address), lend.pieces[i].bytes);
  }
  const StatusOr<Message> back = decode_message(header_, meta_, payload);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(equal(*back, message_));
}

TEST_F(Lend, TheCountIsKnownFromTheFirst32Bytes) {
  EXPECT_EQ(*decode_lend_count(header_, block_.first<kLendHeadBytes>()), 3u);
  EXPECT_EQ(block_.size(), lend_bytes(3));
}

TEST_F(Lend, BlocksThatDoNotFitTheMessageAreRefused) {
  EXPECT_TRUE(decode_changed([](LendBlock&) {}).ok());
  const std::vector<std::function<void(LendBlock&)>> changes = {
      [](LendBlock& l) { l.pieces.pop_back(); },
      [](LendBlock& l) { l.pieces.clear(); },
      [](LendBlock& l) {
        l.pieces.push_back({l.pieces[0].address, 1});
      },
      [](LendBlock& l) {
        l.pieces.assign(5, {1, 1});
      },
      [](LendBlock& l) { std::swap(l.pieces[0], l.pieces[1]); },
      [](LendBlock& l) { l.pieces[1].bytes = 0; },
      [](LendBlock& l) { l.pieces[1].bytes = 4; },
      [](LendBlock& l) { l.pieces[0].bytes = UINT64_MAX; },
      [](LendBlock& l) { l.pieces[0].address = UINT64_MAX - 5; },
      [](LendBlock& l) { l.pieces[0].address = 0; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(decode_changed(changes[i]).code(), StatusCode::kInvalidArgument) << i;
  }
}

TEST_F(Lend, CutOrPaddedBlocksAreRefused) {
  std::string bytes = wire_testing::as_string(block_);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_lend(header_, block_.first(size)).ok()) << size;
  }
  EXPECT_FALSE(decode_lend(header_, as_bytes_of(bytes + "x")).ok());
  bytes[28] = 1;
  EXPECT_FALSE(decode_lend(header_, as_bytes_of(bytes)).ok());
}

TEST_F(Lend, AReplyWithoutBytesCannotBeLent) {
  FrameHeader header;
  header.kind = FrameKind::kReply;
  EXPECT_EQ(encode_lent_frame(header, Message{}, {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace starling
