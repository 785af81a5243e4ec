// Hits by several threads beside the owner's messages: a use ends before its firehose is released.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "firehose/initiator.h"

namespace pinion {
namespace {

using namespace firehose;

constexpr Bucket kBuckets = 64;
constexpr std::uint32_t kLimit = 24;
constexpr int kThreads = 3, kPuts = 20'000;

/// An initiator, its lock, and an owner that grants at once; it calls back at times.
struct Program {
  Initiator initiator{1, kLimit, kBuckets};  // it asks ahead
  std::mutex mutex;
  std::vector<Move> moves;
  std::array<std::atomic<Epoch>, kBuckets> granted_epoch{};  ///< 0: not granted
  Epoch last = 0;
  std::atomic<std::uint64_t> hits{0}, wrong{0};

  /// Under the lock.
  void act() {
    while (const auto sent = initiator.next_message()) {
      if (const auto* release = std::get_if<Release>(&sent->message))
        for (const BucketRef& ref : release->firehoses) granted_epoch[ref.bucket] = 0;
      if (const auto* move = std::get_if<Move>(&sent->message)) {
        for (const BucketRef& ref : move->victims) granted_epoch[ref.bucket] = 0;
        moves.push_back(*move);
      }
    }
    while (const Waiter* const answered = initiator.next_answered())
      if (answered->firehose) end(*answered->firehose, false);
  }

  void end(Firehose& firehose, bool locks) {
    if (!initiator.end_use(firehose)) return;
    std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
    if (locks) lock.lock();
    initiator.drained(firehose);
    act();
  }
  /// Under the lock.
  void answer_moves() {
    for (const Move& move : std::exchange(moves, {})) {
      Answer answer;
      answer.limit = kLimit;
      for (const Bucket bucket : move.wanted) {
        granted_epoch[bucket] = ++last;
        answer.grants.add({{bucket, last}, {{{bucket, bucket + 1, bucket, last}}, 1}});
      }
      initiator.answer(0, answer);
      act();
    }
  }

  void put(Bucket bucket) {
    if (Firehose* firehose = initiator.try_use(0, bucket)) {
      ++hits;
      // Held by this use, so it is not released now.
      wrong +=
          firehose->parts.items[0].begin != bucket || granted_epoch[bucket] != firehose->parts.items[0].key;
      return end(*firehose, true);
    }
    Waiter waiter;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto need = initiator.need(0, bucket, waiter);
    initiator.flush();
    act();
    if (need.what == Initiator::Need::hit) end(*need.firehose, false);
    answer_moves();
  }
};

TEST(FirehoseInitiatorThreads, NoUseOutlivesItsFirehose) {
  Program job;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&job, &running, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      for (int put = 0; put < kPuts; ++put) job.put(random() % (put % 2 ? kBuckets : kLimit / 2));
      --running;
    });
  std::mt19937 random(7);
  const auto few = [&random] { return static_cast<std::uint32_t>(random() % 4); };
  for (; running; std::this_thread::yield()) {
    const std::lock_guard<std::mutex> lock(job.mutex);
    if (random() % 2)
      job.initiator.recall(0, {{random() % kBuckets, 4}, job.last});
    else
      job.initiator.limit(0, {kLimit - few(), few()});
    job.act();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(job.wrong, 0u);
  EXPECT_GT(job.hits, 0u);
  job.initiator.recall(0, {{0, kBuckets}, job.last});
  job.act();
  EXPECT_EQ(job.initiator.size(), 0u);
  for (const auto& epoch : job.granted_epoch) EXPECT_EQ(epoch, 0u);
}

}  // namespace
}  // namespace pinion
