// Barriers and exchanges among processes that are made up: any number of them, messages in any order between
// pairs, and processes that end in the middle.
#include "firehose/gathering.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace pinion::firehose {
namespace {

using transfer::Peer;

constexpr std::size_t kMostMessage = 1024;

/// Messages between processes; those of a pair stay in order.
class Post {
 public:
  explicit Post(Peer peers) : sent_(peers, std::vector<std::deque<std::vector<char>>>(peers)) {}
  void add(Peer from, Peer to, const void* message, std::size_t bytes) {
    ASSERT_LE(bytes, kMostMessage);
    const auto* const begin = static_cast<const char*>(message);
    sent_[from][to].emplace_back(begin, begin + bytes);
    ++messages;
  }
  /// The pairs that have some on the way.
  std::vector<std::pair<Peer, Peer>> ways() const {
    std::vector<std::pair<Peer, Peer>> ways;
    for (Peer from = 0; from < sent_.size(); ++from)
      for (Peer to = 0; to < sent_.size(); ++to)
        if (!sent_[from][to].empty()) ways.emplace_back(from, to);
    return ways;
  }
  std::vector<char> take(Peer from, Peer to) {
    std::vector<char> message = std::move(sent_[from][to].front());
    sent_[from][to].pop_front();
    return message;
  }
  void drop_all_to(Peer to) {
    for (auto& from : sent_) from[to].clear();
  }

  std::size_t messages = 0;

 private:
  std::vector<std::vector<std::deque<std::vector<char>>>> sent_;
};

class MadeEndpoint final : public transfer::Endpoint {
 public:
  MadeEndpoint(Post& post, Peer self, Peer peers) : post_(post), self_(self), peers_(peers) {}
  Peer self() const override { return self_; }
  Peer peers() const override { return peers_; }
  const transfer::EndpointCapabilities& capabilities() const override { return capabilities_; }
  pinion_domain* domain() const override { return nullptr; }
  Error put_list(Peer, std::span<const transfer::LocalMemory>, transfer::RemoteMemory,
                 transfer::Operation&) override {
    return {};
  }
  Error get_list(Peer, std::span<const transfer::LocalMemory>, transfer::RemoteMemory,
                 transfer::Operation&) override {
    return {};
  }
  Error send(Peer to, unsigned, const void* payload, std::size_t bytes, transfer::Operation*) override {
    post_.add(self_, to, payload, bytes);
    return {};
  }
  void disconnect(Peer) override {}
  void handle(unsigned, transfer::MessageHandler&) override {}
  unsigned progress() override { return 0; }
  void wait(Duration) override {}

 private:
  Post& post_;
  const Peer self_, peers_;
  transfer::EndpointCapabilities capabilities_;
};

class Gatherers {
 public:
  Gatherers(Peer peers, unsigned seed) : post(peers), random(seed) {
    for (Peer self = 0; self < peers; ++self) members_.push_back(std::make_unique<Member>(post, self, peers));
  }
  Peer peers() const { return static_cast<Peer>(members_.size()); }
  Gathering& at(Peer peer) { return members_[peer]->gathering; }
  bool alive(Peer peer) const { return members_[peer]->alive; }

  void begin(Peer peer, std::size_t bytes, unsigned round) {
    const std::vector<char> own = share(peer, bytes, round);
    at(peer).begin(own.data(), bytes);
  }
  static std::vector<char> share(Peer peer, std::size_t bytes, unsigned round) {
    return std::vector<char>(bytes, static_cast<char>(1 + peer * 7 + round * 31));
  }
  /// One message on its way arrives, or a process is seen to have ended. False: there is nothing to do.
  bool step() {
    const auto ways = post.ways();
    const std::size_t choices = ways.size() + unseen_.size();
    if (choices == 0) return false;
    const std::size_t chosen = random() % choices;
    if (chosen < ways.size()) {
      const auto [from, to] = ways[chosen];
      const auto message = post.take(from, to);
      if (alive(to)) at(to).arrived(from, message.data(), message.size());
      return true;
    }
    const auto [by, which] = unseen_[chosen - ways.size()];
    unseen_.erase(unseen_.begin() + static_cast<std::ptrdiff_t>(chosen - ways.size()));
    // Its last messages come before.
    for (const auto& [from, to] : post.ways())
      if (from == which && to == by) {
        unseen_.emplace_back(by, which);
        return true;
      }
    if (alive(by)) at(by).gone(which);
    return true;
  }
  void kill(Peer which) {
    members_[which]->alive = false;
    post.drop_all_to(which);
    for (Peer by = 0; by < peers(); ++by)
      if (by != which) unseen_.emplace_back(by, which);
  }

  Post post;
  std::mt19937 random;

