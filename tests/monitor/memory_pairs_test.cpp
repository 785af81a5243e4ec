// Every point of a memory event against every point of a registration, of one ahead, of a deregistration and
// of a hit: each of the two is brought to its point, in either order, and then either goes on to its end
// first. By contents; the domain, the brackets and libc's hooks are the real ones. The hooks' callbacks act
// as the engine's, with points between the steps. (The points inside a step, which only the
// processor sees, are those of memory_instructions_test and of the schedules of the brackets.)
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <string>

#include "monitor/libc_hooks.h"
#include "registry/blocking.h"
#include "support/track.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

constexpr std::uint64_t kOld = 1, kNew = 2;
void* pointer(Address a) { return reinterpret_cast<void*>(a); }

/// Points of an event: the step done last.
enum EventPoint { kUntouched, kOpened, kDoomed, kCalled, kClosed, kEventPoints };
const char* const kEventNames[] = {"Untouched", "Opened", "Doomed", "Called", "Closed"};

/// The operation that crosses the event, and its point.
enum class Crosser { registration, registration_ahead, deregistration, hit };
struct Point {
  Crosser crosser;
  int number;
  const char* name;
};
const Point kPoints[] = {
    {Crosser::registration, 0, "BeforeTheLook"},
    {Crosser::registration, 1, "BeforeTheIndex"},
    {Crosser::registration, 2, "BeforePinning"},
    {Crosser::registration, 3, "Pinned"},
    {Crosser::registration, 4, "BeforeCommit"},
    {Crosser::registration, 5, "BeforeUse"},
    {Crosser::registration_ahead, 0, "BeforeTheLook"},
    {Crosser::registration_ahead, 1, "BeforeTheIndex"},
    {Crosser::registration_ahead, 2, "BeforePinning"},
    {Crosser::registration_ahead, 3, "Pinned"},
    {Crosser::registration_ahead, 4, "BeforeCommit"},
    {Crosser::registration_ahead, 5, "BeforeUse"},
    {Crosser::deregistration, 0, "BeforeTheClaim"},
    {Crosser::deregistration, 1, "BeforeUnpinning"},
    {Crosser::deregistration, 2, "Unpinned"},
    {Crosser::deregistration, 3, "BeforeItIsFree"},
    {Crosser::hit, 0, "BeforeTheLease"},
    {Crosser::hit, 1, "BeforeUse"},
};

/// The domain reads its ticks after a registration's look for brackets and before it is in the index.
class StoppingClock final : public Clock {
 public:
  std::function<void()> then = [] {};
  Time now() override { return real_.now(); }
  Ticks ticks() override {
    then();
    return real_.ticks();
  }

 private:
  RealClock real_;
};

class MemoryPairs : public ::testing::TestWithParam<Point> {
 protected:
  void SetUp() override {
    if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
    test_ = this;
    install_libc_hooks({begin, end});
    memory_ = Range::of(map(nullptr), kBytes);
    using Moment = TransferDevice::Moment;
    device_.at = [this](Moment moment, Range, Actor) {
      const bool registers = moment == Moment::registering || moment == Moment::registered;
      const bool done = moment == Moment::registered || moment == Moment::deregistered;
      if (crosser_ && registers == is_registration()) crosser_->at((registers ? 2 : 1) + done);
    };
    clock_.then = [this] {
      if (crosser_ && is_registration()) crosser_->at(1);
    };
  }
  void TearDown() override {
    test_ = nullptr;
    uninstall_libc_hooks();
  }

  // ---- the event ----

  // In the steps of memory_events::begin() and of the engine's sink.
  static Answer begin(const MemoryChange& change) {
    const Range range = change.range;
    if (!test_ || range.begin != test_->memory_.begin || !test_->event_) return Answer::proceed;
    test_->brackets_.open(range);
    test_->pass(kOpened);
    test_->domain_.doom(range);
    test_->pass(kDoomed);
    return Answer::proceed;
  }
  static void end(Range range) {
    if (!test_ || range.begin != test_->memory_.begin || !test_->event_) return;
    test_->pass(kCalled);
    test_->brackets_.close(range);
    test_->pass(kClosed);
  }
  void pass(EventPoint point) {
    passed_ = point;
    event_->at(point);
  }
  static void* map(void* at) {
    return ::mmap(at, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1,
                  0);
  }
  void happen() {
    event_->at(kUntouched);
    map(pointer(memory_.begin));
  }

  // ---- the crossing operation ----

  bool is_registration() const {
    return GetParam().crosser == Crosser::registration || GetParam().crosser == Crosser::registration_ahead;
  }
  void cross() {
    crosser_->at(0);
    switch (GetParam().crosser) {
      case Crosser::registration:
        return take_lease(acquire([this] { crosser_->at(4); }), 5);
      case Crosser::registration_ahead:
        return register_ahead();
      case Crosser::deregistration:
        return retire();
      case Crosser::hit:
        return take_lease(domain_.try_hit(memory_, Access::all, recent_), 1);
    }
  }

