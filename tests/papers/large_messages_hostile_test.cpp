// Peers that lie: control messages made of random bytes, of plausible fields, and of true ones with changes.
// Whatever they send, memory outside the posted buffers stays as it is, requests end, and leases return.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include "papers/messages/control.h"
#include "papers/messages/large_messages.h"
#include "pinion/pinion.h"
#include "support/made_network.h"
#include "transfer/endpoint/remote_memory.h"

namespace {

using namespace pinion::transfer;
using pinion::test::MadeNetwork;

constexpr std::size_t kBytes = 64 << 10;

TEST(Control, IsReadAsItWasWritten) {
  const Control kinds[] = {
      {.kind = ControlKind::announce, .message = 7, .total = 100, .bytes = 60, .source = {1, 2}},
      {.kind = ControlKind::announce, .message = 8},
      {.kind = ControlKind::segment, .message = 7, .offset = 60, .bytes = 40, .source = {3, 4}},
      {.kind = ControlKind::segment, .message = 7, .offset = 60, .bytes = 40, .source = {3, 4, {5, 20, {6}}}},
      {.kind = ControlKind::accept, .message = UINT64_MAX},
      {.kind = ControlKind::pulled, .message = 7, .offset = 60, .bytes = 40},
      {.kind = ControlKind::refuse, .code = EMSGSIZE, .message = 7}};
  for (const Control& sent : kinds) {
    const ControlRecord record = encode(sent);
    Control got;
    ASSERT_TRUE(decode(record.data(), record.size(), got));
    EXPECT_EQ(encode(got), record);
    for (std::size_t size = 0; size < record.size(); ++size) EXPECT_FALSE(decode(record.data(), size, got));
  }
}

TEST(Control, FieldsThatMakeNoSenseAreRefused) {
  const Control wrong[] = {
      {.kind = static_cast<ControlKind>(0)},
      {.kind = static_cast<ControlKind>(6)},
      {.kind = ControlKind::announce, .total = kMostBytes + 1},
      {.kind = ControlKind::announce, .total = 10, .bytes = 11, .source = {1, 2}},
      {.kind = ControlKind::announce, .total = 10, .offset = 1, .bytes = 5, .source = {1, 2}},
      {.kind = ControlKind::announce, .total = 10, .source = {1, 0}},
      {.kind = ControlKind::segment, .bytes = 0, .source = {1, 2}},
      {.kind = ControlKind::segment, .offset = UINT64_MAX, .bytes = 2},
      {.kind = ControlKind::segment, .offset = kMostBytes, .bytes = 1},
      {.kind = ControlKind::segment, .total = 1, .bytes = 1},
      {.kind = ControlKind::accept, .bytes = 1},
      {.kind = ControlKind::pulled, .bytes = 1, .source = {0, 1}},
      {.kind = ControlKind::pulled},
      {.kind = ControlKind::refuse, .code = 0},
      {.kind = ControlKind::refuse, .code = ECANCELED},
      {.kind = ControlKind::accept, .code = EIO},
      {.kind = ControlKind::accept, .source = {0, 0, {0, 8}}}};
  for (const Control& control : wrong) {
    const ControlRecord record = encode(control);
    Control got;
    EXPECT_FALSE(decode(record.data(), record.size(), got)) << static_cast<int>(control.kind);
  }
  ControlRecord other = encode({.kind = ControlKind::accept});
  Control got;
  other[0] = 2;  // a version to come
  EXPECT_FALSE(decode(other.data(), other.size(), got));
}

/// Peer 0 keeps to the rules; peer 1 is driven by the test, message by message.
class Hostile : public ::testing::Test, private MessageHandler {
 protected:
  void SetUp() override { ASSERT_EQ(pinion_start("retention=on-demand,limit=1G"), 0) << pinion_last_error(); }
  void TearDown() override { EXPECT_EQ(pinion_stop(), 0) << pinion_last_error(); }

