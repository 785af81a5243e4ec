// The protocols for large messages, between endpoints joined in memory: every protocol, size and order of
// events, contents compared; refused registrations, failed gets, peers that go.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "papers/messages/protocols.h"
#include "pinion/pinion.h"
#include "support/large_messages_job.h"

namespace {

using namespace pinion::transfer;
using namespace pinion::test;

/// Both ways at once between two peers; contents compared.
void exchange(MessageJob& job, std::size_t size, unsigned pattern, std::size_t* copied = nullptr) {
  Bytes sent[2] = {Bytes(size, 2 * pattern + 1), Bytes(size, 2 * pattern + 2)};
  Bytes got[2] = {Bytes(size), Bytes(size)};
  std::vector<Request> requests(4);
  for (Peer peer = 0; peer < 2; ++peer) {
    job[peer].send(1 - peer, sent[peer].data(), size, requests[peer]);
    job[peer].receive(1 - peer, got[peer].data(), size, requests[2 + peer]);
  }
  job.finish(requests);
  for (const Request& request : requests) {
    EXPECT_FALSE(request.error()) << request.error().message;
    EXPECT_EQ(request.bytes(), size);
    if (copied) *copied += request.copied();
  }
  for (Peer peer = 0; peer < 2; ++peer) {
    EXPECT_TRUE(got[peer].holds(sent[1 - peer])) << "other contents: " << size;
    EXPECT_TRUE(got[peer].is_guarded());
  }
  EXPECT_TRUE(job.all_chunks_are_back());
}

using Way = std::tuple<Protocol, const char*>;
class Protocols : public ::testing::TestWithParam<Way> {
 protected:
  Protocol protocol() const { return std::get<0>(GetParam()); }
  PinionRun run_{std::get<1>(GetParam())};
};

TEST_P(Protocols, MoveEverySize) {
  MessageJob job(2, small_options(protocol()));
  job.network.percent_now = 60;
  job.network[1].offsets = true;
  for (const std::size_t threshold : {kChunk, kBounceBelow, kPiece, kPipelineFrom, 5 * kPiece})
    for (const std::size_t size : {threshold - 1, threshold, threshold + 1}) exchange(job, size, 3);
  for (const std::size_t size : {0, 1, 8, 1'000'003}) exchange(job, size, 4);
}

TEST_P(Protocols, CutGetsToTheEndpointsSize) {
  MessageJob job(2, small_options(protocol()));
  for (Peer peer = 0; peer < 2; ++peer) job.network[peer].capabilities_.max_transfer = 1000;
  exchange(job, 100'000, 1);
  EXPECT_GE(job.network.gets(), 200u);
}

class Outstanding : public Protocols {};
TEST_P(Outstanding, AreAThousandBothWays) {
  MessageJob job(2, small_options(protocol()), 7);
  job.network.percent_now = 40;
  job.network.queue = 20;
  constexpr std::size_t kMessages = 1100;  // more than are announced at once
  std::mt19937 random(5);
  std::list<Bytes> sent[2], got[2];
  std::list<Request> requests;
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (Peer peer = 0; peer < 2; ++peer) {
      const std::size_t size = random() % (i % 50 == 0 ? 3 * kPipelineFrom : 2 * kChunk);
      Bytes& data = sent[peer].emplace_back(size, static_cast<unsigned>(i + 1));
      job[peer].send(1 - peer, data.data(), size, requests.emplace_back());
    }
  }
  for (const Peer peer : {0u, 1u})
    for (Bytes& expected : sent[1 - peer]) {
      Bytes& memory = got[peer].emplace_back(expected.size());
      job[peer].receive(1 - peer, memory.data(), memory.size(), requests.emplace_back());
    }
  job.finish(requests);
  for (const Request& request : requests) EXPECT_FALSE(request.error()) << request.error().message;
  for (const Peer peer : {0u, 1u})
    EXPECT_TRUE(std::equal(got[peer].begin(), got[peer].end(), sent[1 - peer].begin(),
                           [](const Bytes& a, const Bytes& b) { return a.holds(b) && a.is_guarded(); }));
  EXPECT_TRUE(job.all_chunks_are_back());
}

TEST_P(Protocols, GoOnByBounceWhereRegistrationIsRefused) {
  for (const std::size_t allowed : {0u, 1u, 3u}) {
    MessageJob job(2, small_options(protocol()));
    std::size_t left = allowed;
    for (const Peer peer : {0u, 1u})
      job.network[peer].refuse = [&](void*, std::size_t, unsigned) {
        if (left == 0) return ENOMEM;
        --left;
        return 0;
      };
    std::size_t copied = 0;
    exchange(job, 10 * kPiece + 1, 1, &copied);
    EXPECT_GT(copied, 0u);
  }
}

TEST_P(Protocols, EndWhenThePeerGoes) {
  // At every moment of the exchange.
  for (unsigned moment = 0; moment < 40; ++moment) {
    MessageJob job(3, small_options(protocol()), moment + 1);
    job.network.percent_now = 50;
    Bytes data(6 * kPiece, 1), more(6 * kPiece, 2);
    std::list<Request> requests;
    std::list<Bytes> got;
    for (const Peer peer : {0u, 1u})
      for (int i = 0; i < 3; ++i) {
        job[peer].send(1 - peer, data.data(), data.size(), requests.emplace_back());
        Bytes& memory = got.emplace_back(data.size());
        job[peer].receive(1 - peer, memory.data(), memory.size(), requests.emplace_back());
      }
    for (unsigned turn = 0; turn < moment; ++turn) job.move();
    job.network.cut(1);
    job.finish(requests);
    for (const Request& request : requests)
      EXPECT_TRUE(!request.error() || request.error().code == ECONNRESET) << request.error().message;
    EXPECT_TRUE(job.all_chunks_are_back());

    // A new one ends at once; other peers are as they were.
    std::list<Request> later(3);
    job[0].send(1, data.data(), data.size(), later.front());
    job.finish(std::list<Request>());
    EXPECT_EQ(job[0].wait(later.front()).code, ECONNRESET);
    Bytes memory(more.size());
    auto request = std::next(later.begin());
    job[0].send(2, more.data(), more.size(), *request++);
    job[2].receive(0, memory.data(), memory.size(), *request);
    job.finish(later);
    EXPECT_TRUE(memory.holds(more));
  }
}

TEST_P(Protocols, ReportAGetThatFails) {
  for (const std::size_t failing : {0u, 1u, 2u}) {
    MessageJob job(2, small_options(protocol()));
    Bytes data(kChunk * 8, 1), more(kChunk * 8, 2), memory(kChunk * 8);
    job.network.failing_get = failing;
    std::vector<Request> requests(4);
    job[0].send(1, data.data(), data.size(), requests[0]);
    job[1].receive(0, memory.data(), memory.size(), requests[1]);
    job[0].send(1, more.data(), more.size(), requests[2]);
    job.finish(std::list<Request>());
    Bytes second(more.size());
    job[1].receive(0, second.data(), second.size(), requests[3]);
    job.finish(requests);
    // One of the two messages met it; both sides know.
    EXPECT_EQ(requests[0].error().code, requests[1].error().code);
    EXPECT_EQ(requests[2].error().code, requests[3].error().code);
    EXPECT_TRUE(failing >= job.network.gets() || requests[1].error().code + requests[3].error().code == EIO);
    EXPECT_TRUE(job.all_chunks_are_back());
  }
}

TEST_P(Protocols, EndWhenClosed) {
  for (unsigned moment = 0; moment < 10; ++moment) {
    MessageJob job(2, small_options(protocol()), moment + 1);
    job.network.percent_now = 50;
    Bytes data(6 * kPiece, 1), memory(6 * kPiece);
    std::vector<Request> requests(3);
    job[0].send(1, data.data(), data.size(), requests[0]);
    job[1].receive(0, memory.data(), memory.size(), requests[1]);
    job[0].receive(1, memory.data(), memory.size(), requests[2]);
    for (unsigned turn = 0; turn < moment; ++turn) job.move();
    job.close(false);
    for (const Request& request : requests) EXPECT_TRUE(request.done());
    EXPECT_NE(requests[2].error().code, 0);
  }
}

std::string way_name(const ::testing::TestParamInfo<Way>& info) {
  std::string name = std::string(name_of(std::get<0>(info.param))) + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Outstanding,
                         ::testing::Values(Way{Protocol::automatic, "helper"},
                                           Way{Protocol::bounce, "on-demand"},
                                           Way{Protocol::pipeline, "on-demand"}),
                         way_name);
INSTANTIATE_TEST_SUITE_P(
    All, Protocols,
    ::testing::Values(Way{Protocol::automatic, "helper"}, Way{Protocol::bounce, "on-demand"},
                      Way{Protocol::rendezvous, "on-demand"}, Way{Protocol::rendezvous, "helper"},
                      Way{Protocol::pipeline, "on-demand"}, Way{Protocol::pipeline, "leave-pinned"},
                      Way{Protocol::prepared, "leave-pinned"}),
    way_name);

TEST(LargeMessages, SendToTheirOwnProcess) {
  PinionRun run("leave-pinned");
  MessageJob job(1, small_options(Protocol::automatic));
  Bytes data(100'000, 1), memory(100'000);
  std::vector<Request> requests(2);
  job[0].send(0, data.data(), data.size(), requests[0]);
  job[0].receive(0, memory.data(), memory.size(), requests[1]);
  job.finish(requests);
  EXPECT_TRUE(memory.holds(data));
}

TEST(LargeMessages, ReceiveShorterOnesThanPosted) {
  PinionRun run("on-demand");
  MessageJob job(2, small_options(Protocol::rendezvous));
  Bytes data(50'000, 1), memory(80'000);
  std::vector<Request> requests(2);
  job[1].receive(0, memory.data(), memory.size(), requests[1]);
  job[0].send(1, data.data(), data.size(), requests[0]);
  job.finish(requests);
  EXPECT_EQ(requests[1].bytes(), 50'000u);
  EXPECT_TRUE(memory.holds(data));
  EXPECT_EQ(memory.data()[50'000], 0x5a);
}

TEST(LargeMessages, RefuseLongerOnesThanPosted) {
  PinionRun run("on-demand");
  for (const Protocol protocol : {Protocol::bounce, Protocol::rendezvous, Protocol::pipeline}) {
    MessageJob job(2, small_options(protocol));
    Bytes data(50'000, 1), memory(49'999), next(50'000);
    std::vector<Request> requests(4);
    job[0].send(1, data.data(), data.size(), requests[0]);
    job[0].send(1, data.data(), data.size(), requests[1]);
    job[1].receive(0, memory.data(), memory.size(), requests[2]);
    job[1].receive(0, next.data(), next.size(), requests[3]);
    job.finish(requests);
    EXPECT_EQ(requests[0].error().code, EMSGSIZE);
    EXPECT_EQ(requests[2].error().code, EMSGSIZE);
    EXPECT_FALSE(requests[1].error());
    EXPECT_TRUE(next.holds(data));
    EXPECT_EQ(memory.data()[0], 0x5a);
  }
}

TEST(LargeMessages, SendReadOnlyMemory) {
  PinionRun run("on-demand");
  for (const Protocol protocol : {Protocol::automatic, Protocol::rendezvous, Protocol::pipeline}) {
    MessageJob job(2, small_options(protocol));
    // A device that registers no memory of the sender's, as some do with read-only pages.
    const std::size_t bytes = 40 * kChunk;
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 7, bytes);
    ASSERT_EQ(::mprotect(memory, bytes, PROT_READ), 0);
    job.network[0].refuse = [](void*, std::size_t, unsigned) { return EFAULT; };
    Bytes got(bytes);
    std::vector<Request> requests(2);
    job[0].send(1, memory, bytes, requests[0]);
    job[1].receive(0, got.data(), bytes, requests[1]);
    job.finish(requests);
    EXPECT_EQ(std::memcmp(got.data(), memory, bytes), 0);
    EXPECT_EQ(requests[0].copied(), bytes);
    EXPECT_LT(requests[1].copied(), bytes);
    ::munmap(memory, bytes);
  }
}

TEST(LargeMessages, GoOnUnderALimit) {
  // Two pools, and room for a few pages more.
  PinionRun run("leave-pinned", "limit=" + std::to_string(2 * 8 * kChunk + 4 * 4096));
  for (const Protocol protocol : {Protocol::automatic, Protocol::rendezvous, Protocol::pipeline}) {
    MessageJob job(2, small_options(protocol));
    std::size_t copied = 0;
    for (int turn = 0; turn < 3; ++turn) exchange(job, 8 * kPiece, 1, &copied);
    EXPECT_GT(copied, 0u);
  }
}

TEST(LargeMessages, CountThePoolAsRegistered) {
  PinionRun run("on-demand");
  MessageJob job(1, small_options(Protocol::bounce));
  struct pinion_statistics statistics {};
  statistics.size = sizeof statistics;
  ASSERT_EQ(pinion_statistics(job.network[0].domain(), &statistics), 0);
  EXPECT_EQ(statistics.registered_bytes, 8 * kChunk);
}

TEST(LargeMessages, NameABadRequestToOpen) {
  PinionRun run("on-demand");
  MadeNetwork network(1);
  MessageOptions options = small_options(Protocol::automatic);
  options.chunks = 3;
  EXPECT_EQ(LargeMessages::open(network[0], options).error.code, EINVAL);
  network[0].capabilities_.max_message = 32;
  EXPECT_EQ(LargeMessages::open(network[0], small_options(Protocol::automatic)).error.code, ENOTSUP);
  network[0].capabilities_.max_message = 256;
  network[0].refuse = [](void*, std::size_t, unsigned) { return ENOMEM; };
  EXPECT_EQ(LargeMessages::open(network[0], small_options(Protocol::automatic)).error.code, ENOMEM);
}

TEST(LargeMessages, MeasureTheThreshold) {
  PinionRun run("on-demand");
  MessageOptions options;
  options.chunks = 4;
  MessageJob job(1, options);
  EXPECT_GE(job[0].options().bounce_below, 4096u);
  EXPECT_LE(job[0].options().bounce_below, options.pipeline_from);
}

// ---- the choice ----

/// The sender's protocol for one more message out of `data`.
Protocol sent_by(MessageJob& job, Bytes& data, Bytes& memory) {
  std::vector<Request> requests(2);
  job[1].receive(0, memory.data(), memory.size(), requests[1]);
  job[0].send(1, data.data(), data.size(), requests[0]);
  job.finish(requests);
  EXPECT_TRUE(memory.holds(data));
  return requests[0].protocol();
}

TEST(Choice, SmallMessagesAreCopied) {
  PinionRun run("on-demand");
  MessageJob job(2, small_options(Protocol::automatic));
  Bytes data(kBounceBelow - 1, 1), memory(kBounceBelow - 1);
  EXPECT_EQ(sent_by(job, data, memory), Protocol::bounce);
  Bytes larger(kBounceBelow, 1), more(kBounceBelow);
  EXPECT_EQ(sent_by(job, larger, more), Protocol::rendezvous);
}

TEST(Choice, ANewBufferGoesThroughThePipelineAndAKnownOneByRendezvous) {
  PinionRun run("leave-pinned");
  MessageJob job(2, small_options(Protocol::automatic));
  Bytes data(8 * kPiece, 1), memory(8 * kPiece);
  EXPECT_EQ(sent_by(job, data, memory), Protocol::pipeline);
  // The pipeline left its pieces pinned, all but the first: parts of it are hits. Then all of it.
  Protocol last = Protocol::pipeline;
  for (int turn = 0; turn < 3; ++turn) last = sent_by(job, data, memory);
  EXPECT_EQ(last, Protocol::rendezvous);
}

TEST(Choice, ABufferThatIsNeverRegisteredInTimeGoesThroughThePipeline) {
  PinionRun run("on-demand");
  MessageJob job(2, small_options(Protocol::automatic));
  Bytes data(8 * kPiece, 1), memory(8 * kPiece);
  EXPECT_EQ(sent_by(job, data, memory), Protocol::pipeline);
  for (int turn = 1; turn < kMostMisses; ++turn) EXPECT_EQ(sent_by(job, data, memory), Protocol::rendezvous);
  for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(sent_by(job, data, memory), Protocol::pipeline);
}

TEST(Choice, PreparedMemoryIsNeitherCopiedNorRegistered) {
  PinionRun run("on-demand");
  for (const Protocol protocol : {Protocol::automatic, Protocol::prepared}) {
    MessageJob job(2, small_options(protocol));
    Bytes data(8 * kPiece, 1), memory(8 * kPiece);
    std::vector<pinion_preparation*> preparations;
    for (const Peer peer : {0u, 1u}) {
      Bytes& bytes = peer == 0 ? data : memory;
      const pinion_range range{bytes.data(), bytes.size()};
      pinion_prepare_options options{};
      options.size = sizeof options;
      options.access = PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_READ;
      // In registrations smaller than the message.
      options.piece_bytes = 3 * kPiece;
      ASSERT_EQ(pinion_prepare(job.network[peer].domain(), &range, 1, &options, &preparations.emplace_back()),
                0);
      ASSERT_EQ(pinion_preparation_wait(preparations.back(), UINT64_MAX), 0);
    }
    struct pinion_statistics before {
    }, after{};
    before.size = after.size = sizeof before;
    ASSERT_EQ(pinion_statistics(nullptr, &before), 0);
    std::vector<Request> requests(2);
    job[0].send(1, data.data(), data.size(), requests[0]);
    job[1].receive(0, memory.data(), memory.size(), requests[1]);
    job.finish(requests);
    EXPECT_TRUE(memory.holds(data));
    ASSERT_EQ(pinion_statistics(nullptr, &after), 0);
    EXPECT_EQ(after.misses, before.misses);
    EXPECT_EQ(after.registrations, before.registrations);
    EXPECT_EQ(requests[0].copied() + requests[1].copied(), 0u);
    EXPECT_EQ(requests[0].protocol(), Protocol::prepared);
    for (pinion_preparation* preparation : preparations) EXPECT_EQ(pinion_preparation_end(preparation), 0);
  }
}

TEST(Choice, ANeighboursRegisteredPageIsNoBegin) {
  PinionRun run("on-demand");
  MessageJob job(2, small_options(Protocol::automatic));
  Bytes data(8 * kPiece, 1), memory(8 * kPiece);
  // The first byte of the buffer is registered, for a neighbour in the same page.
  pinion_lease neighbour;
  ASSERT_EQ(
      pinion_acquire(job.network[0].domain(), data.data() - 1, 2, PINION_ACCESS_REMOTE_READ, &neighbour), 0);
  EXPECT_EQ(sent_by(job, data, memory), Protocol::pipeline);
  EXPECT_EQ(pinion_release(&neighbour), 0);
}

// ---- the pool ----

TEST(BouncePool, KeepsAShareForEachDirection) {
  PinionRun run("on-demand");
  MadeNetwork network(1);
  {
    BouncePool pool;
    ASSERT_FALSE(pool.open(network[0].domain(), 8, kChunk));
    std::vector<Chunk> chunks;
    Chunk chunk;
    const auto take_all = [&](ChunkUse use) {
      std::size_t count = 0;
      for (; pool.take(use, chunk); ++count) chunks.push_back(chunk);
      return count;
    };
    EXPECT_EQ(take_all(ChunkUse::early), 2u);
    EXPECT_EQ(take_all(ChunkUse::sending), 2u);
    EXPECT_EQ(take_all(ChunkUse::receiving), 4u);
    for (Chunk& each : chunks) pool.give_back(each);
    chunks.clear();
    EXPECT_EQ(take_all(ChunkUse::sending), 4u);
    EXPECT_EQ(take_all(ChunkUse::early), 0u);
    for (Chunk& each : chunks) pool.give_back(each);
    EXPECT_EQ(pool.free_chunks(), 8u);
  }
  EXPECT_TRUE(network[0].close_domain());
}

}  // namespace
