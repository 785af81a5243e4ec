// Firehose's control messages, damaged, and from peers that lie: only the liar loses by it.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "firehose/initiator.h"
#include "firehose/owner.h"

namespace pinion {
namespace {

using namespace firehose;

constexpr BucketSize kSize{4096};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  std::uint64_t any() { return engine_() >> below(64); }

 private:
  std::mt19937_64 engine_;
};

Grant grant_of(Bucket bucket, Epoch epoch) {
  const Range range = kSize.range(bucket);
  const Address middle = range.begin + range.bytes() / 2;
  return {
      {bucket, epoch},
      {{{range.begin, middle, range.begin + epoch, epoch * 3}, {middle, range.end, middle, epoch * 5}}, 2}};
}

std::vector<Message> samples() {
  Move move;
  Release release;
  Answer answer;
  for (Bucket bucket = 1; bucket <= kMostMoved; ++bucket) {
    move.wanted.add(bucket);
    move.victims.add({bucket + 10, bucket});
    answer.grants.add(grant_of(bucket, bucket));
    answer.refusals.add({bucket + 20, EBUSY});
  }
  move.expected = 12'345;
  answer.limit = 17;
  for (Bucket bucket = 0; bucket < kMostReleased; ++bucket) release.firehoses.add({bucket, bucket + 1});
  return {move, release, answer, Recall{{5, 6}, 7}, Limit{3, 4, 56'789}};
}

std::vector<std::byte> encoded(const Message& message) {
  std::vector<std::byte> wire(kMostMessage);
  wire.resize(encode(message, wire.data()));
  return wire;
}

TEST(FirehoseMessages, AreReadAsTheyWereWritten) {
  for (const Message& message : samples()) {
    const auto wire = encoded(message);
    EXPECT_LE(wire.size(), kMostMessage);
    const auto decoded = decode(wire.data(), wire.size(), kSize);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->message, message);
    EXPECT_EQ(decoded->bytes, wire.size());
  }
}

TEST(FirehoseMessages, OnlyAMoveCarriesARider) {
  for (const Message& message : samples()) {
    auto wire = encoded(message);
    const std::size_t bytes = wire.size();
    wire.resize(bytes + 8);
    const auto decoded = decode(wire.data(), wire.size(), kSize);
    ASSERT_EQ(decoded.has_value(), std::holds_alternative<Move>(message));
    if (decoded) {
      EXPECT_EQ(decoded->bytes, bytes);
    }
  }
}

TEST(FirehoseMessages, CutOnesAreRefused) {
  for (const Message& message : samples()) {
    const auto wire = encoded(message);
    for (std::size_t bytes = 0; bytes < wire.size(); ++bytes) {
      const std::vector<std::byte> cut(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(bytes));
      EXPECT_FALSE(decode(cut.data(), cut.size(), kSize));
    }
  }
}

TEST(FirehoseMessages, FieldsThatNoMemoryHasAreRefused) {
  const auto refused = [](const Message& message) {
    const auto wire = encoded(message);
    return !decode(wire.data(), wire.size(), kSize);
  };
  Move move;
  EXPECT_TRUE(refused(move)) << "wants nothing";
  move.wanted.add(kSize.end());
  EXPECT_TRUE(refused(move));
  EXPECT_TRUE(refused(Limit{1, 1, -1})) << "expected before now";
  Answer answer;
  answer.grants.add(grant_of(3, 0));
  EXPECT_TRUE(refused(answer)) << "no epoch";
  answer.grants.items[0] = grant_of(3, 1);
  answer.grants.items[0].parts.items[1].end += 1;
  EXPECT_TRUE(refused(answer)) << "beyond the bucket";
  answer.grants.items[0] = grant_of(3, 1);
  answer.grants.items[0].parts.items[0].end = answer.grants.items[0].parts.items[0].begin;
  EXPECT_TRUE(refused(answer)) << "empty";
  answer.grants.items[0].parts.count = 0;
  EXPECT_TRUE(refused(answer)) << "of no memory";
  EXPECT_TRUE(refused(Recall{{1, kSize.end()}, 1}));
  Answer refusal;
  refusal.refusals.add({3, 0});
  EXPECT_TRUE(refused(refusal)) << "refused without error";
}

TEST(FirehoseMessages, DamagedOnesAreReadOrRefused) {
  Random random(1);
  for (int round = 0; round < 20'000; ++round) {
    auto wire = encoded(samples()[random.below(5)]);
    for (std::uint64_t i = random.below(4); i-- > 0;)
      wire[random.below(wire.size())] = static_cast<std::byte>(random.any());
    if (random.below(4) == 0) wire.resize(random.below(wire.size() + 1));
    const auto decoded = decode(wire.data(), wire.size(), kSize);
    if (decoded) {
      EXPECT_EQ(encoded(decoded->message).size(), decoded->bytes);
    }
  }
}

/// An owner's process: it registers at once or later, as the test chooses.
struct Device {
  std::map<Bucket, Epoch> registered;
  std::vector<BucketRef> pinning, unpinning;
  std::set<Revocation> revoking;
  std::set<std::pair<Peer, Bucket>> granted;  ///< as told to the peers

  static bool exposes(const void*, Bucket bucket) { return bucket < 64; }
  /// Carries out what an event of the owner asks for.
  void act_for(Owner& owner) {
    using Kind = OwnerAction::Kind;
    while (OwnerAction* const action = owner.next()) {
      const OwnerAction now = *action;
      if (now.is_message()) send(now.peer, owner.message_of(*action));
      owner.put(*action);
      if (now.kind == Kind::pin) pin(now.ref);
      if (now.kind == Kind::unpin) unpin(now.ref);
      if (now.kind == Kind::revoked) {
        EXPECT_EQ(revoking.erase(now.number), 1u);
      }
    }
  }
  void send(Peer to, const Message& message) {
    if (const auto* answer = std::get_if<Answer>(&message))
      for (const Grant& grant : answer->grants) granted.insert({to, grant.ref.bucket});
  }
  void pin(BucketRef ref) {
    EXPECT_TRUE(exposes(nullptr, ref.bucket));
    EXPECT_TRUE(registered.insert({ref.bucket, ref.epoch}).second) << "registered twice";
    pinning.push_back(ref);
  }
  void unpin(BucketRef ref) {
    EXPECT_EQ(registered[ref.bucket], ref.epoch);
    unpinning.push_back(ref);
  }
};

void work(Device& device, Owner& owner, Random& random) {
  if (!device.pinning.empty() && random.below(2)) {
    const BucketRef ref = device.pinning.back();
    device.pinning.pop_back();
    if (random.below(8) == 0) {
      device.registered.erase(ref.bucket);
      owner.pin_failed(ref, EFAULT);
    } else {
      owner.pinned(ref, grant_of(ref.bucket, ref.epoch).parts);
    }
    device.act_for(owner);
  }
  if (!device.unpinning.empty() && random.below(2)) {
    const BucketRef ref = device.unpinning.back();
    device.unpinning.pop_back();
    device.registered.erase(ref.bucket);
    owner.unpinned(ref);
    device.act_for(owner);
  }
}

Message lie(Random& random, Epoch newest) {
  const auto ref = [&] { return BucketRef{random.below(70), random.below(newest + 2)}; };
  if (random.below(2)) {
    Release release;
    for (std::uint64_t i = random.below(5); i-- > 0;) release.firehoses.add(ref());
    return release;
  }
  Move move;
  for (std::uint64_t i = 1 + random.below(4); i-- > 0;) move.wanted.add(random.below(70));
  for (std::uint64_t i = random.below(5); i-- > 0;) move.victims.add(ref());
  return move;
}

void owner_among_liars(Sharing sharing, unsigned seed) {
  Random random(seed);
  Device device;
  Owner owner({sharing, 12, 4, 4}, &Device::exposes);
  Move honest;
  honest.wanted.add(1);
  owner.move(3, honest);
  device.act_for(owner);
  while (!device.granted.count({3, 1})) {
    if (device.pinning.empty()) owner.move(3, honest);
    device.act_for(owner);
    work(device, owner, random);
  }
  for (int step = 0; step < 3'000; ++step) {
    const Peer liar = static_cast<Peer>(random.below(3));
    const Message message = lie(random, 40);
    if (const auto* move = std::get_if<Move>(&message)) owner.move(liar, *move);
    if (const auto* release = std::get_if<Release>(&message)) owner.release(liar, *release);
    device.act_for(owner);
    if (random.below(16) == 0) {
      const auto name = static_cast<Revocation>(step);
      device.revoking.insert(name);
      owner.revoke(name, {2 + random.below(40), random.below(10)}, 1);
      device.act_for(owner);
      if (random.below(2)) owner.end_revocation(name), device.revoking.erase(name);
    }
    work(device, owner, random);
    ASSERT_LE(device.registered.size(), 16u);
    ASSERT_EQ(device.registered.size(), owner.registrations().registered());
    ASSERT_EQ(device.registered.count(1), 1u) << "a liar ended another peer's firehose";
  }
  for (Peer liar = 0; liar < 3; ++liar) {
    owner.gone(liar);
    device.act_for(owner);
  }
  EXPECT_EQ(owner.firehoses(3), 1u);
  EXPECT_EQ(owner.held(), 1u);
  while (!device.pinning.empty() || !device.unpinning.empty()) work(device, owner, random);
  EXPECT_TRUE(device.revoking.empty());
}

TEST(FirehoseHostile, PeersLieToAnOwner) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    owner_among_liars(Sharing::lending, seed);
    owner_among_liars(Sharing::static_share, seed);
  }
}