  void begin(unsigned seed) {
    network_ = std::make_unique<MadeNetwork>(2, seed);
    LargeMessages::Result opened = LargeMessages::open((*network_)[0], {.bounce_below = 8192,
                                                                        .pipeline_from = 16384,
                                                                        .piece_bytes = 16384,
                                                                        .chunk_bytes = 4096,
                                                                        .chunks = 8});
    ASSERT_FALSE(opened.error) << opened.error.message;
    messages_ = std::move(opened.messages);
    (*network_)[1].handle(0, *this);
    ASSERT_EQ(pinion_acquire((*network_)[1].domain(), evil_.data(), evil_.size(), PINION_ACCESS_REMOTE_READ,
                             &lease_),
              0);
    keys_.size = sizeof keys_;
    ASSERT_EQ(pinion_lease_keys(&lease_, &keys_), 0);
  }
  /// Two receives of kBytes with guards around, and two sends.
  void post() {
    for (int i = 0; i < 2; ++i) {
      auto& memory = memories_.emplace_back(3 * kBytes, 'g');
      messages_->receive(1, memory.data() + kBytes, kBytes, requests_.emplace_back());
      messages_->send(1, sent_.data(), i == 0 ? sent_.size() : 5000, requests_.emplace_back());
    }
  }
  void tell(const void* bytes, std::size_t size) {
    // Refused once the victim's queue is full.
    static_cast<void>((*network_)[1].send(0, 0, bytes, size, nullptr));
  }
  void tell(const Control& control) {
    const ControlRecord record = encode(control);
    tell(record.data(), record.size());
  }
  void move() {
    messages_->progress();
    (*network_)[1].progress();
  }
  /// The peer goes; everything must be as it should.
  void end() {
    network_->cut(1);
    for (int turn = 0; turn < 10'000 && !all_done(); ++turn) move();
    EXPECT_TRUE(all_done());
    EXPECT_EQ(messages_->pool().free_chunks(), messages_->pool().chunks());
    EXPECT_EQ(network_->bad_writes(), 0u);
    for (const auto& memory : memories_)
      for (std::size_t i = 0; i < kBytes; ++i)
        ASSERT_TRUE(memory[i] == 'g' && memory[2 * kBytes + i] == 'g') << "corrupt";
    messages_->close();
    EXPECT_TRUE((*network_)[0].close_domain()) << pinion_last_error();
    EXPECT_EQ(pinion_release(&lease_), 0);
    network_.reset();
    messages_.reset();
    memories_.clear();
    requests_.clear();
    heard_.clear();
  }
  bool all_done() const {
    return std::all_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.done(); });
  }
  RemoteMemory evil_memory() const { return remote_memory(keys_, evil_.data()); }
  void message(Peer, const void* payload, std::size_t bytes) override {
    Control control;
    ASSERT_TRUE(decode(payload, bytes, control));
    heard_.push_back(control);
  }
  void gone(Peer) override {}

  std::unique_ptr<MadeNetwork> network_;
  std::unique_ptr<LargeMessages> messages_;
  std::vector<char> evil_ = std::vector<char>(4 * kBytes, 'e');
  std::vector<char> sent_ = std::vector<char>(kBytes, 's');
  std::list<std::vector<char>> memories_;
  std::list<Request> requests_;
  std::vector<Control> heard_;  ///< by the hostile peer
  pinion_lease lease_ = PINION_LEASE_INIT;
  pinion_keys keys_{};
};

