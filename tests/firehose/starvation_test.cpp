// Firehose out of memory: a call that has begun ends, by an error or by a slower way; a peer's question is
// answered; quiet returns.
#include "support/starvation.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "firehose/initiator.h"
#include "firehose/outbox.h"
#include "firehose/owner.h"
#include "pinion/firehose.h"
#include "support/firehose_member.h"
#include "support/processes.h"
#include "support/temporary_directory.h"
#include "support/test_name.h"

namespace pinion::firehose {
namespace {

using test::FirehoseMember;
using test::map_memory;
using test::Processes;
using test::Starvation;

/// Enough that every allocation of one operation is reached.
constexpr unsigned kMostAllocations = 200;

// ---- the protocol

/// Counts; allocates nothing.
struct Counted {
  unsigned pins = 0, grants = 0, refusals = 0, wants = 0, answers = 0;
  std::array<BucketRef, 2 * kMostMoved> pinning;
  void act_for(Owner& owner) {
    while (OwnerAction* const action = owner.next()) {
      if (action->is_message()) count(owner.message_of(*action));
      if (action->kind == OwnerAction::Kind::pin) pinning[pins++] = action->ref;
      owner.put(*action);
    }
  }
  void act_for(Initiator& initiator) {
    while (const auto sent = initiator.next_message()) count(sent->message);
    while (initiator.next_answered()) ++answers;
  }
  void count(const Message& message) {
    if (const auto* answer = std::get_if<Answer>(&message)) {
      grants += answer->grants.count;
      refusals += answer->refusals.count;
      for (const Refusal& refusal : answer->refusals) EXPECT_EQ(refusal.error, ENOMEM);
    }
    if (const auto* move = std::get_if<Move>(&message)) wants += move->wanted.count;
  }
};

TEST(FirehoseStarvation, AWantIsRefused) {
  unsigned spared = 0;
  bool refused = true;
  for (; refused; ++spared) {
    ASSERT_LT(spared, kMostAllocations);
    Counted device;
    Owner owner({Sharing::lending, 64, 0, 2});
    refused = false;
    for (Bucket first = 0; first < 8; first += kMostMoved) {
      Move move;
      for (Bucket bucket = first; bucket < first + kMostMoved; ++bucket) move.wanted.add(bucket);
      const Starvation starvation(spared);
      owner.move(1, move);
      device.act_for(owner);
      refused = refused || Starvation::refused() > 0;
    }
    EXPECT_EQ(device.pins + device.refusals, 8U);
    EXPECT_EQ(owner.firehoses(1), device.pins);
    for (unsigned i = 0; i < device.pins; ++i) {
      owner.pinned(device.pinning[i], {{{0, 1, 0, device.pinning[i].epoch}}, 1});
      device.act_for(owner);
    }
    EXPECT_EQ(device.grants, device.pins);
    owner.gone(1);
    EXPECT_EQ(owner.held(), 0U);
  }
  EXPECT_GT(spared, 1U);
}

TEST(FirehoseStarvation, ARevocationThatCannotBeginChangesNothing) {
  Owner owner({Sharing::lending, 4, 0, 2});
  {
    const Starvation starvation(0);
    EXPECT_THROW(owner.revoke(1, {0, 8}, 1), std::bad_alloc);
  }
  EXPECT_EQ(owner.deadline(), kNever);
}

TEST(FirehoseStarvation, AMissGoesByMessage) {
  unsigned spared = 0;
  bool refused = true;
  for (; refused; ++spared) {
    ASSERT_LT(spared, kMostAllocations);
    Counted program;
    Initiator initiator(2, 64);
    std::array<Waiter, 24> waiters;
    unsigned waiting = 0, by_message = 0;
    refused = false;
    for (Bucket bucket = 0; bucket < waiters.size(); ++bucket) {
      const Starvation starvation(spared);
      initiator.at(1 + static_cast<Time>(bucket));
      const auto need = initiator.need(1, 7 * bucket * bucket, waiters[bucket]);
      program.act_for(initiator);
      initiator.flush();
      program.act_for(initiator);
      waiting += need.what == Initiator::Need::asks;
      by_message += need.what == Initiator::Need::by_message;
      refused = refused || Starvation::refused() > 0;
    }
    EXPECT_EQ(waiting + by_message, waiters.size());
    EXPECT_EQ(waiting, program.wants);
    EXPECT_EQ(initiator.size(), waiting);
    const Starvation starvation(0);
    initiator.gone(1);
    program.act_for(initiator);
    EXPECT_EQ(program.answers, waiting);
    EXPECT_EQ(initiator.size(), 0U);
  }
  EXPECT_GT(spared, 1U);
}

// ---- messages

/// Its queue is always full.
class FullEndpoint final : public transfer::Endpoint {
 public:
  Peer self() const override { return 0; }
  Peer peers() const override { return 3; }
  const transfer::EndpointCapabilities& capabilities() const override { return capabilities_; }
  pinion_domain* domain() const override { return nullptr; }
  Error put_list(Peer, std::span<const transfer::LocalMemory>, transfer::RemoteMemory,
                 transfer::Operation&) override {
    return Error::make(EAGAIN, "full");
  }
  Error get_list(Peer, std::span<const transfer::LocalMemory>, transfer::RemoteMemory,
                 transfer::Operation&) override {
    return Error::make(EAGAIN, "full");
  }
  Error send(Peer, unsigned, const void*, std::size_t, transfer::Operation*) override {
    return Error::make(EAGAIN, "full");
  }
  void disconnect(Peer) override {}
  void handle(unsigned, transfer::MessageHandler&) override {}
  unsigned progress() override { return 0; }
  void wait(Duration) override {}

