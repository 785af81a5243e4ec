// One simulated process against schedules worked out by hand. The device: 100 ns a page and 1 us to register,
// 50 ns a page and 500 ns to let go.
#include "simulate/process.h"

#include <gtest/gtest.h>

#include <deque>

#include "retention/desk.h"
#include "simulate/levels.h"
#include "simulate/program.h"
#include "simulate/random.h"
#include "support/noise.h"

namespace pinion::simulate {
namespace {

constexpr Address kBase = Address{1} << 40;
const CostModel kNic{"test", 100, 1000, 50, 500, {}};

Range buffer(std::size_t number, std::size_t pages) {
  const Address begin = kBase + number * 1000 * page_size();
  return {begin, begin + pages * page_size()};
}

class Sequence final : public Script {
 public:
  Sequence& acquire(Range range, Duration compute, std::uint32_t slot = 0, std::uint64_t site = 1) {
    Operation operation;
    operation.range = range;
    operation.compute = compute;
    operation.slot = slot;
    operation.site = site;
    return add(operation);
  }
  /// In memory whose pages are 2^order times the system's.
  Sequence& acquire_in(std::uint8_t order, Range range, Duration compute) {
    acquire(range, compute);
    operations_.back().page_order = order;
    return *this;
  }
  Sequence& release(Duration transfer, std::uint32_t slot = 0) {
    Operation operation;
    operation.kind = Operation::Kind::release;
    operation.transfer = transfer;
    operation.slot = slot;
    return add(operation);
  }
  Sequence& unmap(Range range) {
    Operation operation;
    operation.kind = Operation::Kind::memory_event;
    operation.range = range;
    return add(operation);
  }
  Sequence& pause(Duration compute) {
    Operation operation;
    operation.kind = Operation::Kind::pause;
    operation.compute = compute;
    return add(operation);
  }
  bool next(Operation& operation) override {
    if (operations_.empty()) return false;
    operation = operations_.front();
    operations_.pop_front();
    return true;
  }

 private:
  Sequence& add(const Operation& operation) {
    operations_.push_back(operation);
    return *this;
  }
  std::deque<Operation> operations_;
};

/// The process and its observed events; times are from its start on.
class Heard final : private Observer {
 public:
  struct Acquire {
    Time asked, leased;
    runlog::Outcome outcome;
  };
  explicit Heard(Process::Settings settings,
                 std::unique_ptr<Predictor> predictor = make_predictor("shortest", 2, 4))
      : process(std::move(settings), std::move(predictor), *this) {}

  static Process::Settings under(RetentionKind retention) {
    Process::Settings settings;
    settings.retention = retention;
    settings.nic = kNic;
    return settings;
  }

  void follow(Sequence& script) {
    process.add_thread(script);
    finish();
  }
  void finish() {
    while (process.running() || process.helper_busy()) process.step(kNever);
    process.finish();
    registered_level.advance(process.now());
    oracle_level.advance(process.now());
  }
  Duration length() const { return process.ended() - kSecond; }

  std::vector<Acquire> acquires;
  Level registered_level{kSecond}, pinned_level{kSecond};
  LateLevel oracle_level{kSecond};
  Process process;

