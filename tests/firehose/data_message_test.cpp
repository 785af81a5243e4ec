// Puts, gets and atomics on the wire: the parser takes what the writer wrote, and no nonsense. Checked access
// to own memory.
#include "firehose/data_message.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/range.h"
#include "firehose/own_memory.h"
#include "firehose/packing.h"
#include "firehose/waiting_atomics.h"
#include "monitor/memory_events.h"
#include "pinion/firehose.h"

namespace pinion::firehose {
namespace {

constexpr std::size_t kMost = 4000;

std::vector<char> wire_of(const DataMessage& message) {
  std::vector<char> wire(kDataHeader);
  const std::size_t payload = encode(message, wire.data());
  const char* const bytes = static_cast<const char*>(message.payload);
  wire.insert(wire.end(), bytes, bytes + payload);
  return wire;
}

DataMessage message_of(DataMessage::Kind kind, std::uint32_t bytes, const void* payload = nullptr) {
  DataMessage message;
  message.kind = kind;
  message.request = 77;
  message.bytes = bytes;
  message.address = 0x1000;
  message.operation = PINION_FIREHOSE_ADD;
  message.operand = 5;
  message.payload = payload;
  return message;
}

TEST(DataMessage, ArrivesAsItWasSent) {
  using Kind = DataMessage::Kind;
  for (const DataMessage& sent : {message_of(Kind::put, 5, "hello"), message_of(Kind::get, kMost),
                                  message_of(Kind::atomic, 8), message_of(Kind::answer, 5, "hello")}) {
    const auto wire = wire_of(sent);
    const auto got = decode_data(wire.data(), wire.size(), kMost);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->kind, sent.kind);
    EXPECT_EQ(got->request, sent.request);
    EXPECT_EQ(got->bytes, sent.bytes);
    EXPECT_EQ(got->address, sent.address);
    EXPECT_EQ(got->operand, sent.operand);
    if (sent.payload) {
      EXPECT_EQ(std::memcmp(got->payload, sent.payload, sent.bytes), 0);
    }
  }
}

TEST(DataMessage, NonsenseIsRefused) {
  using Kind = DataMessage::Kind;
  const auto refused = [](const DataMessage& message, std::size_t cut = 0) {
    const auto wire = wire_of(message);
    return !decode_data(wire.data(), wire.size() - cut, kMost);
  };
  EXPECT_TRUE(refused(message_of(Kind::put, 5, "hello"), 1));
  EXPECT_TRUE(refused(message_of(Kind::put, 5)));
  EXPECT_TRUE(refused(message_of(Kind::get, kMost + 1)));
  EXPECT_TRUE(refused(message_of(Kind::get, 8), 1));
  EXPECT_TRUE(refused(message_of(Kind::atomic, 16)));
  EXPECT_TRUE(refused(message_of(static_cast<Kind>(0), 8)));
  EXPECT_TRUE(refused(message_of(static_cast<Kind>(9), 8)));
  DataMessage beyond = message_of(Kind::get, 8);
  beyond.address = kAddressEnd - 4;
  EXPECT_TRUE(refused(beyond));
  DataMessage odd = message_of(Kind::atomic, 8);
  odd.address += 4;
  EXPECT_TRUE(refused(odd));
  odd = message_of(Kind::atomic, 8);
  odd.operation = PINION_FIREHOSE_COMPARE_SWAP + 1;
  EXPECT_TRUE(refused(odd));
}

/// A scattered put of `data`, or a get, with the pieces as given.
std::vector<char> scattered(DataMessage::Kind kind, const std::vector<DataPiece>& pieces,
                            const std::string& data) {
  std::string payload(reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(DataPiece));
  payload += data;
  DataMessage message = message_of(kind, static_cast<std::uint32_t>(payload.size()), payload.data());
  message.operand = pieces.size();
  return wire_of(message);
}

TEST(DataMessage, ScatteredPiecesAreAllOfThePayload) {
  using Kind = DataMessage::Kind;
  const auto read = [](const std::vector<char>& bytes) {
    return decode_data(bytes.data(), bytes.size(), kMost);
  };
  const std::vector<char> wire = scattered(Kind::scattered_put, {{0x1000, 2}, {0x2000, 3}}, "hello");
  const auto got = read(wire);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->operand, 2U);
  EXPECT_EQ(piece_of(*got, 1).address, 0x2000U);
  EXPECT_EQ(piece_of(*got, 1).bytes, 3U);
  EXPECT_TRUE(read(scattered(Kind::scattered_get, {{0x1000, 2}, {0x2000, kMost - 2}}, "")));
  EXPECT_FALSE(read(scattered(Kind::scattered_put, {{0x1000, 2}, {0x2000, 3}}, "hell")));
  EXPECT_FALSE(read(scattered(Kind::scattered_put, {{0x1000, 2}, {0x2000, ~std::uint64_t{0} - 1}}, "hello")));
  EXPECT_FALSE(read(scattered(Kind::scattered_put, {{0x1000, 5}, {0x2000, 0}}, "hello")));
  EXPECT_FALSE(read(scattered(Kind::scattered_put, {{kAddressEnd - 2, 5}}, "hello")));
  EXPECT_FALSE(read(scattered(Kind::scattered_put, {}, "hello")));
  EXPECT_FALSE(read(scattered(Kind::scattered_get, {{0x1000, 2}, {0x2000, kMost - 1}}, "")));
  EXPECT_FALSE(read(scattered(Kind::scattered_get, {{0x1000, 2}}, "x")));
}

