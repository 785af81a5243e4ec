// Swapping under a limit: unregistered acquires, after each buffer's first two uses, beside those of lru with
// the same size; and below the oracle's peak the bytes that bounce, beside Belady's.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string_view>

#include "device/model/cost_model.h"
#include "node/node_table.h"
#include "papers/patterns/pattern.h"
#include "simulate/levels.h"
#include "simulate/process.h"
#include "simulate/schedule_predictor.h"
#include "simulate/workload.h"
#include "support/noise.h"

namespace pinion::simulate {
namespace {

const CostModel kNic{"test", 246, 16000, 66, 4300, {}};
constexpr Time kStart = kSecond;

constexpr double kPaper = 1.5e9;  ///< bytes a second, of the paper's network
constexpr double kFast = 50e9;  ///< of one with 400 Gbit/s: there a registration takes as long as a transfer

struct Counts {
  std::uint64_t unbacked = 0;  ///< misses, waits and bounced ones, from each buffer's third use on
  std::uint64_t bounced_bytes = 0;
  std::uint64_t acquires = 0, registrations = 0;
  std::uint64_t peak = 0, oracle_peak = 0, pinned_peak = 0;
  double seconds = 0;
};

/// One process of a pattern, which counts the outcomes of its acquires.
class Counted final : private Observer {
 public:
  Counted(const Program& program, Process::Settings settings, const std::string& predictor,
          const MakeDisturbance& noise = {}, int rank = 0)
      : script_(program.threads[0], noise ? noise(rank) : nullptr),
        process_(std::move(settings), make(predictor, program), *this) {
    list(program);
    process_.add_thread(script_);
  }

  Process& process() { return process_; }
  bool runs() const { return process_.running() || process_.helper_busy(); }
  void finish() {
    process_.finish();
    const Time end = process_.now();
    registered_.advance(end);
    pinned_.advance(end);
    oracle_.advance(end);
    counts.bounced_bytes = process_.counters().bounced_bytes;
    counts.peak = registered_.peak();
    counts.oracle_peak = oracle_.peak();
    counts.pinned_peak = pinned_.peak();
    counts.seconds = static_cast<double>(process_.ended() - kStart) * 1e-9;
  }

  Counts counts;

 private:
  static std::vector<std::unique_ptr<Predictor>> make(const std::string& name, const Program& program) {
    std::vector<std::unique_ptr<Script>> scripts;
    scripts.push_back(std::make_unique<ProgramScript>(program.threads[0]));
    const auto schedule = std::make_shared<Schedule>(schedule_of(scripts, kStart));
    std::vector<std::unique_ptr<Predictor>> predictors;
    while (predictors.size() < program.domains) {
      if (name == "oracle")
        predictors.push_back(std::make_unique<SchedulePredictor>("oracle", schedule));
      else
        predictors.push_back(make_predictor(name, 2, 128));
    }
    return predictors;
  }
  /// Which use of its buffer each acquire is.
  void list(const Program& program) {
    ProgramScript script(program.threads[0]);
    std::map<std::pair<Address, Address>, std::size_t> uses;
    for (Operation operation; script.next(operation);) {
      if (operation.kind != Operation::Kind::acquire) continue;
      const Range pages = operation.range.to_pages();
      use_.push_back(++uses[{pages.begin, pages.end}]);
    }
  }

  void registered(Time now, Time since, std::int64_t bytes) override {
    registered_.change_since(since, now, bytes);
    counts.registrations += bytes > 0;
  }
  void left_pinned(Time now, std::int64_t bytes) override { pinned_.change(now, bytes); }
  void oracle_held(Time time, std::int64_t bytes) override { oracle_.change(process_.now(), time, bytes); }
  void acquired(std::uint64_t number, Time, Time, runlog::Outcome outcome) override {
    ++counts.acquires;
    counts.unbacked += use_[number] > 2 && outcome != runlog::Outcome::hit;
  }

