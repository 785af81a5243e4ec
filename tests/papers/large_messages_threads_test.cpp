// Large messages by several threads of each process at the same time.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/large_messages_job.h"

namespace {

using namespace pinion::transfer;
using namespace pinion::test;

TEST(LargeMessagesThreads, SendAndReceiveAtTheSameTime) {
  PinionRun run("helper");
  for (const Protocol protocol : {Protocol::automatic, Protocol::bounce, Protocol::pipeline}) {
    MessageJob job(2, small_options(protocol));
    constexpr int kTurns = 20;
    const auto talk = [&](Peer self, unsigned lane) {
      for (int i = 0; i < kTurns; ++i) {
        Bytes data(2 * kPiece + lane, lane + 1), memory(data.size() + 1);
        Request send, receive;
        job[self].send(1 - self, data.data(), data.size(), send);
        job[self].receive(1 - self, memory.data(), memory.size(), receive);
        EXPECT_FALSE(job[self].wait(send));
        EXPECT_FALSE(job[self].wait(receive));
        // Messages of two threads cross, so either may have come.
        EXPECT_TRUE(memory.holds(Bytes(2 * kPiece, 1)) || memory.holds(Bytes(2 * kPiece + 1, 2)))
            << "other contents";
      }
    };
    std::vector<std::thread> threads;
    for (const Peer self : {0u, 1u})
      for (const unsigned lane : {0u, 1u}) threads.emplace_back(talk, self, lane);
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
