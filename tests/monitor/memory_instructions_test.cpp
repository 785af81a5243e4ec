// A memory event, whole or in part, between any two instructions of a registration's steps, of a hit and of a
// deregistration: the processor stops after each, and a signal handler acts as a hook on another processor
// would at that moment. By contents. At 24 of them by default, spread over the step.
#include <gtest/gtest.h>

// ThreadSanitizer's own code takes locks, so it cannot be interrupted like this.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <string>

#include "registry/blocking.h"
#include "support/deterministic_scheduler.h"
#include "support/sanitizers.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

constexpr std::uint64_t kOld = 1, kNew = 2;
constexpr std::size_t kBytes = std::size_t{1} << 14;

/// The progress of an event.
enum EventPoint { kUntouched, kOpened, kDoomed, kCalled, kClosed };

enum class Step { begin, commit, hit, recent_hit, retirement };
struct Interruption {
  const char* name;
  Step step;        ///< which is interrupted
  EventPoint then;  ///< as far the event comes there
};
const Interruption kInterruptions[] = {
    {"BeginByOpening", Step::begin, kOpened},
    {"BeginByDooming", Step::begin, kDoomed},
    {"BeginByTheWholeEvent", Step::begin, kClosed},
    {"CommitByOpening", Step::commit, kOpened},
    {"CommitByDooming", Step::commit, kDoomed},
    {"CommitByTheWholeEvent", Step::commit, kClosed},
    {"HitByDooming", Step::hit, kDoomed},
    {"HitByTheWholeEvent", Step::hit, kClosed},
    {"RecentHitByDooming", Step::recent_hit, kDoomed},
    {"RecentHitByTheWholeEvent", Step::recent_hit, kClosed},
    {"RetirementByDooming", Step::retirement, kDoomed},
    {"RetirementByTheWholeEvent", Step::retirement, kClosed},
};