  std::vector<std::size_t> use_;
  Level registered_{kStart}, pinned_{kStart};
  LateLevel oracle_{kStart};
  ProgramScript script_;
  Process process_;
};

/// The largest buffer of a process, and the bytes that bounce under `limit` with any choice of victims:
/// transfers that find too much under lease.
std::uint64_t largest_buffer(const Program& program) {
  std::uint64_t most = 0;
  ProgramScript script(program.threads[0]);
  for (Operation operation; script.next(operation);)
    if (operation.kind == Operation::Kind::acquire)
      most = std::max<std::uint64_t>(most, operation.range.to_pages().bytes());
  return most;
}

std::uint64_t belady_bounces(const Program& program, std::uint64_t limit) {
  std::uint64_t bounced = 0;
  Coverage leased;
  std::map<std::uint32_t, Range> slots;
  ProgramScript script(program.threads[0]);
  for (Operation operation; script.next(operation);) {
    const Range pages = operation.range.to_pages();
    if (operation.kind == Operation::Kind::release) {
      if (const auto at = slots.find(operation.slot); at != slots.end()) {
        leased.remove(at->second);
        slots.erase(at);
      }
    } else if (operation.kind == Operation::Kind::acquire) {
      if (leased.bytes() + leased.would_add(pages) > limit) {
        bounced += operation.range.bytes();
      } else {
        leased.add(pages);
        slots[operation.slot] = pages;
      }
    }
  }
  return bounced;
}

/// Deals the program's buffers out among so many domains.
Program spread(Program program, std::size_t domains) {
  program.domains = domains;
  std::map<Address, unsigned> domain_of;
  for (std::vector<Operation>* part :
       {&program.threads[0].before, &program.threads[0].turn, &program.threads[0].after}) {
    for (Operation& operation : *part) {
      if (operation.kind != Operation::Kind::acquire) continue;
      const auto next = static_cast<unsigned>(domain_of.size() % domains);
      operation.range =
          in_domain(operation.range, domain_of.try_emplace(operation.range.begin, next).first->second);
    }
  }
  return program;
}

/// Puts the program on a core that others want: in three of ten turns each interval takes 4 to 32 times as
/// long.
Program stalled(Program program) {
  ThreadProgram& thread = program.threads[0];
  std::uint64_t random = 1;
  for (std::uint64_t turn = 0; turn < thread.turns; ++turn) {
    for (Operation operation : thread.turn) {
      random = random * 6364136223846793005 + 1442695040888963407;
      if (turn % 10 >= 7) operation.compute *= static_cast<Duration>(4 << (random >> 62));
      thread.before.push_back(operation);
    }
  }
  thread.turns = 0;
  return program;
}

/// Twenty turns of the program, and from then on only the uses of its first three buffers.
Program narrowed(Program program) {
  ThreadProgram& thread = program.threads[0];
  for (int turn = 0; turn < 20; ++turn)
    thread.before.insert(thread.before.end(), thread.turn.begin(), thread.turn.end());
  std::set<Address> buffers;
  std::set<std::uint32_t> left_out;
  std::vector<Operation> narrow;
  for (const Operation& operation : thread.turn) {
    if (operation.kind == Operation::Kind::acquire) {
      if (buffers.size() < 3) buffers.insert(operation.range.begin);
      if (buffers.count(operation.range.begin) != 0)
        left_out.erase(operation.slot);
      else
        left_out.insert(operation.slot);
    }
    if (left_out.count(operation.slot) == 0) narrow.push_back(operation);
  }
  thread.turn = narrow;
  return program;
}

struct Case {
  const char* pattern;
  std::uint64_t turns;  ///< 0: as the pattern has it
  double bytes_per_second;
  bool lru_misses;  ///< more than 50 times, where there is room for a buffer more than the oracle holds