 private:
  transfer::EndpointCapabilities capabilities_;
};

TEST(FirehoseStarvation, AMessageThatCannotBeKeptLosesItsPeer) {
  FullEndpoint endpoint;
  Outbox outbox(endpoint, endpoint.peers());
  {
    const Starvation starvation(0);
    EXPECT_EQ(outbox.send(1, kUserMessage, "hello", 5).code, ENOMEM);
    EXPECT_TRUE(outbox.empty()) << "the program knows";
    EXPECT_EQ(outbox.send(2, kControlMessage, "hello", 5).code, ENOMEM);
    EXPECT_FALSE(outbox.empty());
  }
  Peer lost = 0;
  EXPECT_TRUE(outbox.take_lost(lost));
  EXPECT_EQ(lost, 2U);
  EXPECT_FALSE(outbox.take_lost(lost));
  EXPECT_TRUE(outbox.empty());
}

// ---- jobs

constexpr std::size_t kBucket = 4096;
constexpr std::size_t kBytes = std::size_t{32} << 20;

struct Kind {
  const char* provider;
  const char* strategy;
};

class FirehoseStarvationJob : public testing::TestWithParam<Kind> {
 protected:
  static void run(const std::function<void(FirehoseMember&)>& f) {
    TemporaryDirectory directory;
    Processes all(2, [&](unsigned process) {
      pinion_firehose_options options{};
      options.strategy = GetParam().strategy;
      options.bucket = kBucket;
      options.memory = 4 * kBytes;
      FirehoseMember member(GetParam().provider, directory.path(), process, 2, options);
      f(member);
    });
    if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam().provider;
  }
};

/// Operations of process 0, and what they move.
struct Traffic {
  pinion_firehose* firehose;
  std::uint64_t target;  ///< moves on: each operation finds new buckets
  std::vector<char> local = std::vector<char>(3 * kBucket);
  std::vector<pinion_firehose_piece> pieces = {};