class MemoryInstructions : public ::testing::TestWithParam<Interruption> {
 protected:
  void SetUp() override {
    if (!RingDevice::available()) GTEST_SKIP() << RingDevice::kMissing;
    test_ = this;
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
      test_->stopped(static_cast<ucontext_t*>(context));
    };
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(::sigaction(SIGTRAP, &action, &before_), 0);
    memory_ = Range::of(map(nullptr), kBytes);
  }
  void TearDown() override {
    if (test_) ::sigaction(SIGTRAP, &before_, nullptr);
    test_ = nullptr;
  }

  // ---- the event ----

  static void* map(void* at) {
    return ::mmap(at, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1,
                  0);
  }
  /// Goes on from where the event is, as a hook does.
  void go_on_to(EventPoint point) {
    while (done_ < point) {
      switch (done_++) {
        case kUntouched:
          brackets_.open(memory_);
          break;
        case kOpened:
          domain_.doom(memory_);
          break;
        case kDoomed:
          map(reinterpret_cast<void*>(memory_.begin));
          break;
        default:
          brackets_.close(memory_);
      }
    }
  }

  // ---- the interruption ----

  void stopped(ucontext_t* context) {
    if (--instructions_left_ > 0) return;
    go_on_to(GetParam().then);
    context->uc_mcontext.gregs[REG_EFL] &= ~greg_t{0x100};  // and on at full speed
  }
  /// Runs f, interrupted after `instruction_` instructions when it is this step's turn.
  template <class F>
  auto interrupted(Step step, F&& f) {
    struct Through {
      MemoryInstructions& test;
      ~Through() {
        asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
        test.most_instructions_ =
            std::max(test.most_instructions_, test.instruction_ - test.instructions_left_);
      }
    };
    if (step != GetParam().step || done_ != kUntouched) return f();
    instructions_left_ = instruction_;
    const Through through{*this};
    asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    return f();
  }

  // ---- the interrupted operations ----

  /// One registration. The pages are pinned before they go, wherever the event has begun before.
  void register_once() {
    Acquisition acquisition(domain_, {.pages = memory_, .access = Access::all});
    auto step = interrupted(Step::begin, [&] { return acquisition.next(clock_.now()); });
    if (step == AcquireStep::register_) {
      const auto registration = device_.register_range(memory_, Access::all, Actor::application);
      ASSERT_FALSE(registration.error);
      if (GetParam().step == Step::begin && done_ != kUntouched) go_on_to(kCalled);
      step = interrupted(Step::commit, [&] { return acquisition.registered(registration, clock_.now()); });
    }
    if (step == AcquireStep::leased) domain_.release(acquisition.result().region);
    if (step == AcquireStep::deregister) {
      for (Region* victim : acquisition.victims()) retire_claimed(domain_, victim, Actor::application);
    }
  }
  void hit_once() {
    register_once();
    if (GetParam().step == Step::hit) recent_ = {};
    Region* const lease =
        interrupted(GetParam().step, [&] { return domain_.try_hit(memory_, Access::all, recent_); });
    if (lease) domain_.release(lease);
  }
  void retire_once() {
    register_once();
    const auto idle = domain_.idle_regions();
    ASSERT_EQ(idle.size(), 1u);
    Region* const claimed = interrupted(Step::retirement, [&] { return domain_.begin_retire(idle[0]); });
    if (!claimed) return;
    EXPECT_FALSE(device_.deregister(claimed->key, Actor::application));
    interrupted(Step::retirement, [&] { domain_.finish_retire(claimed); });
  }

  /// False when the step was over before so many instructions.
  bool try_after(int instruction) {
    SCOPED_TRACE("after " + std::to_string(instruction) + " instructions");
    instruction_ = instruction;
    done_ = kUntouched;
    fill(memory_, kOld);
    switch (GetParam().step) {
      case Step::begin:
      case Step::commit:
        register_once();
        break;
      case Step::hit:
      case Step::recent_hit:
        hit_once();
        break;
      case Step::retirement:
        retire_once();
    }
    const bool interrupted = done_ != kUntouched;
    go_on_to(kClosed);

    fill(memory_, kNew);
    Acquisition acquisition(domain_, {.pages = memory_, .access = Access::all});
    const AcquireStep step = run_blocking(acquisition, Actor::application);
    EXPECT_EQ(step, AcquireStep::leased) << acquisition.result().error.message;
    if (step == AcquireStep::leased) {
      EXPECT_EQ(device_.send(acquisition.result().region->key, memory_, wire_, 0), 0);
      EXPECT_TRUE(holds(wire_.as<std::uint64_t>(), memory_, kNew)) << "STALE: other contents were sent";
      domain_.release(acquisition.result().region);
    }
    retire_all(domain_, Actor::application, [](auto&&...) {});
    EXPECT_EQ(device_.live(), 0u);
    return interrupted;
  }

  inline static MemoryInstructions* test_ = nullptr;
  struct sigaction before_ {};
  Range memory_;
  Wire wire_{kBytes};
  RingDevice device_;
  Budget budget_{Limits{}};
  Brackets brackets_;
  RealClock clock_;
  Domain domain_{device_, budget_, brackets_, clock_, nullptr};
  RecentRegions recent_;
  int instruction_ = 0;
  int instructions_left_ = 0;
  int most_instructions_ = 0;  ///< that a step took
  int done_ = kUntouched;
};

TEST_P(MemoryInstructions, NoRegistrationOutlivesItsMemory) {
  // The first time it is longer: memory is taken, symbols are resolved.
  constexpr int kNever = 1'000'000;
  ASSERT_FALSE(try_after(kNever));
  most_instructions_ = 0;
  ASSERT_FALSE(try_after(kNever));
  const int instructions = most_instructions_;
  const int stride = std::max(1, static_cast<int>(instructions / ((kSanitized ? 8 : 24) * test_scale())));
  int tried = 0;
  for (int i = 1; i <= instructions && !HasFailure(); i += stride) tried += try_after(i);
  std::printf("%d of about %d instructions\n", tried, instructions);
  EXPECT_GT(tried, 1);
}

std::string name_of(const ::testing::TestParamInfo<Interruption>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, MemoryInstructions, ::testing::ValuesIn(kInterruptions), name_of);

}  // namespace
}  // namespace pinion::test

#endif