  friend std::ostream& operator<<(std::ostream& out, const Case& of) { return out << of.pattern; }
};

struct Conditions {
  bool core_idle = true;
  std::uint64_t regions = UINT64_MAX;
  node::NodeTable* room = nullptr;
};

class Swapping : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    Pattern found;
    Placement placement;
    ASSERT_FALSE(find_pattern(GetParam().pattern, found));
    ASSERT_FALSE(Placement::make(found.ranks, 1, "packed", placement));
    Machine machine;
    machine.network_bytes_per_second = GetParam().bytes_per_second;
    workload = pattern_workload(found, GetParam().turns, placement, machine);
  }
  static Process::Settings under(RetentionKind kind, std::uint64_t limit, const Conditions& conditions) {
    Process::Settings settings;
    settings.time_budget.core_idle = conditions.core_idle;
    settings.delays_threads = conditions.core_idle ? 0 : settings.time_budget.delay;
    settings.limit_regions = conditions.regions;
    settings.room = conditions.room;
    settings.helper_cpu.wake = 5 * kMicrosecond;
    settings.helper_cpu.record = kMicrosecond;
    settings.retention = kind;
    settings.nic = kNic;
    settings.limit = settings.lru_bytes = limit;
    settings.memcpy_bytes_per_ns = 10;
    settings.wake_latency = [] { return 60 * kMicrosecond; };
    return settings;
  }
  static Counts run(const Program& program, RetentionKind kind, std::uint64_t limit,
                    const char* predictor = "adaptive", const Conditions& conditions = {}) {
    Counted counted(program, under(kind, limit, conditions), predictor);
    while (counted.runs()) counted.process().step(kNever);
    counted.finish();
    return counted.counts;
  }
  /// All processes on one node, which may register so much together.
  static Counts run_on_node(const std::vector<Program>& programs, RetentionKind kind, std::uint64_t limit,
                            const MakeDisturbance& noise = {}) {
    const std::shared_ptr<node::SharedTable> room = node::NodeTable::simulated();
    std::deque<node::NodeTable> rooms;
    std::deque<Counted> running;
    for (const Program& program : programs) {
      EXPECT_FALSE(rooms.emplace_back().join(room, limit, rooms.size() + 1));
      running.emplace_back(program, under(kind, limit, {.core_idle = false, .room = &rooms.back()}),
                           "adaptive", noise, static_cast<int>(rooms.size()));
    }
    Counts sum;
    while (true) {
      Counted* first = nullptr;
      std::uint64_t held = 0;
      for (Counted& counted : running) {
        held += counted.process().budget().bytes();
        if (counted.runs() && (!first || counted.process().next_event() < first->process().next_event()))
          first = &counted;
      }
      sum.peak = std::max(sum.peak, held);
      if (!first) break;
      first->process().step();
    }
    for (Counted& counted : running) {
      counted.finish();
      sum.unbacked += counted.counts.unbacked;
      sum.acquires += counted.counts.acquires;
      sum.registrations += counted.counts.registrations;
    }
    return sum;
  }
  static Counts unlimited(const Program& program) {
    return run(program, RetentionKind::leave_pinned, UINT64_MAX);
  }

  Workload workload;
};

// Room for one buffer more than the oracle holds, and half-way from there to all.
TEST_P(Swapping, FindsRegisteredWhatLruMisses) {
  for (const Program& program : workload.programs) {
    const Counts all = unlimited(program);
    const std::uint64_t one_more = all.oracle_peak + largest_buffer(program);
    for (const std::uint64_t limit : {one_more, (one_more + std::max(one_more, all.pinned_peak)) / 2}) {
      const Counts lru = run(program, RetentionKind::lru, limit);
      EXPECT_EQ(lru.unbacked > 50, GetParam().lru_misses) << lru.unbacked;
      for (const char* predictor : {"adaptive", "oracle"}) {
        const Counts helper = run(program, RetentionKind::helper, limit, predictor);
        EXPECT_LE(helper.peak, limit);
        if (lru.unbacked > 50) {
          EXPECT_LE(10 * helper.unbacked, lru.unbacked)
              << predictor << ", limit " << limit << ": " << helper.unbacked << " to " << lru.unbacked;
        }
      }
    }
  }
}

// Work that the helper does in place of the thread takes nothing from the budget.
TEST_P(Swapping, WithoutAnIdleCoreToo) {
  if (GetParam().bytes_per_second != kPaper || !GetParam().lru_misses) return;
  for (const Program& program : workload.programs) {
    const std::uint64_t limit = unlimited(program).oracle_peak + largest_buffer(program);
    const Counts lru = run(program, RetentionKind::lru, limit);
    const Counts helper = run(program, RetentionKind::helper, limit, "adaptive", {.core_idle = false});
    EXPECT_LE(10 * helper.unbacked, lru.unbacked);
  }
}