 private:
  struct Member {
    Member(Post& post, Peer self, Peer peers)
        : endpoint(post, self, peers),
          outbox(endpoint, peers),
          gathering(outbox, self, peers, kMostMessage) {}
    MadeEndpoint endpoint;
    Outbox outbox;
    Gathering gathering;
    bool alive = true;
  };
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::pair<Peer, Peer>> unseen_;
};

/// The shares that arrived are right; returns whether all took part.
bool check_end(Gatherers& job, Peer peer, std::size_t bytes, unsigned round,
               std::vector<bool>* took_part = nullptr) {
  std::vector<char> all(job.peers() * bytes + 1);
  const bool whole = job.at(peer).end(bytes, all.data());
  for (Peer of = 0; of < job.peers() && bytes > 0; ++of) {
    const std::vector<char> got(all.begin() + static_cast<std::ptrdiff_t>(of * bytes),
                                all.begin() + static_cast<std::ptrdiff_t>((of + 1) * bytes));
    const bool here = got == Gatherers::share(of, bytes, round);
    EXPECT_TRUE(here || got == std::vector<char>(bytes, 0)) << "process " << of << " at " << peer;
    if (took_part) took_part->push_back(here);
  }
  return whole;
}

TEST(FirehoseGathering, RoundsOfAnyNumberOfProcesses) {
  for (const Peer peers : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 13u, 40u}) {
    Gatherers job(peers, peers);
    unsigned steps = 0;
    while ((Peer{1} << steps) < peers) ++steps;
    for (unsigned round = 1; round <= 6; ++round) {
      const std::size_t bytes = std::size_t{round % 3} * Gathering::kMost / 2;
      job.post.messages = 0;
      // One comes late.
      const Peer late = job.random() % peers;
      for (Peer peer = 0; peer < peers; ++peer)
        if (peer != late) job.begin(peer, bytes, round);
      while (job.step()) continue;
      for (Peer peer = 0; peer < peers && peers > 1; ++peer)
        EXPECT_FALSE(peer != late && job.at(peer).is_complete()) << peers << " processes, " << peer;
      job.begin(late, bytes, round);
      while (job.step()) continue;
      for (Peer peer = 0; peer < peers; ++peer) {
        ASSERT_TRUE(job.at(peer).is_complete()) << peers << " processes, " << peer;
        EXPECT_TRUE(check_end(job, peer, bytes, round));
      }
      if (bytes == 0) {
        EXPECT_EQ(job.post.messages, std::size_t{peers} * steps);
      }
    }
  }
}

/// A process that is done begins the next round at once.
TEST(FirehoseGathering, ProcessesRunAhead) {
  constexpr Peer kPeers = 6;
  constexpr unsigned kRounds = 200;
  Gatherers job(kPeers, 1);
  std::vector<unsigned> round(kPeers, 1);
  for (Peer peer = 0; peer < kPeers; ++peer) job.begin(peer, 8, 1);
  while (job.step())
    for (Peer peer = 0; peer < kPeers; ++peer)
      while (round[peer] < kRounds && job.at(peer).is_complete()) {
        ASSERT_TRUE(check_end(job, peer, 8, round[peer]));
        job.begin(peer, 8, ++round[peer]);
      }
  for (const unsigned reached : round) EXPECT_EQ(reached, kRounds);
}

TEST(FirehoseGathering, ProcessesThatEndAreNotWaitedFor) {
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    const Peer peers = 2 + seed % 12;
    Gatherers job(peers, seed);
    constexpr std::size_t kBytes = 100;
    std::vector<bool> began(peers);
    Peer left = peers;
    for (unsigned round = 1; round <= 3; ++round) {
      began.assign(peers, false);
      std::vector<Peer> order;
      for (Peer peer = 0; peer < peers; ++peer)
        if (job.alive(peer)) order.push_back(peer);
      std::shuffle(order.begin(), order.end(), job.random);
      for (const Peer peer : order) {
        // Some end before they begin, some later.
        if (left > 1 && job.random() % 8 == 0) job.kill(peer), --left;
        if (job.alive(peer)) job.begin(peer, kBytes, round), began[peer] = true;
        for (unsigned steps = job.random() % 4; steps > 0; --steps) job.step();
        if (left > 1 && job.alive(peer) && job.random() % 8 == 0) job.kill(peer), --left;
      }
      while (job.step()) continue;
      for (Peer peer = 0; peer < peers; ++peer) {
        if (!job.alive(peer)) continue;
        ASSERT_TRUE(job.at(peer).is_complete()) << "seed " << seed << ", process " << peer;
        std::vector<bool> took_part;
        const bool whole = check_end(job, peer, kBytes, round, &took_part);
        for (Peer of = 0; of < peers; ++of) {
          if (job.alive(of)) {
            EXPECT_TRUE(took_part[of]) << "seed " << seed << ": " << of << " at " << peer;
          }
          if (!began[of]) {
            EXPECT_FALSE(took_part[of] || whole);
          }
        }
      }
    }
  }
}

TEST(FirehoseGathering, StrangeMessagesAreDropped) {
  std::mt19937 random(5);
  Gatherers job(5, 1);
  job.begin(0, 8, 1);
  for (unsigned i = 0; i < 100'000; ++i) {
    struct {
      std::uint64_t round;
      std::uint32_t kind, first, count, bytes;
      char rest[64];
    } message{random() % 4,
              0,
              static_cast<std::uint32_t>(random() % 8),
              static_cast<std::uint32_t>(random()),
              static_cast<std::uint32_t>(random() % 300),
              {}};
    if (random() % 2) message.count %= 4;
    const std::unique_ptr<char[]> exact(new char[sizeof message]);
    const std::size_t bytes = random() % (sizeof message + 1);
    std::memcpy(exact.get(), &message, bytes);
    job.at(0).arrived(1 + random() % 4, exact.get(), bytes);
  }
}

}  // namespace
}  // namespace pinion::firehose