  /// A lease, or null when the memory is changing.
  Region* acquire(const std::function<void()>& after_device = [] {}) {
    Acquisition acquisition(domain_, {.pages = memory_, .access = Access::all});
    const AcquireStep step = run_blocking(acquisition, Actor::application, [&](const DeviceCall& call) {
      if (call.registration) after_device();
    });
    const AcquireResult& result = acquisition.result();
    if (step == AcquireStep::leased) return result.region;
    EXPECT_EQ(result.error.code, EAGAIN) << result.error.message;
    return nullptr;
  }
  void take_lease(Region* lease, int before_use) {
    if (!lease) return;
    const int granted = passed_;
    EXPECT_NE(granted, kDoomed) << "leased while the memory is changing";
    EXPECT_NE(granted, kCalled) << "leased while the memory is changing";
    crosser_->at(before_use);
    // A lease from before the event is its holder's affair, as long as the memory is there.
    if (passed_ < kCalled) expect_transfers(lease, kOld);
    if (granted == kClosed) {
      fill(memory_, kNew);
      expect_transfers(lease, kNew);
    }
    domain_.release(lease);
  }
  void register_ahead() {
    Acquisition acquisition(domain_, {.pages = memory_, .access = Access::all, .lease = false});
    const AcquireStep step = run_blocking(acquisition, Actor::helper, [&](const DeviceCall& call) {
      if (call.registration) crosser_->at(4);
    });
    EXPECT_NE(step, AcquireStep::busy) << "no other thread registers";
    crosser_->at(5);
  }
  void retire() {
    for (const RegionRef& idle : domain_.idle_regions()) {
      Region* const region = domain_.begin_retire(idle);
      if (!region) continue;
      EXPECT_FALSE(device_.deregister(region->key, Actor::application));
      crosser_->at(3);
      domain_.finish_retire(region);
    }
  }

  void expect_transfers(Region* lease, std::uint64_t stamp) {
    fill(memory_, stamp);
    ASSERT_EQ(device_.send(lease->key, memory_, wire_, 0), 0);
    EXPECT_TRUE(holds(wire_.as<std::uint64_t>(), memory_, stamp)) << "STALE: other contents were sent";
    fill_wire(wire_, memory_, ~stamp);
    ASSERT_EQ(device_.receive(lease->key, memory_, wire_, 0), 0);
    EXPECT_TRUE(holds(memory_, ~stamp)) << "STALE: what was received went elsewhere";
  }

  void try_pair(EventPoint event_point, bool event_comes_first, bool event_ends_first) {
    SCOPED_TRACE(std::string(kEventNames[event_point]) + (event_comes_first ? ", event comes first" : "") +
                 (event_ends_first ? ", event ends first" : ""));
    fill(memory_, kOld);
    passed_ = kUntouched;
    if (!is_registration()) domain_.release(acquire());
    Track event([this] { happen(); }), crosser([this] { cross(); });
    event_ = &event;
    crosser_ = &crosser;
    if (event_comes_first) event.run_to(event_point);
    crosser.run_to(GetParam().number);
    if (!event_comes_first) event.run_to(event_point);
    (event_ends_first ? event : crosser).run_to(Track::kEnd);
    (event_ends_first ? crosser : event).run_to(Track::kEnd);
    event_ = crosser_ = nullptr;

    // Twice: the region found registered, and the one registered then.
    for (int i = 0; i < 2; ++i) {
      Region* const lease = acquire();
      ASSERT_NE(lease, nullptr);
      expect_transfers(lease, kNew + static_cast<std::uint64_t>(i));
      domain_.release(lease);
    }
    retire_all(domain_, Actor::application, [](auto&&...) {});
    EXPECT_EQ(device_.live(), 0u);
  }

  static constexpr std::size_t kBytes = std::size_t{1} << 16;
  inline static MemoryPairs* test_ = nullptr;
  Range memory_;
  Wire wire_{kBytes};
  RingDevice device_;
  Budget budget_{Limits{}};
  Brackets brackets_;
  StoppingClock clock_;
  Domain domain_{device_, budget_, brackets_, clock_, nullptr};
  RecentRegions recent_;
  Track* event_ = nullptr;
  Track* crosser_ = nullptr;
  std::atomic<int> passed_{kUntouched};
};

TEST_P(MemoryPairs, NoRegistrationOutlivesItsMemory) {
  for (int point = kUntouched; point < kEventPoints && !HasFailure(); ++point) {
    for (const bool comes_first : {false, true}) {
      for (const bool ends_first : {false, true})
        try_pair(static_cast<EventPoint>(point), comes_first, ends_first);
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Point>& info) {
  const char* const crossers[] = {"Registration", "Ahead", "Deregistration", "Hit"};
  return std::string(crossers[static_cast<int>(info.param.crosser)]) + "_" + info.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, MemoryPairs, ::testing::ValuesIn(kPoints), name_of);

}  // namespace
}  // namespace pinion::test