TEST(FirehoseHostile, AReleaseCountsInItsEpoch) {
  Device device;
  Owner owner({Sharing::lending, 4, 0, 2}, &Device::exposes);
  Move move;
  move.wanted.add(1);
  owner.move(1, move);
  device.act_for(owner);
  const BucketRef ref = device.pinning.back();
  owner.pinned(ref, grant_of(ref.bucket, ref.epoch).parts);
  device.act_for(owner);
  Release release;
  release.firehoses.add({ref.bucket, ref.epoch + 1});
  owner.release(1, release);
  EXPECT_EQ(owner.firehoses(1), 1u);
  release.firehoses.items[0] = ref;
  owner.release(1, release);
  EXPECT_EQ(owner.firehoses(1), 0u);
}

// Peers that find a queue of moves go by message, and ask later.
TEST(FirehoseOwner, MovesBeyondMemoryQueueUpToABound) {
  constexpr Bucket kAll = 16;
  Device device;
  Owner owner({Sharing::lending, kAll, 0, 3}, &Device::exposes);
  const auto want = [&](Peer peer, std::initializer_list<Bucket> buckets) {
    Move move;
    for (const Bucket bucket : buckets) move.wanted.add(bucket);
    owner.move(peer, move);
    device.act_for(owner);
  };
  const auto pin_all = [&] {
    for (const BucketRef& ref : std::exchange(device.pinning, {})) {
      owner.pinned(ref, grant_of(ref.bucket, ref.epoch).parts);
      device.act_for(owner);
    }
  };
  for (Bucket bucket = 0; bucket < kAll; ++bucket) want(1, {bucket});
  pin_all();
  Release release;
  for (const auto& [bucket, epoch] : device.registered) release.firehoses.add({bucket, epoch});
  owner.release(1, release);
  device.act_for(owner);
  ASSERT_EQ(owner.registrations().idle(), kAll) << "memory is full of unused ones";

  want(1, {20, 21, 22, 23});
  EXPECT_EQ(owner.firehoses(1), 4U);
  want(2, {30, 15});
  EXPECT_EQ(owner.firehoses(2), 1U);
  EXPECT_TRUE(device.granted.count({2, 15})) << "it needs no move";
  for (const BucketRef& ref : std::exchange(device.unpinning, {})) {
    device.registered.erase(ref.bucket);
    owner.unpinned(ref);
    device.act_for(owner);
  }
  pin_all();
  want(2, {30});
  EXPECT_EQ(owner.firehoses(2), 2U);
}