// All predicted uses are overdue then, and only their order tells which one comes first.
TEST_P(Swapping, InALoopThatStallsToo) {
  if (GetParam().bytes_per_second != kPaper || !std::string_view(GetParam().pattern).starts_with("loop"))
    return;
  for (const Program& steady : workload.programs) {
    const Program program = stalled(steady);
    const std::uint64_t limit = unlimited(program).oracle_peak + largest_buffer(program);
    const Counts lru = run(program, RetentionKind::lru, limit);
    for (const bool core_idle : {true, false}) {
      const Counts helper = run(program, RetentionKind::helper, limit, "adaptive", {.core_idle = core_idle});
      EXPECT_LE(helper.peak, limit);
      EXPECT_LE(10 * helper.unbacked, lru.unbacked)
          << core_idle << ": " << helper.unbacked << " to " << lru.unbacked;
    }
  }
}

// Registrations ahead of uses that never come wait for room at that time.
TEST_P(Swapping, WhereUsesNoLongerComeToo) {
  if (std::string_view(GetParam().pattern) != "loop5:4M:2") return;
  for (const Program& all : workload.programs) {
    const Program program = narrowed(all);
    const std::uint64_t limit = unlimited(program).oracle_peak + largest_buffer(program);
    const Counts lru = run(program, RetentionKind::lru, limit);
    const Counts helper = run(program, RetentionKind::helper, limit, "adaptive", {.core_idle = false});
    EXPECT_GT(lru.unbacked, 150u);
    EXPECT_LE(10 * helper.unbacked, lru.unbacked) << helper.unbacked << " to " << lru.unbacked;
  }
}

TEST_P(Swapping, UnderALimitOfRegionsToo) {
  if (GetParam().bytes_per_second != kPaper || !GetParam().lru_misses) return;
  for (const Program& program : workload.programs) {
    const std::uint64_t buffer = largest_buffer(program);  // all have one size
    const std::uint64_t room = unlimited(program).oracle_peak + buffer;
    const Counts lru = run(program, RetentionKind::lru, room);
    for (const bool core_idle : {true, false}) {
      const Conditions conditions{.core_idle = core_idle, .regions = room / buffer};
      const Counts helper = run(program, RetentionKind::helper, UINT64_MAX, "adaptive", conditions);
      EXPECT_LE(helper.peak, room);
      EXPECT_LE(10 * helper.unbacked, lru.unbacked) << core_idle;
    }
  }
}

// Buffers of several domains share the limit: one domain's go for another's.
TEST_P(Swapping, AmongSeveralDomainsToo) {
  if (GetParam().bytes_per_second != kPaper) return;
  for (const Program& program : workload.programs) {
    const Counts all = unlimited(program);
    const std::uint64_t one_more = all.oracle_peak + largest_buffer(program);
    for (const std::size_t domains : {2, 3}) {
      const Program dealt = spread(program, domains);
      for (const std::uint64_t limit : {one_more, (one_more + std::max(one_more, all.pinned_peak)) / 2}) {
        const Counts lru = run(dealt, RetentionKind::lru, limit);
        const Counts helper = run(dealt, RetentionKind::helper, limit, "adaptive", {.core_idle = false});
        EXPECT_LE(helper.peak, limit);
        EXPECT_EQ(lru.unbacked > 50, GetParam().lru_misses) << lru.unbacked;
        if (lru.unbacked > 50) {
          EXPECT_LE(10 * helper.unbacked, lru.unbacked) << domains << " domains, limit " << limit;
        }
      }
      for (const std::uint64_t limit : {all.oracle_peak - page_size(), all.oracle_peak / 2}) {
        const Counts lru = run(dealt, RetentionKind::lru, limit);
        const Counts helper = run(dealt, RetentionKind::helper, limit, "adaptive", {.core_idle = false});
        EXPECT_LE(helper.peak, limit);
        // Some more for cg:A, whose rounds of swaps cross domains: 2.2 % at most.
        EXPECT_LE(helper.unbacked, lru.unbacked + lru.unbacked / 40)
            << domains << " domains, limit " << limit;
        EXPECT_LE(10 * helper.bounced_bytes, 11 * belady_bounces(program, limit));
      }
    }
  }
}