TEST(DataMessage, RandomBytesAreReadWithinTheirBounds) {
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<char> wire(random() % 120);
    for (char& byte : wire) byte = static_cast<char>(random());
    if (!wire.empty()) wire[0] = static_cast<char>(random() % 8);
    const auto got = decode_data(wire.data(), wire.size(), kMost);
    if (got && got->payload) {
      EXPECT_EQ(static_cast<const char*>(got->payload) + got->bytes, wire.data() + wire.size());
    }
  }
}

// Each damaged copy lies in memory of its own length, where a sanitizer sees each byte beyond it. What passes
// names pieces in memory that are all of the payload.
TEST(DataMessage, DamagedPiecesAreReadWithinTheirBounds) {
  using Kind = DataMessage::Kind;
  std::mt19937_64 random(1);
  unsigned passed = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Kind kind = random() % 2 ? Kind::scattered_put : Kind::scattered_get;
    std::vector<DataPiece> pieces(1 + random() % 6);
    std::size_t bytes = 0;
    for (DataPiece& piece : pieces) {
      piece = {random() >> (17 + random() % 40), 1 + random() % 40};
      bytes += piece.bytes;
    }
    std::vector<char> wire =
        scattered(kind, pieces, std::string(kind == Kind::scattered_put ? bytes : 0, 'x'));
    for (std::size_t i = random() % 4; i-- > 0;) wire[random() % wire.size()] = static_cast<char>(random());
    if (random() % 4 == 0) wire.resize(random() % (wire.size() + 1));
    wire.shrink_to_fit();
    const auto got = decode_data(wire.data(), wire.size(), kMost);
    if (!got || (got->kind != Kind::scattered_put && got->kind != Kind::scattered_get)) continue;
    ++passed;
    std::size_t sum = 0;
    for (std::size_t i = 0; i < got->operand; ++i) {
      const DataPiece piece = piece_of(*got, i);
      EXPECT_TRUE(is_addressable(piece.address, piece.bytes));
      EXPECT_GT(piece.bytes, 0U);
      sum += piece.bytes;
    }
    const std::size_t data = got->kind == Kind::scattered_put ? sum : 0;
    ASSERT_EQ(wire.size(), kDataHeader + got->operand * sizeof(DataPiece) + data);
    EXPECT_LE(sum, kMost);
  }
  EXPECT_GT(passed, 1000U);
}

/// Times of a call of 100 pieces, apart and together.
unsigned calls_together(Packing& packing, unsigned calls, Duration apart, Duration together) {
  unsigned count = 0;
  for (unsigned i = 0; i < calls; ++i) {
    const bool packs = packing.together(100);
    packing.took(100, packs, packs ? together : apart);
    count += packs;
  }
  return count;
}

