// Every way in which memory goes, in every state that its registration can be in: transfers must use the
// memory mapped at the address afterwards. Proved by contents, on a device that uses the pages pinned at
// registration (support/transfer_device.h), with the engine's own hooks. Gates hold operations at their
// points. On a kernel's RDMA stack, too: tests/softroce.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "monitor/libc_hooks.h"
#include "registry/blocking.h"
#include "support/eventually.h"
#include "support/gate.h"
#include "support/transfer_engine.h"
#include "support/ways_memory_goes.h"

namespace pinion::test {
namespace {

#define NEEDS_TRANSFERS() \
  if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing

constexpr std::uint64_t kOld = 1, kNew = 2;

// ---- the instrument: the effect of a registration that outlives its memory ----

class StaleRegistration : public ::testing::TestWithParam<EventKind> {};

TEST_P(StaleRegistration, IsSeenInTheContents) {
  NEEDS_TRANSFERS();
  NEEDS_MALLOC_OF_LIBC(GetParam());
  EngineDevice device;
  Wire wire(bytes_of(4 * event_pages));
  const auto event = GetParam().make();
  const Range memory = event->prepare();
  if (memory.empty()) GTEST_SKIP() << event->why_not;
  fill(memory, kOld);
  const Registration stale = device.register_range(memory, Access::all, Actor::application);
  if (stale.error) GTEST_SKIP() << "this kernel does not pin such memory: " << stale.error.message;
  event->fire();
  event->renew();
  fill(memory, kNew);

  ASSERT_EQ(device.send(stale.key, memory, wire, 0), 0);
  EXPECT_NE(holds(wire.as<std::uint64_t>(), memory, kNew), GetParam().loses_pages);
  fill_wire(wire, memory, ~kNew);
  ASSERT_EQ(device.receive(stale.key, memory, wire, 0), 0);
  EXPECT_NE(holds(memory, ~kNew), GetParam().loses_pages);
  EXPECT_FALSE(device.deregister(stale.key, Actor::application));
}

INSTANTIATE_TEST_SUITE_P(All, StaleRegistration, ::testing::ValuesIn(kEvents),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- the states a registration can be in ----

enum class State {
  idle,               ///< registered, no lease
  leased,             ///< and the lease lasts beyond the event
  registering,        ///< a thread has called the device, which has not pinned the pages yet
  registered,         ///< the device has pinned the pages, the call has not returned
  registering_ahead,  ///< the same in the helper's call
  retiring,           ///< the device has been told to unpin the pages, and has not
  queued,             ///< let go, and waiting to be registered ahead by the helper
};
const char* const kStates[] = {"Idle",     "Leased", "Registering", "Registered", "RegisteringAhead",
                               "Retiring", "Queued"};

struct Cell {
  EventKind event;
  State state;
};

RetentionKind retention_for(State state) {
  switch (state) {
    case State::registering_ahead:
    case State::queued:
      return RetentionKind::helper;
    case State::retiring:
      return RetentionKind::on_demand;
    default:
      return RetentionKind::leave_pinned;
  }
}

/// Memory, and an engine whose device calls for it can be held.
class HeldDevice : public ::testing::Test {
 protected:
  using Moment = TransferDevice::Moment;

  void start(RetentionKind retention) {
    engine_.reset();
    engine_ = std::make_unique<TransferEngine>(TransferEngine::options(retention));
    engine_->device().at = [this](Moment moment, Range pages, Actor actor) {
      if (moment == held_moment_ && actor == held_actor_ && pages.overlaps(memory_)) gate_.pass();
      if (moment == Moment::refused) ++refusals_;
    };
  }
  void TearDown() override { pass_gate(); }

  /// The next device call of this kind for `memory_` stops at the gate.
  void hold(Moment moment, Actor actor) {
    held_moment_ = moment;
    held_actor_ = actor;
    gate_.arm();
  }
  void pass_gate() {
    gate_.open();
    if (side_.joinable()) side_.join();
  }

  /// Teaches the helper that the memory is used once in `interval`, the latest time now.
  void teach_helper(Duration interval) {
    std::thread([&] { engine_->use_as_if_periodic(memory_, interval, 2); }).join();
  }
  /// Starts an engine whose helper has let the memory go, and will register it ahead in `until_use` at most.
  bool start_queued(Duration until_use) {
    start(RetentionKind::helper);
    teach_helper(until_use);
    return eventually([&] { return engine_->device().live(memory_) == 0; });
  }
  /// Starts an engine whose helper stops at this moment of registering the memory ahead. A helper that gets a
  /// processor only after the use is due keeps the memory instead: then once more, with more time.
  bool start_held_ahead(Moment moment) {
    for (Duration interval = 50 * kMillisecond; interval < 10 * kSecond; interval *= 4) {
      pass_gate();
      start(RetentionKind::helper);
      hold(moment, Actor::helper);
      teach_helper(interval);
      if (gate_.wait_reached(std::chrono::nanoseconds(5 * interval))) return true;
    }
    return false;
  }

  /// A moment at which this test is long over.
  static constexpr Duration kLongAfter = 600 * kSecond;

  Range memory_;
  Gate gate_;
  std::atomic<Moment> held_moment_{};
  std::atomic<Actor> held_actor_{};
  std::atomic<int> refusals_{0};
  std::thread side_;
  Wire wire_{bytes_of(4 * event_pages)};
  std::unique_ptr<TransferEngine> engine_;  // last: its device's calls end before the members that they use
};

class MemoryMatrix : public HeldDevice, public ::testing::WithParamInterface<Cell> {
 protected:
  void SetUp() override {
    NEEDS_TRANSFERS();
    NEEDS_MALLOC_OF_LIBC(GetParam().event);
#if defined(__SANITIZE_THREAD__)
    if (GetParam().event.make == make<ThreadExit>)
      GTEST_SKIP() << "ThreadSanitizer takes leave of a thread before libc drops its stack";
#endif
  }
};

TEST_P(MemoryMatrix, TransfersSeeTheMemoryThatIsThere) {
  const State state = GetParam().state;
  const auto event = GetParam().event.make();
  memory_ = event->prepare();
  if (memory_.empty()) GTEST_SKIP() << event->why_not;
  fill(memory_, kOld);
  start(retention_for(state));
  const bool keeps = engine_->keeps();
  if (!keeps && state != State::leased && state != State::registering && state != State::registered &&
      state != State::retiring)
    GTEST_SKIP() << "nothing is kept here beyond its lease";

  // Whether such memory can be pinned at all. The engine is unaware of this registration.
  {
    EngineDevice probe;
    const Registration pinned = probe.register_range(memory_.to_pages(), Access::all, Actor::application);
    if (pinned.error) {
      EXPECT_EQ(pinned.error.code, EFAULT);
      GTEST_SKIP() << "this kernel does not pin such memory: " << pinned.error.message;
    }
    EXPECT_FALSE(probe.deregister(pinned.key, Actor::application));
  }

  // This brings the region into the state.
  TransferLease holder, late;
  switch (state) {
    case State::idle:
      engine_->acquire(memory_).release();
      ASSERT_EQ(engine_->device().live(memory_), 1u);
      break;
    case State::leased:
      holder = engine_->acquire(memory_);
      ASSERT_TRUE(holder);
      break;
    case State::registering:
    case State::registered:
      hold(state == State::registering ? Moment::registering : Moment::registered, Actor::application);
      side_ = std::thread([&] { late = engine_->acquire(memory_); });
      ASSERT_TRUE(gate_.wait_reached()) << "the acquire has not called the device";
      break;
    case State::registering_ahead:
      ASSERT_TRUE(start_held_ahead(Moment::registered)) << "the helper has not registered ahead";
      break;
    case State::retiring:
      hold(Moment::deregistering, Actor::application);
      side_ = std::thread([&] { engine_->acquire(memory_).release(); });
      ASSERT_TRUE(gate_.wait_reached()) << "the release has not called the device";
      break;
    case State::queued:
      ASSERT_TRUE(start_queued(kLongAfter)) << "the helper has not let the memory go";
      break;
  }
  EngineDevice& device = engine_->device();
  std::vector<Range> others = event->taken_too();
  const std::vector<Range> neighbours = event->neighbours();
  others.insert(others.end(), neighbours.begin(), neighbours.end());
  for (const Range& other : others) {
    fill(other, kOld);
    engine_->acquire(other).release();
  }

  // The event. The memory in its place is filled anew.
  const std::size_t registrations = device.registrations();
  event->fire();
  event->renew();  // at once, before another mapping of this process comes there
  if (HasFatalFailure()) return;
  if (const Range to = event->moved_to(); !to.empty()) {
    fill(to, 0);  // the old pages, at another place
    expect_transfers(*engine_, engine_->acquire(to), wire_, to, 0);
  }
  if (state == State::leased && !event->untouched().empty()) {
    const Range rest = event->untouched();
    ASSERT_TRUE(holds(rest, kOld));
    expect_transfers(*engine_, holder, wire_, rest, kOld);
  }
  fill(memory_, kNew);
  for (const Range& other : event->taken_too()) fill(other, kNew);

  // Out of it.
  pass_gate();
  const auto expect_right = [&](const TransferLease& lease) {
    // Memory of another kind may have come that this kernel does not pin: then the transfer is refused.
    if (!lease && lease.error().code == EFAULT) return;
    fill(memory_, kNew);
    expect_transfers(*engine_, lease, wire_, memory_, kNew);
  };
  if (state == State::registering || state == State::registered) expect_right(late);
  expect_right(engine_->acquire(memory_));
  if (state == State::leased) {
    holder.release();
    expect_right(engine_->acquire(memory_));
  }
  for (const Range& other : event->taken_too()) {
    fill(other, kNew);
    expect_transfers(*engine_, engine_->acquire(other), wire_, other, kNew);
  }
  if (keeps && (state == State::idle || state == State::leased)) {
    const std::size_t before = device.registrations();
    EXPECT_GE(before, registrations);
    for (const Range& other : neighbours) {
      EXPECT_EQ(device.live(other), 1u) << "a neighbour's registration went";
      expect_transfers(*engine_, engine_->acquire(other), wire_, other, kOld);
    }
    EXPECT_EQ(device.registrations(), before) << "a neighbour was registered again";
  }
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const EventKind& event : kEvents) {
    for (int state = 0; state < 7; ++state) cells.push_back({event, static_cast<State>(state)});
  }
  return cells;
}

INSTANTIATE_TEST_SUITE_P(All, MemoryMatrix, ::testing::ValuesIn(all_cells()), [](const auto& info) {
  return std::string(info.param.event.name) + "_" + kStates[static_cast<int>(info.param.state)];
});

// ---- files that end below their mappings ----

TEST(CutFileUnderItsRegistration, ALeaseBeyondItsEndIsRefusedUntilItGrows) {
  NEEDS_TRANSFERS();
  CutFile event;
  const Range memory = event.prepare();
  if (memory.empty()) GTEST_SKIP() << event.why_not;
  fill(memory, kOld);
  TransferEngine engine(TransferEngine::options(RetentionKind::leave_pinned));
  engine.acquire(memory).release();
  event.fire();
  const TransferLease beyond = engine.acquire(memory);
  EXPECT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, EFAULT) << beyond.error().message;
  EXPECT_TRUE(engine.acquire(event.untouched())) << "the part that the file still has";
  event.renew();
  EXPECT_TRUE(engine.acquire(memory));
}

// ---- memory that goes between the helper's decision and its call ----

class GoneMeanwhile : public HeldDevice {};

TEST_F(GoneMeanwhile, IsNoFailure) {
  NEEDS_TRANSFERS();
  memory_ = map(bytes_of(event_pages));
  fill(memory_, kOld);
  start(RetentionKind::helper);
  if (!engine_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  ASSERT_TRUE(start_held_ahead(Moment::registering)) << "the helper has not registered ahead";
  const Range other = map(bytes_of(1));
  engine_->acquire(other).release();
  ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0);
  pass_gate();
  // The helper lets the other memory go when it is done with the refused call.
  ASSERT_TRUE(eventually([&] { return refusals_ > 0; })) << "the helper's call did not end";
  ASSERT_TRUE(eventually([&] { return engine_->device().live(other) == 0; })) << "the helper did not go on";
  EXPECT_EQ(engine_->counters().registration_failures, 0u);
}

// ---- when events cannot be seen any more ----

class UnseenEvents : public HeldDevice {
 protected:
  void SetUp() override {
    NEEDS_TRANSFERS();
    memory_ = map(bytes_of(event_pages));
    other_ = map(page_size());
    fill(memory_, kOld);
  }
  /// The hooks are gone for good, and the engine learns of it when it registers other memory.
  void lose_events() {
    uninstall_libc_hooks();
    engine_->acquire(other_).release();
    ASSERT_EQ(engine_->device().live(other_), 0u) << "the engine still believes in its hooks";
  }
  void expect_new_memory() {
    ASSERT_EQ(map(memory_.bytes(), kAnonymous | MAP_FIXED, pointer(memory_.begin)), memory_);
    fill(memory_, kNew);
    expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
  }
  Range other_;
};

TEST_F(UnseenEvents, NothingIdleIsBelieved) {
  start(RetentionKind::leave_pinned);
  engine_->acquire(memory_).release();
  lose_events();
  expect_new_memory();
}

TEST_F(UnseenEvents, NothingIsRegisteredAhead) {
  start(RetentionKind::helper);
  if (!engine_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  constexpr Duration kUntilUse = 200 * kMillisecond;
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(start_queued(kUntilUse)) << "the helper has not let the memory go";
  lose_events();
  // The use that the helper expected is then over. A helper that was late leaves out the registration ahead.
  std::this_thread::sleep_until(begun + std::chrono::nanoseconds(2 * kUntilUse));
  expect_new_memory();
}

TEST_F(UnseenEvents, WhatIsBeingRegisteredAheadIsNotKept) {
  start(RetentionKind::helper);
  if (!engine_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  ASSERT_TRUE(start_held_ahead(Moment::registered)) << "the helper has not registered ahead";
  lose_events();
  pass_gate();
  expect_new_memory();
}

// ---- events that are stopped halfway ----

enum class Pause {
  begun,  ///< the bracket is open, the system call has not been made
  called  ///< it has been made, the bracket is open still
};

/// Chooses where an event stops, at which point of its device call a registration stops, and which of the two
/// goes on first.
struct Crossing {
  Pause pause;
  TransferDevice::Moment moment;
  bool registration_first;
};

/// Hooks that report to the engine as its own do, and stop at gates in between.
class PausedEvent : public ::testing::Test {
 protected:
  void SetUp() override {
    NEEDS_TRANSFERS();
    install_libc_hooks(
        {begin, end});  // the engine finds other callbacks in place, and checks that events arrive
    engine_ = std::make_unique<TransferEngine>(TransferEngine::options(RetentionKind::leave_pinned));
    const Range all = map(3 * bytes_of(event_pages));
    before_ = {all.begin, all.begin + bytes_of(event_pages)};
    memory_ = {before_.end, before_.end + bytes_of(event_pages)};
    fill(all, kOld);
    watched_begin_ = memory_.begin;
  }
  void TearDown() override {
    watched_begin_ = 0;
    for (Gate& gate : event_gates_) gate.open();
    device_gate_.open();
    for (std::thread* thread : {&event_, &registration_}) {
      if (thread->joinable()) thread->join();
    }
    engine_.reset();
    uninstall_libc_hooks();
  }

  static Gate& gate(Pause pause) { return event_gates_[static_cast<int>(pause)]; }
  static Answer begin(const MemoryChange& change) {
    const Answer answer = memory_events::begin(change);
    if (change.range.begin == watched_begin_) gate(Pause::begun).pass();
    return answer;
  }
  static void end(Range range) {
    if (range.begin == watched_begin_) gate(Pause::called).pass();
    memory_events::end(range);
  }

  /// Maps other memory over `memory_`, as far as the pause.
  void start_event(Pause pause) {
    gate(pause).arm();
    event_ = std::thread([this] { map(memory_.bytes(), kAnonymous | MAP_FIXED, pointer(memory_.begin)); });
    ASSERT_TRUE(gate(pause).wait_reached()) << "the event has not begun";
  }
  void finish_event(Pause pause) {
    gate(pause).open();
    event_.join();
    fill(memory_, kNew);
  }
  void expect_refused(const TransferLease& lease) {
    EXPECT_FALSE(lease);
    EXPECT_EQ(lease.error().code, EAGAIN) << lease.error().message;
  }

  inline static Gate event_gates_[2];
  inline static std::atomic<Address> watched_begin_{0};
  Gate device_gate_;
  std::thread event_, registration_;
  Range before_, memory_;
  Wire wire_{bytes_of(event_pages)};
  std::unique_ptr<TransferEngine> engine_;
};

class PausedEventAt : public PausedEvent, public ::testing::WithParamInterface<Pause> {};

TEST_P(PausedEventAt, RefusesItsMemoryAndNoOther) {
  engine_->acquire(before_).release();
  engine_->acquire(memory_).release();
  start_event(GetParam());
  expect_refused(engine_->acquire(memory_));
  const Range inner{memory_.begin + page_size(), memory_.begin + 2 * page_size()};
  expect_refused(engine_->acquire(inner));
  expect_transfers(*engine_, engine_->acquire(before_), wire_, before_, kOld);
  finish_event(GetParam());
  expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
}

TEST_P(PausedEventAt, LeavesALeaseAlone) {
  TransferLease holder = engine_->acquire(memory_);
  start_event(GetParam());
  expect_refused(engine_->acquire(memory_));
  if (GetParam() == Pause::begun) expect_transfers(*engine_, holder, wire_, memory_, kOld);
  holder.release();
  expect_refused(engine_->acquire(memory_));
  finish_event(GetParam());
  expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
}

INSTANTIATE_TEST_SUITE_P(All, PausedEventAt, ::testing::Values(Pause::begun, Pause::called),
                         [](const auto& info) {
                           return info.param == Pause::begun ? "BeforeTheCall" : "AfterTheCall";
                         });

class CrossingEvent : public PausedEvent, public ::testing::WithParamInterface<Crossing> {};

TEST_P(CrossingEvent, RegistersWhatIsThereOrNothing) {
  const auto [pause, moment, registration_first] = GetParam();
  engine_->device().at = [this](TransferDevice::Moment now, Range pages, Actor) {
    if (now == GetParam().moment && pages.overlaps(memory_)) device_gate_.pass();
  };
  device_gate_.arm();
  TransferLease lease;
  registration_ = std::thread([&] { lease = engine_->acquire(memory_); });
  ASSERT_TRUE(device_gate_.wait_reached()) << "the acquire has not called the device";
  start_event(pause);
  if (registration_first) {
    device_gate_.open();
    registration_.join();
    expect_refused(lease);
    EXPECT_EQ(engine_->device().live(memory_), 0u);
    finish_event(pause);
  } else {
    finish_event(pause);
    device_gate_.open();
    registration_.join();
    expect_transfers(*engine_, lease, wire_, memory_, kNew);
    fill(memory_, kNew);
  }
  expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
}

INSTANTIATE_TEST_SUITE_P(
    All, CrossingEvent, ::testing::ValuesIn([] {
      std::vector<Crossing> all;
      for (const Pause pause : {Pause::begun, Pause::called})
        for (const auto moment : {TransferDevice::Moment::registering, TransferDevice::Moment::registered})
          for (const bool first : {false, true}) all.push_back({pause, moment, first});
      return all;
    }()),
    [](const auto& info) {
      return std::string(info.param.pause == Pause::begun ? "BeforeTheCall" : "AfterTheCall") +
             (info.param.moment == TransferDevice::Moment::registering ? "_Registering" : "_Registered") +
             (info.param.registration_first ? "_GoesOnFirst" : "_GoesOnLast");
    });

// ---- an event between the registration's look for brackets and its entry into the index ----

/// The domain reads its ticks between the two.
class StoppingClock final : public Clock {
 public:
  std::function<void()> then;
  Time now() override { return real_.now(); }
  Ticks ticks() override {
    if (const auto once = std::exchange(then, nullptr)) once();
    return real_.ticks();
  }

 private:
  RealClock real_;
};

TEST(UnindexedRegistration, FindsTheEventThatDidNotFindIt) {
  NEEDS_TRANSFERS();
  EngineDevice device;
  Budget budget{Limits{}};
  Brackets brackets;
  StoppingClock clock;
  Domain domain(device, budget, brackets, clock, nullptr);
  const Range memory = map(bytes_of(event_pages));
  fill(memory, kOld);

  clock.then = [&] {
    brackets.open(memory);
    domain.doom(memory);
  };
  Acquisition crossed(domain, {.pages = memory});
  ASSERT_EQ(run_blocking(crossed, Actor::application), AcquireStep::refused);
  EXPECT_EQ(crossed.result().error.code, EAGAIN);
  EXPECT_EQ(device.live(), 0u);
  map(memory.bytes(), kAnonymous | MAP_FIXED, pointer(memory.begin));
  brackets.close(memory);

  fill(memory, kNew);
  Acquisition again(domain, {.pages = memory});
  ASSERT_EQ(run_blocking(again, Actor::application), AcquireStep::leased);
  Wire wire(memory.bytes());
  ASSERT_EQ(device.send(again.result().region->key, memory, wire, 0), 0);
  EXPECT_TRUE(holds(wire.as<std::uint64_t>(), memory, kNew));
  domain.release(again.result().region);
  retire_all(domain, Actor::application, [](auto&&...) {});
}

// ---- files that other processes cut unseen ----

/// A file in memory that all users may write to.
class OpenFile {
 public:
  OpenFile() : file_(::mkstemp(name_.data())) {
    EXPECT_EQ(::fchmod(file_, 0666), 0);
    EXPECT_EQ(::ftruncate(file_, static_cast<off_t>(kBytes)), 0);
  }
  ~OpenFile() {
    ::munmap(at_, kBytes);
    ::close(file_);
    ::unlink(name_.c_str());
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  Range map() {
    at_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    return at_ == MAP_FAILED ? Range{} : Range::of(at_, kBytes);
  }
  /// Another process gives all pages back to the file system.
  bool cut_elsewhere() const {
    const std::string command =
        "truncate -s 0 " + name_ + " && truncate -s " + std::to_string(kBytes) + ' ' + name_;
    return std::system(command.c_str()) == 0;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{16} << 12;
  std::string name_ = "/dev/shm/pinion_matrix_XXXXXX";
  int file_;
  void* at_ = MAP_FAILED;
};

TEST(FilesThatOthersCut, AreRegisteredForTheirTransferAlone) {
  NEEDS_TRANSFERS();
  TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
  OpenFile file;
  const Range memory = file.map();
  ASSERT_FALSE(memory.empty());
  const Wire wire(memory.bytes());
  for (const std::uint64_t stamp : {kOld, kNew}) {
    fill(memory, stamp);
    TransferLease lease = ring.acquire(memory);
    ASSERT_TRUE(lease) << lease.error().message;
    ASSERT_EQ(ring.device().send(lease.key(), memory, wire, 0), 0);
    EXPECT_TRUE(holds(wire.as<std::uint64_t>(), memory, stamp)) << "STALE";
    lease.release();
    EXPECT_TRUE(eventually([&] { return ring.device().live(memory) == 0; }));
    ASSERT_TRUE(file.cut_elsewhere());
  }
}

TEST(FilesThatOthersCut, ArePinnedAsLongAsPeersHoldThem) {
  NEEDS_TRANSFERS();
  TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
  OpenFile file;
  const Range memory = file.map();
  ASSERT_FALSE(memory.empty());
  LeasePath& leases = ring.engine().lease_path();
  const int domain = ring.domain_number();
  PeerHold hold;
  const Error error = leases.hold(*this_thread(), domain, memory, Access::all, hold);
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(ring.device().live(memory), 1u);
  leases.end_hold(*this_thread(), hold);
}

TEST(FilesThatOthersCut, AreKeptWhereTheUserSaysThatNobodyDoes) {
  NEEDS_TRANSFERS();
  Options options = TransferEngine::options(RetentionKind::leave_pinned);
  options.keep_shared_files = true;
  TransferEngine ring(options);
  if (!ring.keeps()) GTEST_SKIP() << "nothing is kept here";
  OpenFile file;
  const Range memory = file.map();
  ASSERT_FALSE(memory.empty());
  ring.acquire(memory).release();
  EXPECT_EQ(ring.device().live(memory), 1u);
}

}  // namespace
}  // namespace pinion::test