// Each process has its part of the node's limit.
TEST_P(Swapping, WithAPartOfANodesLimitToo) {
  if (GetParam().bytes_per_second != kPaper) return;
  std::uint64_t one_more = 0, most = 0;
  for (const Program& program : workload.programs) {
    const Counts all = unlimited(program);
    one_more += all.oracle_peak + largest_buffer(program);
    most += std::max(all.oracle_peak + largest_buffer(program), all.pinned_peak);
  }
  for (const std::uint64_t limit : {one_more, (one_more + most) / 2}) {
    const Counts lru = run_on_node(workload.programs, RetentionKind::lru, limit);
    const Counts helper = run_on_node(workload.programs, RetentionKind::helper, limit);
    EXPECT_LE(helper.peak, limit);
    EXPECT_EQ(lru.unbacked > 50, GetParam().lru_misses) << lru.unbacked;
    if (lru.unbacked > 50) {
      EXPECT_LE(10 * helper.unbacked, lru.unbacked) << "limit " << limit;
    }
  }
}

// However far intervals stray: to be late would cost less than the time budget allows, but the limit binds.
// What goes for a registration ahead leaves its room to it, though other processes are short as well.
TEST_P(Swapping, InANodeThatIsShortOfRoomThoughIntervalsStray) {
  if (GetParam().bytes_per_second != kPaper || !GetParam().lru_misses) return;
  std::uint64_t most = 0, buffer = 0;
  for (const Program& program : workload.programs) {
    most += unlimited(program).pinned_peak;
    buffer = std::max(buffer, largest_buffer(program));
  }
  const std::uint64_t limit = most - 3 * buffer / 2;
  for (const char* kind : {"none", "10%", "irregular"}) {
    const MakeDisturbance noise = test::noise(kind);
    const Counts lru = run_on_node(workload.programs, RetentionKind::lru, limit, noise);
    const Counts helper = run_on_node(workload.programs, RetentionKind::helper, limit, noise);
    EXPECT_LE(helper.peak, limit);
    EXPECT_GT(lru.unbacked, 50u) << kind;
    EXPECT_LE(10 * helper.unbacked, lru.unbacked) << kind;
    EXPECT_LE(helper.registrations, helper.acquires + helper.acquires / 20) << kind;
  }
}

// There some transfer must miss or bounce.
TEST_P(Swapping, BelowTheOraclesPeakMissesNoMoreThanLruAndBouncesAsBelady) {
  for (const Program& program : workload.programs) {
    const Counts all = unlimited(program);
    for (const std::uint64_t limit : {all.oracle_peak - page_size(), all.oracle_peak / 2}) {
      const Counts lru = run(program, RetentionKind::lru, limit);
      for (const char* predictor : {"adaptive", "oracle"}) {
        const Counts helper = run(program, RetentionKind::helper, limit, predictor);
        EXPECT_LE(helper.peak, limit);
        // One more in a hundred, where a swap has let go what a transfer needs first.
        EXPECT_LE(helper.unbacked, lru.unbacked + lru.unbacked / 40) << predictor << ", limit " << limit;
        EXPECT_LE(10 * helper.bounced_bytes, 11 * belady_bounces(program, limit))
            << predictor << ", limit " << limit;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, Swapping,
    ::testing::Values(Case{"reuse:4M:2", 100, kPaper, true}, Case{"nested:1M:2", 0, kPaper, false},
                      Case{"lu:A:2", 0, kPaper, false}, Case{"lu:A:4", 0, kPaper, false},
                      Case{"cg:A:2", 0, kPaper, false}, Case{"cg:B:2", 0, kPaper, false},
                      Case{"loop3:4M:2", 0, kPaper, true}, Case{"loop5:4M:2", 0, kPaper, true},
                      Case{"loop3:64M:2", 200, kPaper, true}, Case{"loop3:64M:2", 0, kFast, true},
                      Case{"loop5:64M:2", 0, kFast, true}),
    [](const auto& info) {
      std::string name = info.param.pattern;
      std::replace(name.begin(), name.end(), ':', '_');
      return name + (info.param.bytes_per_second == kFast ? "_fast" : "");
    });

}  // namespace
}  // namespace pinion::simulate
