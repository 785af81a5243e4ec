// The submission gate under chosen interleavings.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "intercept/cuda/submission_gate.h"
#include "support/deterministic_scheduler.h"

namespace pinion::cuda {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

struct ScheduledPolicy : ScheduledAtomics {
  static void sleep(Atomic<std::uint32_t>&, std::uint32_t) { relax(); }
  static void wake(Atomic<std::uint32_t>&) {}
  class Patience {
   public:
    bool wait() {
      relax();
      return ++turns_ < 3;
    }

   private:
    int turns_ = 0;
  };
};
using Gate = BasicSubmissionGate<ScheduledPolicy, 2, 2>;

const auto kStream = reinterpret_cast<Stream>(0x1000);
const auto kFree = reinterpret_cast<Stream>(0x2000);  // non-blocking
const auto kContext = reinterpret_cast<Context>(0x10);

Result flags_of(Stream stream, unsigned* flags) {
  *flags = stream == kFree ? kStreamNonBlocking : 0;
  return kSuccess;
}
Result in_one_context(Stream, Context* context) {
  *context = kContext;
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
  driver.stream_context = in_one_context;
  driver.context_current = [](Context* context) { return in_one_context(nullptr, context); };
  return driver;
}();

/// What entries and exclusions see of each other. The scheduler's baton orders the accesses.
struct World {
  Gate gate;
  int exclusive = 0, inside = 0, held = 0;

  auto submits(Stream stream, Context held = nullptr) {
    return [this, stream, held] {
      const Gate::Entry entry(gate, stream, held);
      EXPECT_EQ(exclusive, 0);
      ++inside;
      Scheduler::point();
      EXPECT_EQ(exclusive, 0);
      --inside;
    };
  }
  auto copies(Stream stream) {
    return [this, stream] {
      const Gate::Exclusive alone(gate, kDriver, stream, kContext);
      if (!alone.held()) return;
      ++held;
      EXPECT_EQ(inside, 0);
      EXPECT_EQ(++exclusive, 1);
      { const Gate::Entry own(gate, stream); }
      Scheduler::point();
      EXPECT_EQ(inside, 0);
      --exclusive;
    };
  }
};

template <class Threads>
void explore(Threads threads) {
  int held = 0;
  const auto explored =
      Scheduler::explore({.preemptions = 3, .exhaustive = 6'000, .random = 2'000}, [&threads, &held] {
        auto world = std::make_shared<World>();
        return test::Scenario{threads(*world), [world, &held] {
                                held += world->held;
                                // Everything has been given back.
                                const Gate::Exclusive all(world->gate, kDriver, kLegacyStream, kContext);
                                EXPECT_TRUE(all.held());
                              }};
      });
  EXPECT_GT(explored.schedules, 1000u);
  EXPECT_GT(held, 100);
}

using Bodies = std::vector<std::function<void()>>;

TEST(SubmissionGateSchedule, NoEntryIsInsideBesideAnExclusionOfItsStream) {
  explore([](World& world) {
    return Bodies{world.submits(kStream), world.copies(kStream), world.submits(kStream)};
  });
}

TEST(SubmissionGateSchedule, ExclusionsOfOneStreamFollowEachOther) {
  explore([](World& world) {
    return Bodies{world.copies(kStream), world.copies(kStream), world.submits(kStream)};
  });
}

TEST(SubmissionGateSchedule, TheLegacyStreamExcludesBlockingStreams) {
  explore([](World& world) {
    return Bodies{world.copies(kLegacyStream), world.submits(kStream), world.copies(kStream)};
  });
}

TEST(SubmissionGateSchedule, NoSynchronousCopyIsInsideBesideAnExclusionOfItsContext) {
  explore([](World& world) {
    return Bodies{world.submits(kLegacyStream, kContext), world.copies(kFree),
                  world.submits(kLegacyStream, kContext)};
  });
}

TEST(SubmissionGateSchedule, EntriesThatOverflowAreSeen) {
  explore([](World& world) {
    const auto nested = [&world] {
      const Gate::Entry outer(world.gate, kThreadStream);
      world.submits(kStream)();
    };
    return Bodies{nested, nested, world.copies(kStream)};
  });
}

}  // namespace
}  // namespace pinion::cuda