TEST_F(Hostile, EachLieEndsTheChannel) {
  const Control announce{.kind = ControlKind::announce, .total = kBytes, .bytes = 4096, .source = {}};
  const auto with_memory = [&](Control control) {
    control.source = evil_memory();
    return control;
  };
  const std::function<void()> lies[] = {
      [&] { tell("nonsense", 8); }, [&] { tell(nullptr, 0); },
      // Numbers that are not the next.
      [&] { tell({.kind = ControlKind::announce, .message = 1, .total = 5}); },
      [&] { tell({.kind = ControlKind::segment, .message = 9, .bytes = 4, .source = evil_memory()}); },
      // A segment before the accept; over bytes that are there; beyond the message.
      [&] {
        tell(with_memory(announce));
        tell({.kind = ControlKind::segment, .offset = 0, .bytes = 4096, .source = evil_memory()});
      },
      [&] {
        tell(with_memory(announce));
        tell({.kind = ControlKind::segment, .offset = 8192, .bytes = 4096, .source = evil_memory()});
      },
      [&] {
        tell(with_memory(announce));
        tell({.kind = ControlKind::segment, .offset = 4096, .bytes = kBytes, .source = evil_memory()});
      },
      // Answers without a question, or twice.
      [&] { tell({.kind = ControlKind::accept, .message = 5}); },
      [&] {
        tell({.kind = ControlKind::accept});
        tell({.kind = ControlKind::accept});
      },
      [&] { tell({.kind = ControlKind::pulled, .offset = 1, .bytes = 77}); },
      [&] { tell({.kind = ControlKind::pulled, .message = 40, .bytes = 77}); },
      [&] { tell({.kind = ControlKind::refuse, .code = EIO, .message = 40}); },
      [&] {
        network_->queue = 4096;
        for (unsigned i = 0; i < 1100; ++i) tell({.kind = ControlKind::announce, .message = i, .total = 1});
      }};
  int number = 0;
  for (const auto& lie : lies) {
    begin(1);
    post();
    for (int turn = 0; turn < 5; ++turn) move();
    lie();
    for (int turn = 0; turn < 50; ++turn) move();
    EXPECT_TRUE(all_done()) << "lie " << number;
    EXPECT_EQ(requests_.front().error().code, EPROTO) << "lie " << number;
    end();
    ++number;
  }
}

TEST_F(Hostile, RandomMessagesDoNoHarm) {
  std::mt19937_64 random(11);
  const auto pick = [&](auto... values) {
    const std::uint64_t all[] = {static_cast<std::uint64_t>(values)...};
    return all[random() % (sizeof...(values))];
  };
  for (unsigned round = 0; round < 400; ++round) {
    begin(round + 1);
    network_->percent_now = 50;
    post();
    for (unsigned i = 0; i < 60; ++i) {
      Control control;
      if (!heard_.empty() && random() % 2 == 0) {
        // The true answer, perhaps; then a change.
        control = heard_[random() % heard_.size()];
        control.kind = static_cast<ControlKind>(pick(2, 4, 4, 4, 5));
        if (control.kind != ControlKind::pulled) control.offset = control.bytes = 0;
        control.code = control.kind == ControlKind::refuse ? EIO : 0;
        control.total = 0;
        control.source = {};
      } else {
        control = {.kind = static_cast<ControlKind>(pick(1, 1, 2, 2, 3, 4, 5)),
                   .code = static_cast<std::uint16_t>(pick(0, 0, 0, EIO, EMSGSIZE)),
                   .message = pick(0, 0, 1, 2, random()),
                   .total = pick(0, 1, 4096, kBytes, kBytes + 1, kMostBytes, random()),
                   .offset = pick(0, 0, 4096, 8192, kBytes, random()),
                   .bytes = pick(0, 1, 4096, 4096, kBytes, random()),
                   .source = random() % 4 ? evil_memory() : RemoteMemory{random(), random() % 9}};
        if (control.kind == ControlKind::announce) {
          control.message = i / 2;
          control.code = 0;
          control.offset = 0;
        }
        if (control.kind == ControlKind::segment) control.code = 0, control.total = 0;
      }
      if (random() % 8 == 0) control.source.raw.bytes = 1 + random() % RawKey::kMost;
      ControlRecord record = encode(control);
      if (random() % 50 == 0)
        record[random() % record.size()] ^= static_cast<unsigned char>(1 << random() % 8);
      tell(record.data(), random() % 100 == 0 ? random() % record.size() : record.size());
      move();
    }
    end();
  }
}

TEST_F(Hostile, RandomBytesDoNoHarm) {
  std::mt19937_64 random(12);
  for (unsigned round = 0; round < 50; ++round) {
    begin(round + 1);
    post();
    for (unsigned i = 0; i < 20; ++i) {
      ControlRecord record(random() % 2 ? kMostControlBytes : 56);
      for (std::size_t at = 0; at < record.size(); ++at) record[at] = static_cast<unsigned char>(random());
      if (random() % 2) record[0] = 1;
      tell(record.data(), record.size());
      move();
    }
    end();
  }
}

}  // namespace
