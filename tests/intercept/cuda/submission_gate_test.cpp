// Which submissions the gate holds out of a stream, and which it lets in.
#include "intercept/cuda/submission_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "support/eventually.h"
#include "support/in_child.h"

namespace pinion::cuda {
namespace {

const auto kBlocking = reinterpret_cast<Stream>(0x1000);
const auto kOther = reinterpret_cast<Stream>(0x2000);
const auto kFree = reinterpret_cast<Stream>(0x3000);     // non-blocking
const auto kForeign = reinterpret_cast<Stream>(0x4000);  // of another context
const auto kHere = reinterpret_cast<Context>(0x10);
const auto kElsewhere = reinterpret_cast<Context>(0x20);

std::atomic<int> asked{0};
thread_local Context t_current = nullptr;  // kHere

Result flags_of(Stream stream, unsigned* flags) {
  ++asked;
  *flags = stream == kFree ? kStreamNonBlocking : 0;
  return kSuccess;
}
Result context_of(Stream stream, Context* context) {
  *context = stream == kForeign ? kElsewhere : kHere;
  return kSuccess;
}
Result current(Context* context) {
  *context = t_current == nullptr ? kHere : t_current;
  return kSuccess;
}
const Driver kDriver = [] {
  Driver driver;
  driver.stream_is_capturing = [](Stream, int* status) {
    *status = kCaptureNone;
    return kSuccess;
  };
  driver.exchange_capture_mode = [](int*) { return kSuccess; };
  driver.stream_flags = flags_of;
  driver.stream_context = context_of;
  driver.context_current = current;
  return driver;
}();

class Gate : public testing::Test {
 protected:
  /// Whether another thread's entry waits while this thread is exclusive on `held`.
  bool waits(Stream held, Stream entering, Context current = kHere) {
    auto alone = std::make_unique<SubmissionGate::Exclusive>(*gate_, kDriver, held, kHere);
    EXPECT_TRUE(alone->held());
    std::atomic<bool> inside{false};
    std::thread other([&] {
      t_current = current;
      const SubmissionGate::Entry entry(*gate_, entering);
      inside = true;
    });
    bool waited = false;
    if (!lets_in_[{held, entering, current}]) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      waited = !inside;
    } else {
      EXPECT_TRUE(test::eventually([&] { return inside.load(); }));
    }
    alone.reset();
    other.join();
    EXPECT_TRUE(inside);
    return waited;
  }

  /// Whether this thread becomes exclusive on `wanted` while another thread is inside an entry.
  bool excludes(Stream inside, Stream wanted) {
    std::atomic<bool> entered{false}, leave{false};
    std::thread other([&] {
      const SubmissionGate::Entry entry(*gate_, inside);
      entered = true;
      while (!leave) std::this_thread::yield();
    });
    EXPECT_TRUE(test::eventually([&] { return entered.load(); }));
    const SubmissionGate::Exclusive alone(*gate_, kDriver, wanted, kHere);
    leave = true;
    other.join();
    return alone.held();
  }