 private:
  void registered(Time now, Time since, std::int64_t bytes) override {
    registered_level.change_since(since, now, bytes);
  }
  void left_pinned(Time now, std::int64_t bytes) override { pinned_level.change(now, bytes); }
  void oracle_held(Time time, std::int64_t bytes) override {
    oracle_level.change(process.now(), time, bytes);
  }
  void acquired(std::uint64_t number, Time asked, Time leased, runlog::Outcome outcome) override {
    if (number >= acquires.size()) acquires.resize(number + 1);
    acquires[number] = {asked - kSecond, leased - kSecond, outcome};
  }
};

/// 10 pages: 2 us to register, 1 us to let go. A transfer of 5 us after 10 us of computation, three times.
Sequence three_transfers() {
  Sequence script;
  for (int i = 0; i < 3; ++i) script.acquire(buffer(0, 10), 10 * kMicrosecond).release(5 * kMicrosecond);
  return script;
}

TEST(SimulatedProcess, OnDemandPaysForEachTransfer) {
  Heard run(Heard::under(RetentionKind::on_demand));
  Sequence script = three_transfers();
  run.follow(script);
  // 10 + 2 + 5 + 1 = 18 us each.
  EXPECT_EQ(run.length(), 54 * kMicrosecond);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(run.acquires[i].asked, static_cast<Time>(18 * i + 10) * kMicrosecond);
    EXPECT_EQ(run.acquires[i].leased, static_cast<Time>(18 * i + 12) * kMicrosecond);
    EXPECT_EQ(run.acquires[i].outcome, runlog::Outcome::miss);
  }
  EXPECT_EQ(run.process.counters().registration_ns, 9000u);
  EXPECT_EQ(run.process.counters().leave_pinned_registration_ns, 2000);
  EXPECT_EQ(run.process.counters().wait_ns, 0u);
  // Registered from the call of registration to the return of deregistration: 8 us of 18.
  const double bytes = 10.0 * static_cast<double>(page_size());
  EXPECT_EQ(run.registered_level.byte_ns(), 3 * 8000 * bytes);
  EXPECT_EQ(run.registered_level.peak(), static_cast<std::uint64_t>(bytes));
}

TEST(SimulatedProcess, LeavePinnedPaysOnce) {
  Heard run(Heard::under(RetentionKind::leave_pinned));
  Sequence script = three_transfers();
  run.follow(script);
  EXPECT_EQ(run.length(), 47 * kMicrosecond);
  EXPECT_EQ(run.process.counters().hits, 2u);
  EXPECT_EQ(run.process.counters().misses, 1u);
  EXPECT_EQ(run.process.counters().deregistrations, 1u);  // in the end
  const double bytes = 10.0 * static_cast<double>(page_size());
  EXPECT_EQ(run.registered_level.byte_ns(), 37000 * bytes);  // from 10 us on
}

TEST(SimulatedProcess, ObserveRegistersNothing) {
  Heard run(Heard::under(RetentionKind::observe));
  Sequence script = three_transfers();
  run.follow(script);
  EXPECT_EQ(run.length(), 45 * kMicrosecond);
  EXPECT_EQ(run.process.counters().observed, 3u);
  EXPECT_EQ(run.process.counters().registrations, 0u);
  EXPECT_EQ(run.process.counters().reuses, 2u);
}

// The union of pages under lease, and 2 us before each of them.
TEST(SimulatedProcess, OracleBound) {
  Heard run(Heard::under(RetentionKind::leave_pinned));
  Sequence script = three_transfers();
  run.follow(script);
  const double bytes = 10.0 * static_cast<double>(page_size());
  EXPECT_EQ(run.oracle_level.byte_ns(), 3 * 7000 * bytes);
}

TEST(SimulatedProcess, LruKeepsSoManyBytes) {
  Process::Settings settings = Heard::under(RetentionKind::lru);
  settings.lru_bytes = 20 * page_size();
  Heard run(std::move(settings));
  Sequence script;
  for (const std::size_t number : {0, 1, 0, 2, 0, 1})
    script.acquire(buffer(number, 10), kMicrosecond).release(kMicrosecond);
  run.follow(script);
  // 0 and 1 are registered; 2 evicts 1; 1 evicts 2: four misses.
  EXPECT_EQ(run.process.counters().misses, 4u);
  EXPECT_EQ(run.process.counters().hits, 2u);
  // Each victim is let go after its successor was registered, on the thread: 1 us of 10 pages.
  EXPECT_EQ(run.length(), 6 * 2000 + 4 * 2000 + 2 * 1000);
}

// Four leases at once exceed the size; it holds again when they are over.
TEST(SimulatedProcess, LruHoldsItsSizeWhenLeasesEnd) {
  Process::Settings settings = Heard::under(RetentionKind::lru);
  settings.lru_bytes = 20 * page_size();
  Heard run(std::move(settings));
  Sequence script;
  for (std::uint32_t i = 0; i < 4; ++i) script.acquire(buffer(i, 10), kMicrosecond, i);
  for (std::uint32_t i = 0; i < 4; ++i) script.release(kMicrosecond, i);
  run.process.add_thread(script);
  while (run.process.running()) run.process.step(kNever);
  EXPECT_EQ(run.process.domain().registered_bytes(), 20 * page_size());
  // 2 us for each registration; the first two to be released go at once, 1 us each.
  EXPECT_EQ(run.length(), 4 * 3000 + 4 * 1000 + 2 * 1000);
  run.finish();
}

TEST(SimulatedProcess, LimitBouncesAndCharges) {
  Process::Settings settings = Heard::under(RetentionKind::leave_pinned);
  settings.limit = 15 * page_size();
  settings.memcpy_bytes_per_ns = 4;
  Heard run(std::move(settings));
  Sequence script;
  // Both are in use at once: the second one is copied.
  script.acquire(buffer(0, 10), kMicrosecond, 0).acquire(buffer(1, 10), kMicrosecond, 1);
  script.release(kMicrosecond, 0).release(0, 1);
  run.follow(script);
  EXPECT_EQ(run.acquires[1].outcome, runlog::Outcome::bounced);
  const auto copy = static_cast<Duration>(10 * page_size() / 4);
  EXPECT_EQ(run.process.counters().bounce_ns, static_cast<std::uint64_t>(copy));
  EXPECT_EQ(run.acquires[1].leased - run.acquires[1].asked, copy);
  EXPECT_EQ(run.length(), 3 * kMicrosecond + 2 * kMicrosecond + copy);
}

TEST(SimulatedProcess, LimitEvictsWhatIsIdle) {
  Process::Settings settings = Heard::under(RetentionKind::leave_pinned);
  settings.limit = 15 * page_size();
  Heard run(std::move(settings));
  Sequence script;
  for (const std::size_t number : {0, 1, 0})
    script.acquire(buffer(number, 10), kMicrosecond).release(kMicrosecond);
  run.follow(script);
  EXPECT_EQ(run.process.counters().misses, 3u);
  EXPECT_EQ(run.process.counters().bounced, 0u);
  // 2 us registration each; the second and third let the other go before, 1 us.
  EXPECT_EQ(run.length(), 3 * 4 * kMicrosecond + 2 * kMicrosecond);
}

// The first has taken all that it needs, and leaves the other its part once room runs short.
TEST(SimulatedProcess, ALimitOfTheNodeIsSharedByNeed) {
  constexpr std::size_t kBuffers = 8, kPages = 10;
  const std::uint64_t limit = 100 * page_size(), each = kBuffers * kPages * page_size();
  for (const RetentionKind retention :
       {RetentionKind::leave_pinned, RetentionKind::lru, RetentionKind::helper}) {
    const std::shared_ptr<node::SharedTable> room = node::NodeTable::simulated();
    node::NodeTable rooms[2];
    std::deque<Heard> both;
    Sequence scripts[2];
    for (std::uint64_t i = 0; i < 2; ++i) {
      ASSERT_FALSE(rooms[i].join(room, limit, i + 1));
      Process::Settings settings = Heard::under(retention);
      settings.limit = limit;
      settings.lru_bytes = each;
      settings.time_budget = {
          .share = 0, .least = 0, .core_idle = true};  // the helper lets nothing go of itself
      settings.room = &rooms[i];
      both.emplace_back(std::move(settings));
      if (i == 1) scripts[i].pause(100 * kMillisecond);
      for (std::size_t use = 0; use < 100 * kBuffers; ++use)
        scripts[i].acquire(buffer(use % kBuffers, kPages), kMillisecond).release(10 * kMicrosecond);
      both[i].process.add_thread(scripts[i]);
    }
    std::uint64_t most = 0, alone = 0;
    const auto earliest = [&]() -> Process& {
      Process &a = both[0].process, &b = both[1].process;
      return b.next_event() < a.next_event() ? b : a;
    };
    for (Time now = 0; now < kSecond + 600 * kMillisecond;) {
      Process& next = earliest();
      next.step();
      now = next.now();
      most = std::max(most, both[0].process.budget().bytes() + both[1].process.budget().bytes());
      if (now < kSecond + 100 * kMillisecond) alone = most;
    }
    EXPECT_EQ(alone, each) << to_string(retention);
    EXPECT_LE(most, limit);
    EXPECT_LE(both[0].process.budget().bytes(), limit / 2);
    EXPECT_GE(both[1].process.budget().bytes(), limit / 2 - kPages * page_size());
    EXPECT_EQ(both[0].process.counters().bounced + both[1].process.counters().bounced, 0u);
    // A process that has ended leaves all to the other.
    both[0].process.finish();
    while (both[1].process.running() || both[1].process.helper_busy()) both[1].process.step();
    EXPECT_EQ(both[1].process.budget().bytes(), each);
    both[1].process.finish();
  }
}

TEST(SimulatedProcess, UnmappedMemoryIsRegisteredAnew) {
  Heard run(Heard::under(RetentionKind::leave_pinned));
  Sequence script;
  script.acquire(buffer(0, 10), kMicrosecond).release(kMicrosecond).unmap(buffer(0, 10));
  script.acquire(buffer(0, 10), kMicrosecond).release(kMicrosecond);
  run.follow(script);
  EXPECT_EQ(run.process.counters().misses, 2u);
  EXPECT_EQ(run.pinned_level.peak(), 10 * page_size());
  EXPECT_EQ(run.process.counters().leave_pinned_registration_ns, 5000)
      << "two registrations, and a deregistration that the second one waited for";
}

// Two threads want one buffer: the second waits for the first one's registration.
// Hugepages of 8 pages: 1.8 us to register.
TEST(SimulatedProcess, MemoryOfLargePagesIsRegisteredInWholeOnes) {
  Heard heard(Heard::under(RetentionKind::leave_pinned));
  Sequence script;
  const Range memory = in_large_pages(buffer(1, 16), 8 * page_size()).range;
  const auto part = [&](std::size_t page, std::size_t pages) {
    const Address begin = memory.begin + page * page_size();
    return Range{begin, begin + pages * page_size()};
  };
  script.acquire_in(3, part(1, 2), 10'000).release(1'000);
  script.acquire_in(3, part(5, 1), 10'000).release(1'000);
  script.acquire(buffer(2, 3), 10'000).release(1'000);
  script.unmap(part(0, 8));
  script.acquire(part(5, 1), 10'000).release(1'000);
  heard.follow(script);
  ASSERT_EQ(heard.acquires.size(), 4u);
  EXPECT_EQ(heard.acquires[0].leased - heard.acquires[0].asked, 1'800);
  EXPECT_EQ(heard.acquires[1].outcome, runlog::Outcome::hit);
  EXPECT_EQ(heard.registered_level.peak(), 11 * page_size());
  EXPECT_EQ(heard.pinned_level.peak(), 11 * page_size()) << "leave-pinned agrees";
  EXPECT_EQ(heard.oracle_level.peak(), 8 * page_size());
  EXPECT_EQ(heard.acquires[3].leased - heard.acquires[3].asked, 1'100 + 900)
      << "ordinary memory in its place; the doomed region goes first";
}

TEST(SimulatedProcess, SecondThreadWaitsForTheRegistration) {
  Heard run(Heard::under(RetentionKind::leave_pinned));
  Sequence one, two;
  one.acquire(buffer(0, 100), 10 * kMicrosecond).release(kMicrosecond);  // registers from 10 to 21 us
  two.acquire(buffer(0, 100), 14 * kMicrosecond).release(kMicrosecond);
  run.process.add_thread(one);
  run.process.add_thread(two);
  run.finish();
  EXPECT_EQ(run.acquires[1].outcome, runlog::Outcome::wait);
  EXPECT_EQ(run.acquires[1].leased, 21 * kMicrosecond);
  EXPECT_EQ(run.process.counters().wait_ns, 7000u);
}

// A steady program under the helper: the first use misses, the second is late; from then on each is ready.
TEST(SimulatedProcess, HelperRegistersAhead) {
  Process::Settings settings = Heard::under(RetentionKind::helper);
  settings.wake_latency = [] { return 20 * kMicrosecond; };
  Heard run(std::move(settings), make_predictor("shortest", 0, 4));
  Sequence script;
  for (int i = 0; i < 20; ++i) script.acquire(buffer(0, 10), 50 * kMillisecond).release(5 * kMicrosecond);
  run.follow(script);
  EXPECT_EQ(run.process.counters().misses, 2u);
  EXPECT_EQ(run.process.counters().late, 1u);
  EXPECT_EQ(run.process.counters().hits, 18u);
  EXPECT_EQ(run.length(), 20 * (50 * kMillisecond + 5 * kMicrosecond) + 2 * 2 * kMicrosecond);
  // Held from little before each use to the helper's next look at it.
  EXPECT_LT(run.registered_level.byte_ns(),
            0.2 * static_cast<double>(run.length()) * 10.0 * static_cast<double>(page_size()));
}

// Uses that are far apart let the helper sleep long. One that found no registration wakes it.
TEST(SimulatedProcess, AnUnforeseenUseIsSeenAtOnce) {
  Heard run(Heard::under(RetentionKind::helper), make_predictor("shortest", 0, 4));
  Sequence script;
  constexpr std::size_t kUses = 20;
  for (std::size_t i = 0; i < kUses; ++i)
    script.acquire(buffer(20 * i, 10), 160 * kMillisecond).release(5 * kMicrosecond);
  run.follow(script);
  EXPECT_EQ(run.process.counters().misses, kUses);
  EXPECT_LT(run.registered_level.byte_ns(), static_cast<double>(kUses * kMillisecond * 10 * page_size()));
}

// Without a core of its own, the helper's calls are time of the program.
// A buffer that a program uses each second: looks at sixteen times `poll` would be 62 a second.
TEST(SimulatedProcess, UsesThatComeSeldomTakeFewWakeUps) {
  constexpr int kUses = 60;
  Heard heard(Heard::under(RetentionKind::helper));
  Sequence script;
  for (int i = 0; i < kUses; ++i) script.acquire(buffer(0, 1000), kSecond).release(10 * kMillisecond);
  heard.follow(script);
  const runlog::Counters counters = heard.process.counters();
  EXPECT_EQ(counters.acquires, kUses);
  EXPECT_LE(counters.misses, 5u);
  EXPECT_LT(counters.helper_wakeups, 10u * kUses);
}

// A damaged time in a log makes such a pause. Each look by itself would take a quarter of an hour; all are
// counted.
TEST(SimulatedProcess, APauseOfYearsIsSimulatedAtOnce) {
  constexpr Duration kYears = 10 * 365 * 86400 * kSecond;
  Heard heard(Heard::under(RetentionKind::helper));
  Sequence script;
  for (int i = 0; i < 60; ++i) script.acquire(buffer(0, 1000), kMillisecond).release(10 * kMillisecond);
  script.pause(kYears).acquire(buffer(0, 1000), kMillisecond).release(10 * kMillisecond);
  heard.follow(script);
  const runlog::Counters counters = heard.process.counters();
  EXPECT_EQ(counters.acquires, 61u);
  constexpr auto kLooks = static_cast<double>(kYears / kLongestSleep);
  EXPECT_NEAR(static_cast<double>(counters.helper_wakeups), kLooks, 0.01 * kLooks);
}

// Three buffers share a limit with room for two: registrations ahead wait for room.
TEST(SimulatedProcess, SwapsThatComeSeldomTakeFewWakeUps) {
  constexpr int kUses = 60;
  Process::Settings settings = Heard::under(RetentionKind::helper);
  settings.limit = 2000 * page_size();
  Heard heard(std::move(settings));
  Sequence script;
  for (int i = 0; i < kUses; ++i)
    script.acquire(buffer(static_cast<std::size_t>(i % 3) * 2, 1000), kSecond).release(10 * kMillisecond);
  heard.follow(script);
  const runlog::Counters counters = heard.process.counters();
  EXPECT_EQ(counters.acquires, kUses);
  EXPECT_LE(counters.misses, 15u);
  EXPECT_LT(counters.helper_wakeups, 8u * kUses);
}

TEST(SimulatedProcess, HelperWithoutACoreDelaysTheProgram) {
  Process::Settings settings = Heard::under(RetentionKind::helper);
  settings.delays_threads = 1;
  Heard run(std::move(settings), make_predictor("shortest", 0, 4));
  Sequence script;
  for (int i = 0; i < 20; ++i) script.acquire(buffer(0, 10), 50 * kMillisecond).release(5 * kMicrosecond);
  run.follow(script);
  const runlog::Counters& counters = run.process.counters();
  EXPECT_GT(counters.helper_cpu_ns, 0u);
  EXPECT_NEAR(static_cast<double>(run.length()),
              static_cast<double>(20 * (50 * kMillisecond + 5 * kMicrosecond)) +
                  static_cast<double>(counters.registration_ns + counters.helper_cpu_ns),
              3000);
}

// The stamp of a new region is of the domain's clock: victims are chosen by virtual time.
TEST(SimulatedProcess, RegionsAreStampedInVirtualTime) {
  Heard run(Heard::under(RetentionKind::leave_pinned));
  run.process.pass(5 * kSecond);
  Domain& domain = run.process.domain();
  Acquisition acquisition(domain, {.pages = buffer(0, 1), .lease = false});
  ASSERT_EQ(acquisition.next(run.process.now()), AcquireStep::register_);
  EXPECT_EQ(acquisition.attempt().region->last_use.load(), static_cast<Ticks>(5 * kSecond));
  EXPECT_EQ(acquisition.registered({{}, {}, Access::all}, run.process.now()), AcquireStep::leased);
}

// ---- predictors with a schedule ----

TEST(Oracle, KnowsEveryUse) {
  ThreadProgram program;
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    Operation acquire, release;
    acquire.range = buffer(random.below(5), 10);
    acquire.site = random.below(3);
    acquire.compute = static_cast<Duration>(random.between(1, 20) * kMillisecond);
    release.kind = Operation::Kind::release;
    release.transfer = 10 * kMicrosecond;
    program.before.push_back(acquire);
    program.before.push_back(release);
  }
  const MakeDisturbance irregular = test::noise("irregular");
  const auto scripts = [&](const MakeDisturbance& noise) {
    std::vector<std::unique_ptr<Script>> list;
    list.push_back(std::make_unique<ProgramScript>(program, noise ? noise(3) : nullptr));
    return list;
  };
  const auto run_with = [&](const char* name, const MakeDisturbance& schedule) {
    auto predictor = std::make_unique<SchedulePredictor>(
        name, std::make_shared<Schedule>(schedule_of(scripts(schedule), kSecond)));
    Heard run(Heard::under(RetentionKind::helper), std::move(predictor));
    const auto script = scripts(irregular);
    run.process.add_thread(*script.front());
    run.finish();
    return run.process.counters();
  };
  const runlog::Counters oracle = run_with("oracle", irregular);
  EXPECT_EQ(oracle.reuses, 195u);
  EXPECT_EQ(oracle.within_0_5, oracle.reuses);
  EXPECT_GT(oracle.at_release_within_0_5, oracle.reuses * 9 / 10);
  EXPECT_EQ(oracle.late, 0u);
  // Without the noise it has the order but other times.
  const runlog::Counters schedule = run_with("schedule", {});
  EXPECT_LT(schedule.within_0_5, oracle.reuses / 2);
  EXPECT_GT(schedule.at_release_within_5, 0u);
}

// ---- levels ----

TEST(Levels, PeakDoesNotCountWhatHeldForNoTime) {
  Level level(0);
  level.change(10, 100);
  level.change(10, -100);
  level.change(10, 50);
  level.change(20, -50);
  level.advance(30);
  EXPECT_EQ(level.peak(), 50u);
  EXPECT_EQ(level.byte_ns(), 500);
}

TEST(Levels, LateChangesArePutInOrder) {
  LateLevel level(0);
  level.change(100, 100, 10);
  level.change(100, 90, 20);  // heard of 10 late
  level.change(150, 150, -10);
  level.change(150, 150, -20);
  level.advance(200);
  EXPECT_EQ(level.peak(), 30u);
  EXPECT_EQ(level.byte_ns(), 10 * 50 + 20 * 60);
}

}  // namespace
}  // namespace pinion::simulate