  void fill(char seed) {
    for (std::size_t i = 0; i < local.size(); ++i) local[i] = static_cast<char>(seed + i % 101);
  }
  void cut(std::size_t count, std::size_t bytes, std::size_t step) {
    pieces.clear();
    for (std::size_t i = 0; i < count; ++i) pieces.push_back({&local[i * bytes], target + i * step, bytes});
  }
};

using Begin = int (*)(Traffic&, pinion_firehose_handle&);
struct Named {
  const char* name;
  Begin begin;
};
const Named kOperations[] = {
    {"small put",
     [](Traffic& of, pinion_firehose_handle& handle) {
       return pinion_firehose_put_nb(of.firehose, 1, of.target, of.local.data(), 8, &handle);
     }},
    {"put over buckets",
     [](Traffic& of, pinion_firehose_handle& handle) {
       return pinion_firehose_put_nb(of.firehose, 1, of.target + 8, of.local.data(), 2 * kBucket, &handle);
     }},
    {"get",
     [](Traffic& of, pinion_firehose_handle& handle) {
       return pinion_firehose_get_nb(of.firehose, 1, of.target + 8, of.local.data(), 2 * kBucket, &handle);
     }},
    {"small put_v",
     [](Traffic& of, pinion_firehose_handle& handle) {
       return pinion_firehose_put_v(of.firehose, 1, of.pieces.data(), of.pieces.size(), &handle);
     }},
    {"small get_v",
     [](Traffic& of, pinion_firehose_handle& handle) {
       return pinion_firehose_get_v(of.firehose, 1, of.pieces.data(), of.pieces.size(), &handle);
     }},
    {"implicit put",
     [](Traffic& of, pinion_firehose_handle& handle) {
       handle = {};
       return pinion_firehose_put_nbi(of.firehose, 1, of.target, of.local.data(), 8);
     }},
    {"atomic",
     [](Traffic& of, pinion_firehose_handle& handle) {
       handle = {};
       return pinion_firehose_atomic(of.firehose, 1, of.target, 8, PINION_FIREHOSE_ADD, 1, 0, nullptr);
     }},
};

/// It fails at each allocation in turn. Returns how many that were.
unsigned starve(Traffic& traffic, Begin begin, Starvation::Fails fails) {
  for (unsigned spared = 0; spared < kMostAllocations; ++spared) {
    traffic.target += 8 * kBucket;
    traffic.cut(20, 8, kBucket / 4);
    traffic.fill(static_cast<char>(spared));
    pinion_firehose_handle handle{};
    int code = 0;
    unsigned refused = 0;
    {
      const Starvation starvation(spared, fails);
      code = begin(traffic, handle);
      refused = Starvation::refused();
    }
    EXPECT_TRUE(code == 0 || code == ENOMEM) << pinion_last_error();
    if (code == 0) code = pinion_firehose_wait(traffic.firehose, &handle);
    EXPECT_TRUE(code == 0 || code == ENOMEM) << pinion_last_error();
    const int quiet = pinion_firehose_quiet(traffic.firehose);
    EXPECT_TRUE(quiet == 0 || quiet == ENOMEM) << pinion_last_error();
    if (refused > 0) continue;
    EXPECT_EQ(code | quiet, 0) << "memory was there";
    return spared;
  }
  ADD_FAILURE() << "it allocates for ever";
  return 0;
}

TEST_P(FirehoseStarvationJob, AnOperationEnds) {
  run([](FirehoseMember& member) {
    char* const mine = map_memory(kBytes);
    const auto all = member.exchange(mine);
    if (member.process() == 0) {
      Traffic traffic{member.firehose, all[1]};
      unsigned failed = 0;
      for (const Named& operation : kOperations)
        for (const auto fails : {Starvation::Fails::one, Starvation::Fails::all}) {
          SCOPED_TRACE(operation.name);
          failed += starve(traffic, operation.begin, fails);
        }
      EXPECT_GT(failed, 20U);
      EXPECT_LT(traffic.target + 8 * kBucket, all[1] + kBytes);
      // The job is as before.
      traffic.fill(3);
      ASSERT_EQ(pinion_firehose_put(member.firehose, 1, all[1], traffic.local.data(), 2 * kBucket), 0);
      std::vector<char> back(2 * kBucket);
      ASSERT_EQ(pinion_firehose_get(member.firehose, 1, all[1], back.data(), back.size()), 0);
      EXPECT_EQ(std::memcmp(back.data(), traffic.local.data(), back.size()), 0);
    }
    member.barrier();
  });
}

// Process 1 has no memory wherever it handles messages.
TEST_P(FirehoseStarvationJob, APeerIsServed) {
  run([](FirehoseMember& member) {
    constexpr std::uint64_t kPuts = 60;
    char* const mine = map_memory(kBytes);
    auto* const last = reinterpret_cast<std::atomic<std::uint64_t>*>(mine);
    const auto all = member.exchange(mine);
    if (member.process() == 0) {
      for (std::uint64_t i = 1; i <= kPuts; ++i) {
        ASSERT_EQ(pinion_firehose_put(member.firehose, 1, all[1] + i * 3 * kBucket, &i, sizeof i), 0)
            << pinion_last_error();
        ASSERT_EQ(pinion_firehose_put(member.firehose, 1, all[1], &i, sizeof i), 0) << pinion_last_error();
      }
    } else {
      const Starvation starvation(0);
      while (last->load(std::memory_order_acquire) < kPuts && pinion_firehose_progress(member.firehose) == 0)
        std::this_thread::yield();
    }
    if (member.process() == 1) {
      for (std::uint64_t i = 1; i <= kPuts; ++i)
        EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(mine + i * 3 * kBucket), i);
    }
    member.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, FirehoseStarvationJob,
                         testing::Values(Kind{"tcp;ofi_rxm", "firehose"}, Kind{"tcp;ofi_rxm", "bounce"},
                                         Kind{"shm", "firehose"}, Kind{"tcp;ofi_rxm", "rendezvous-unpin"}),
                         [](const auto& info) {
                           return test::test_name(std::string(info.param.provider) + "_" +
                                                  info.param.strategy);
                         });

}  // namespace
}  // namespace pinion::firehose