  std::unique_ptr<SubmissionGate> gate_ = std::make_unique<SubmissionGate>();
  std::map<std::tuple<Stream, Stream, Context>, bool> lets_in_;
};

TEST_F(Gate, HoldsEntriesOfConflictingStreamsOut) {
  EXPECT_TRUE(waits(kBlocking, kBlocking));
  EXPECT_TRUE(waits(kFree, kFree));
  EXPECT_TRUE(waits(kLegacyStream, kLegacyStream));
  EXPECT_TRUE(waits(kLegacyStream, kBlocking));
  EXPECT_TRUE(waits(kBlocking, kLegacyStream));
  EXPECT_TRUE(waits(kLegacyStream, kThreadStream));
  EXPECT_TRUE(waits(kThreadStream, kLegacyStream));
  EXPECT_TRUE(waits(kLegacyStream, nullptr));
}

TEST_F(Gate, HoldsEntriesOfAllStreamsOut) {
  for (const Stream held : {kFree, kThreadStream}) {
    auto alone = std::make_unique<SubmissionGate::Exclusive>(*gate_, kDriver, held, kHere);
    ASSERT_TRUE(alone->held());
    std::atomic<bool> inside{false};
    std::thread other([&] {
      const SubmissionGate::Entry entry(*gate_);
      inside = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(inside);
    alone.reset();
    other.join();
    EXPECT_TRUE(inside);
  }
}

TEST_F(Gate, LetsAllOtherEntriesIn) {
  const std::tuple<Stream, Stream, Context> cases[] = {
      {kBlocking, kOther, kHere},         {kBlocking, kFree, kHere},
      {kBlocking, kThreadStream, kHere},  {kThreadStream, kThreadStream, kHere},
      {kLegacyStream, kFree, kHere},      {kFree, kLegacyStream, kHere},
      {kLegacyStream, kForeign, kHere},   {kBlocking, kLegacyStream, kElsewhere},
      {kFree, kThreadStream, kElsewhere},
  };
  for (const auto& [held, entering, current] : cases) {
    lets_in_[{held, entering, current}] = true;
    EXPECT_FALSE(waits(held, entering, current)) << held << " and " << entering;
  }
}

TEST_F(Gate, AsksNothingOfTheDriverWhileNobodyIsExclusive) {
  asked = 0;
  for (const Stream stream : {kBlocking, kLegacyStream, kFree}) {
    const SubmissionGate::Entry entry(*gate_, stream);
  }
  {
    const SubmissionGate::Exclusive alone(*gate_, kDriver, kOther, kHere);
    asked = 0;
    const SubmissionGate::Entry entry(*gate_, kBlocking);
  }
  EXPECT_EQ(asked, 0);
}

TEST_F(Gate, AnExclusionGivesUpWhileAConflictingCopyWaits) {
  EXPECT_FALSE(excludes(kBlocking, kBlocking));
  EXPECT_FALSE(excludes(kBlocking, kLegacyStream));
  EXPECT_FALSE(excludes(kLegacyStream, kBlocking));
  EXPECT_TRUE(excludes(kLegacyStream, kFree));
  EXPECT_TRUE(excludes(kOther, kBlocking));
  EXPECT_TRUE(excludes(kThreadStream, kThreadStream));
  // Nothing is left behind by those that gave up.
  const SubmissionGate::Exclusive alone(*gate_, kDriver, kLegacyStream, kHere);
  EXPECT_TRUE(alone.held());
}

TEST_F(Gate, ASynchronousCopyAndExclusionsOfItsContextKeepEachOtherOut) {
  std::atomic<int> inside{0};
  std::atomic<bool> leave{false};
  const auto copies = [&](Context held) {
    return std::thread([&, held] {
      const SubmissionGate::Entry entry(*gate_, kLegacyStream, held);
      ++inside;
      while (!leave) std::this_thread::yield();
      --inside;
    });
  };
  std::thread here = copies(kHere);
  ASSERT_TRUE(test::eventually([&] { return inside == 1; }));
  EXPECT_FALSE(SubmissionGate::Exclusive(*gate_, kDriver, kFree, kHere).held());
  EXPECT_TRUE(SubmissionGate::Exclusive(*gate_, kDriver, kFree, kElsewhere).held());
  leave = true;
  here.join();
  leave = false;
  SubmissionGate::Exclusive alone(*gate_, kDriver, kFree, kHere);
  ASSERT_TRUE(alone.held());
  std::thread elsewhere = copies(kElsewhere);
  ASSERT_TRUE(test::eventually([&] { return inside == 1; }));
  std::thread waiting = copies(kHere);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(inside, 1);
  alone.release_context();
  EXPECT_TRUE(test::eventually([&] { return inside == 2; }));
  leave = true;
  elsewhere.join();
  waiting.join();
}

TEST_F(Gate, AnExclusionOfAContextIsHadAtOnceOrNotAtAll) {
  {
    SubmissionGate::Exclusive all(*gate_, kDriver, kHere);
    ASSERT_TRUE(all.held());
    std::atomic<bool> inside{false};
    std::thread other([&] {
      const SubmissionGate::Entry entry(*gate_, kFree);
      inside = true;
    });
    std::thread refused([&] {
      const SubmissionGate::Exclusive second(*gate_, kDriver, kHere);
      EXPECT_FALSE(second.held());
    });
    refused.join();
    std::thread([&] { const SubmissionGate::Entry elsewhere(*gate_, kForeign); }).join();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(inside);
    all.end();
    other.join();
  }
  std::atomic<bool> entered{false}, leave{false};
  std::thread other([&] {
    const SubmissionGate::Entry entry(*gate_, kFree);
    entered = true;
    while (!leave) std::this_thread::yield();
  });
  ASSERT_TRUE(test::eventually([&] { return entered.load(); }));
  EXPECT_FALSE(SubmissionGate::Exclusive(*gate_, kDriver, kHere).held());
  leave = true;
  other.join();
}

TEST_F(Gate, AThreadPassesItsOwnExclusionAndEntries) {
  const SubmissionGate::Entry outer(*gate_, kBlocking);
  const SubmissionGate::Entry inner(*gate_, kLegacyStream);
  const SubmissionGate::Exclusive alone(*gate_, kDriver, kBlocking, kHere);
  ASSERT_TRUE(alone.held());
  const SubmissionGate::Entry again(*gate_, kBlocking);
  const SubmissionGate::Entry legacy(*gate_, kLegacyStream);
}

TEST_F(Gate, ANestedEntryOfTheSameStreamNeverWaits) {
  const SubmissionGate::Entry outer(*gate_, kBlocking);
  std::atomic<bool> done{false};
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) const SubmissionGate::Exclusive alone(*gate_, kDriver, kBlocking, kHere);
    done = true;
  });
  while (!done) const SubmissionGate::Entry inner(*gate_, kBlocking);
  other.join();
}

