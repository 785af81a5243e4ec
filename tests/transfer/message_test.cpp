// Messages on the wire: reading returns the written values, and trusts no byte of a stranger's.
#include "transfer/endpoint/message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {
namespace {

constexpr std::uint64_t kToken = 0x0123456789abcdef;
constexpr std::uint32_t kPeers = 5;

std::vector<unsigned char> wire(std::uint32_t from, unsigned kind, const std::string& payload) {
  std::vector<unsigned char> bytes(kMessageHeader + payload.size());
  write_header(bytes.data(), kToken, {from, kind, 7, nullptr, payload.size()});
  std::memcpy(bytes.data() + kMessageHeader, payload.data(), payload.size());
  return bytes;
}

/// In a block of exactly its size: AddressSanitizer sees a read beyond.
std::optional<Message> read(const std::vector<unsigned char>& bytes, std::string* payload = nullptr) {
  std::unique_ptr<unsigned char[]> copy(new unsigned char[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  const auto message = read_message(copy.get(), bytes.size(), kToken, kPeers);
  if (message && payload != nullptr)
    payload->assign(static_cast<const char*>(message->payload), message->bytes);
  return message;
}

TEST(TransferMessage, WhatIsWrittenIsRead) {
  for (const unsigned kind : {0u, Endpoint::kKinds - 1, kProbe, kAnswer, kLeave}) {
    for (const std::string& payload : {std::string(), std::string("x"), std::string(4000, 'y')}) {
      std::string read_payload;
      const auto message = read(wire(kPeers - 1, kind, payload), &read_payload);
      ASSERT_TRUE(message);
      EXPECT_EQ(message->from, kPeers - 1);
      EXPECT_EQ(message->kind, kind);
      EXPECT_EQ(message->number, 7U);
      EXPECT_EQ(read_payload, payload);
    }
  }
}

TEST(TransferMessage, StrangersAreRefused) {
  EXPECT_FALSE(read(wire(kPeers, 0, "a"))) << "no such process";
  EXPECT_FALSE(read(wire(0, Endpoint::kKinds, "a"))) << "no such kind";
  const std::vector<unsigned char> good = wire(1, 2, "payload");
  EXPECT_FALSE(read_message(good.data(), good.size(), kToken + 1, kPeers)) << "of another job";
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_FALSE(read({good.begin(), good.begin() + std::ptrdiff_t(bytes)})) << "truncated to " << bytes;
  std::vector<unsigned char> longer = good;
  longer.push_back(0);
  EXPECT_FALSE(read(longer));
}

TEST(TransferMessage, AnyBytesAreRefusedOrWithinBounds) {
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) {
    std::vector<unsigned char> bytes =
        wire(random() % kPeers, random() % 20, std::string(random() % 64, 'z'));
    for (unsigned changes = random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] ^= 1u << random() % 8;
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 8));
    std::string payload;
    const auto message = read(bytes, &payload);
    if (!message) continue;
    EXPECT_LT(message->from, kPeers);
    EXPECT_TRUE(message->kind < Endpoint::kKinds || message->kind == kProbe || message->kind == kAnswer ||
                message->kind == kLeave);
    EXPECT_EQ(payload.size(), bytes.size() - kMessageHeader);
  }
}

}  // namespace
}  // namespace pinion::transfer