/// An initiator's process: its uses, and the part that each began with.
struct Uses {
  std::vector<std::pair<Firehose*, RemoteParts>> uses;
  std::uint64_t waiting = 0;

  void act_for(Initiator& initiator) {
    while (initiator.next_message()) continue;
    while (const Waiter* const answered = initiator.next_answered()) {
      --waiting;
      if (answered->firehose) uses.push_back({answered->firehose, answered->firehose->parts});
    }
  }
};

TEST(FirehoseHostile, AnOwnerLies) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Random random(seed);
    Uses program;
    Initiator initiator(2, 4);
    std::vector<std::unique_ptr<Waiter>> waiters;
    const auto end_one = [&] {
      const std::size_t i = random.below(program.uses.size());
      const auto [firehose, part] = program.uses[i];
      program.uses.erase(program.uses.begin() + static_cast<std::ptrdiff_t>(i));
      ASSERT_EQ(firehose->parts, part) << "changed while it was used";
      if (initiator.end_use(*firehose)) initiator.drained(*firehose);
      program.act_for(initiator);
    };
    for (int step = 0; step < 3'000; ++step) {
      const Peer owner = static_cast<Peer>(random.below(2));
      const Bucket bucket = random.below(12);
      switch (random.below(6)) {
        case 0: {
          Waiter& waiter = *waiters.emplace_back(std::make_unique<Waiter>());
          const auto need = initiator.need(owner, bucket, waiter);
          initiator.flush();
          program.waiting += need.what == Initiator::Need::asks || need.what == Initiator::Need::waits;
          if (need.what == Initiator::Need::hit)
            program.uses.push_back({need.firehose, need.firehose->parts});
          break;
        }
        case 1:
          if (!program.uses.empty()) end_one();
          break;
        case 2:
          initiator.recall(owner, {{bucket, random.below(4) ? 1 : random.any()}, random.below(50)});
          break;
        case 3:
          initiator.limit(
              owner, {static_cast<std::uint32_t>(random.below(6)), static_cast<std::uint32_t>(random.any())});
          break;
        default: {
          Answer answer;
          answer.limit = static_cast<std::uint32_t>(random.below(6));
          if (random.below(4)) answer.grants.add(grant_of(bucket, 1 + random.below(50)));
          if (random.below(4) == 0) answer.refusals.add({random.below(12), EIO});
          initiator.answer(owner, answer);
        }
      }
      program.act_for(initiator);
    }
    initiator.gone(0);
    program.act_for(initiator);
    initiator.gone(1);
    program.act_for(initiator);
    EXPECT_EQ(program.waiting, 0u);
    while (!program.uses.empty()) end_one();
    EXPECT_EQ(initiator.size(), 0u);
  }
}

}  // namespace
}  // namespace pinion