TEST_F(Gate, ExclusionsOfOneStreamWaitForEachOther) {
  int value = 0;  // unguarded: the gate is what keeps threads apart
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const Stream stream = t % 2 == 0 ? kLegacyStream : kBlocking;
        const SubmissionGate::Exclusive alone(*gate_, kDriver, stream, kHere);
        ASSERT_TRUE(alone.held());
        ++value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(value, 2000);
}

TEST_F(Gate, ManyThreadsNeverMeetInsideAStream) {
  int value = 0;  // written by exclusions, read by entries
  std::atomic<int> held{0}, stop{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      while (stop == 0) {
        const SubmissionGate::Entry entry(*gate_, t % 2 == 0 ? kLegacyStream : kBlocking);
        const int before = value;
        std::this_thread::yield();
        ASSERT_EQ(before, value);
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    const SubmissionGate::Exclusive alone(*gate_, kDriver, kLegacyStream, kHere);
    if (!alone.held()) continue;
    ++held;
    ++value;
  }
  stop = 1;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(value, held);
  EXPECT_GT(held, 0);
}

TEST_F(Gate, AForkedChildStartsClean) {
  const SubmissionGate::Exclusive alone(*gate_, kDriver, kBlocking, kHere);
  std::atomic<bool> entered{false}, leave{false};
  std::thread other([&] {
    const SubmissionGate::Entry entry(*gate_, kOther);
    entered = true;
    while (!leave) std::this_thread::yield();
  });
  ASSERT_TRUE(test::eventually([&] { return entered.load(); }));
  test::in_child([&] {
    gate_->abandon_after_fork();
    const SubmissionGate::Exclusive all(*gate_, kDriver, kLegacyStream, kHere);
    EXPECT_TRUE(all.held());
  });
  leave = true;
  other.join();
}

}  // namespace
}  // namespace pinion::cuda