TEST(Packing, TakesTheFasterWayAndTriesTheOther) {
  Packing packing;
  EXPECT_GT(calls_together(packing, 1'000, 10'000, 1'000), 960U);
  EXPECT_LT(calls_together(packing, 1'000, 100, 1'000), 100U) << "it has changed";
  EXPECT_GT(calls_together(packing, 1'000, 100, 1'000), 2U);
}

TEST(OwnMemory, ErrorsInsteadOfFaults) {
  const std::size_t page = page_size();
  auto* const memory = static_cast<char*>(
      ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::mprotect(memory + page, page, PROT_READ);
  ::munmap(memory + 2 * page, page);
  const auto at = reinterpret_cast<std::uint64_t>(memory);
  std::vector<char> buffer(2 * page, 'x');
  std::uint64_t old = 0;
  EXPECT_EQ(own_memory::write(at + 8, "12345678", 8), 0);
  EXPECT_EQ(own_memory::write(at, buffer.data(), 2 * page), EFAULT);
  EXPECT_EQ(own_memory::read(buffer.data(), at, 2 * page), 0);
  EXPECT_EQ(own_memory::read(buffer.data(), at + page, 2 * page), EFAULT);
  EXPECT_EQ(own_memory::apply(at, 8, PINION_FIREHOSE_ADD, 7, 0, old), 0);
  EXPECT_EQ(own_memory::apply(at + page, 8, PINION_FIREHOSE_ADD, 7, 0, old), EFAULT);
  EXPECT_EQ(own_memory::apply(at + 2 * page, 4, PINION_FIREHOSE_ADD, 7, 0, old), EFAULT);
  ::munmap(memory, 2 * page);
}

TEST(OwnMemory, AtomicsOnAPageThatComesAndGoes) {
  const StartedMonitor started = memory_events::watch(MonitorKind::libc);
  if (started.missing) GTEST_SKIP() << started.missing.message;
  const std::size_t page = page_size();
  void* const memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::atomic<bool> over{false};
  std::thread changing([&] {
    for (int i = 0; i < 3000; ++i) {
      ::munmap(memory, page);
      if (::mmap(memory, page, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != memory)
        std::abort();
    }
    over = true;
  });
  while (!over) {
    std::uint64_t old = 0;
    const int error =
        own_memory::apply(reinterpret_cast<std::uint64_t>(memory), 8, PINION_FIREHOSE_ADD, 1, 0, old);
    EXPECT_TRUE(error == 0 || error == EFAULT || error == EBUSY) << error;
  }
  changing.join();
  ::munmap(memory, page);
  memory_events::leave();
}

TEST(OwnMemory, AnAtomicOnChangingMemoryIsRefused) {
  alignas(8) std::uint64_t word = 7;
  std::uint64_t old = 0;
  const auto at = reinterpret_cast<std::uint64_t>(&word);
  const Range changing{at, at + 8};
  ASSERT_EQ(memory_events::begin({changing}), Answer::proceed);
  EXPECT_EQ(own_memory::apply(at, 8, PINION_FIREHOSE_ADD, 1, 0, old), EBUSY);
  memory_events::end(changing);
  EXPECT_EQ(word, 7U);
  EXPECT_EQ(own_memory::apply(at, 8, PINION_FIREHOSE_ADD, 1, 0, old), 0);
  EXPECT_EQ(word, 8U);
}

TEST(WaitingAtomics, AreServedOnceInTheirOrder) {
  WaitingAtomics waiting;
  DataMessage atomic;
  for (const transfer::Peer peer : {3U, 1U, 3U}) {
    ++atomic.request;
    EXPECT_EQ(waiting.add(peer, atomic), 0);
  }
  std::vector<std::uint32_t> tried;
  const auto serve_last = [&](transfer::Peer, const DataMessage& one) {
    tried.push_back(one.request);
    return one.request == 3;
  };
  EXPECT_FALSE(waiting.flush(serve_last));
  waiting.drop(1);
  EXPECT_FALSE(waiting.flush(serve_last));
  EXPECT_EQ(tried, (std::vector<std::uint32_t>{1, 2, 3, 1}));
  EXPECT_TRUE(waiting.flush([](transfer::Peer peer, const DataMessage&) { return peer == 3; }));
  EXPECT_TRUE(waiting.flush([](transfer::Peer, const DataMessage&) { return false; }));
}

TEST(WaitingAtomics, APeerBeyondItsWindowIsRefused) {
  WaitingAtomics waiting;
  for (std::ptrdiff_t i = 0; i < WaitingAtomics::kMostOfAPeer; ++i) EXPECT_EQ(waiting.add(1, {}), 0);
  EXPECT_EQ(waiting.add(1, {}), EPROTO);
  EXPECT_EQ(waiting.add(2, {}), 0);
}

TEST(OwnMemory, AtomicsAsTheProcessorHasThem) {
  alignas(8) std::uint64_t word = 0;
  const auto apply = [&](unsigned operation, std::uint64_t operand, std::uint64_t compare = 0) {
    std::uint64_t old = 0;
    EXPECT_EQ(own_memory::apply(reinterpret_cast<std::uint64_t>(&word), 8, operation, operand, compare, old),
              0);
    return old;
  };
  EXPECT_EQ(apply(PINION_FIREHOSE_SET, 12), 0U);
  EXPECT_EQ(apply(PINION_FIREHOSE_ADD, ~std::uint64_t{0}), 12U);
  EXPECT_EQ(apply(PINION_FIREHOSE_AND, 9), 11U);
  EXPECT_EQ(apply(PINION_FIREHOSE_OR, 2), 9U);
  EXPECT_EQ(apply(PINION_FIREHOSE_XOR, 1), 11U);
  EXPECT_EQ(apply(PINION_FIREHOSE_COMPARE_SWAP, 100, 11), 10U);
  EXPECT_EQ(apply(PINION_FIREHOSE_COMPARE_SWAP, 100, 10), 10U);
  EXPECT_EQ(apply(PINION_FIREHOSE_FETCH, 0), 100U);
}

}  // namespace
}  // namespace pinion::firehose
