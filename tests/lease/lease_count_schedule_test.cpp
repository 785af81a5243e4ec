// Leases that threads count for themselves, of the arena and of regions that they share, under chosen
// interleavings, on a machine that delays plain stores as processors do: a thread sees its own at once, and
// others see them in order, some time later.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>

#include "lease/lease_count.h"
#include "registry/region_word.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::Scenario;
using test::ScheduledAtomics;
using test::Scheduler;

/// The stores of one thread that others see later.
class StoreBuffer {
 public:
  /// The calling thread's, until its end.
  class Use {
   public:
    explicit Use(StoreBuffer& buffer) : buffer_(buffer) { own = &buffer; }
    ~Use() {
      buffer_.drain();
      own = nullptr;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    StoreBuffer& buffer_;
  };

  void push(std::atomic<std::uint64_t>& to, std::uint64_t value) { stores_.emplace_back(&to, value); }
  std::uint64_t newest(const std::atomic<std::uint64_t>& of) const {
    for (auto store = stores_.rbegin(); store != stores_.rend(); ++store)
      if (store->first == &of) return store->second;
    return of.load();
  }
  void drain() {
    for (; !stores_.empty(); stores_.pop_front()) stores_.front().first->store(stores_.front().second);
  }

  static inline thread_local StoreBuffer* own = nullptr;

 private:
  std::deque<std::pair<std::atomic<std::uint64_t>*, std::uint64_t>> stores_;
};

/// Schedules like ScheduledAtomics, with those buffers. Locked instructions empty the thread's own.
struct BufferedAtomics {
  template <class T>
  class Atomic {
   public:
    Atomic() = default;
    Atomic(T value) : value_(value) {}

    T load(std::memory_order = std::memory_order_seq_cst) const {
      Scheduler::point();
      return StoreBuffer::own != nullptr ? StoreBuffer::own->newest(value_) : value_.load();
    }
    void store(T value, std::memory_order) {
      Scheduler::point();
      if (StoreBuffer::own != nullptr)
        StoreBuffer::own->push(value_, value);
      else
        value_.store(value);
    }
    T exchange(T value, std::memory_order) {
      begin_locked();
      return value_.exchange(value);
    }
    T fetch_or(T bits, std::memory_order) {
      begin_locked();
      return value_.fetch_or(bits);
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order, std::memory_order) {
      begin_locked();
      return value_.compare_exchange_strong(expected, desired);
    }

   private:
    static void begin_locked() {
      Scheduler::point();
      if (StoreBuffer::own != nullptr) StoreBuffer::own->drain();
    }
    std::atomic<std::uint64_t> value_{};
  };
  static void relax() { Scheduler::spin(); }
};

enum class Way { fenced, ordered, neither };

/// One lease that a thread takes, perhaps for another to return, while a third one closes the segment.
struct World {
  BasicRegionWord<BufferedAtomics> word;
  BasicLeaseCount<BufferedAtomics> counts[2];
  StoreBuffer buffers[2];
  ScheduledAtomics::Atomic<bool> closed{false};
  ScheduledAtomics::Atomic<bool> fenced{false};
  static constexpr std::uint16_t kPlace = 7;
  BufferedAtomics::Atomic<std::uint64_t> place{kPlace};
  BufferedAtomics::Atomic<std::uint64_t> handed{0};  ///< 1: to the second thread; 2: there is no lease
  std::uint64_t overlooked = 0;                      ///< uses of a segment that was closed under the lease

  World() {
    word.begin_registering(0);
    EXPECT_TRUE(word.commit());
  }

  void use() {
    if (closed.load()) ++overlooked;
  }
  void take(Way way, bool hands_over) {
    const StoreBuffer::Use own(buffers[0]);
    const bool leased = counts[0].count_in(word, word.load().proof(), way == Way::ordered);
    if (!leased) counts[0].refuse();
    if (leased) {
      use();
      if (!hands_over) {
        use();
        counts[0].give_back();
      }
    }
    handed.store(leased && hands_over ? 1 : 2, std::memory_order_release);
  }
  void give_back() {
    const StoreBuffer::Use own(buffers[1]);
    std::uint64_t what = 0;
    while ((what = handed.load()) == 0) BufferedAtomics::relax();
    if (what != 1) return;
    use();
    counts[1].give_back();
  }

  // ---- a region that threads share: its place is taken away, instead of its doom ----

  /// The last user ends what was closed.
  void share() {
    const StoreBuffer::Use own(buffers[0]);
    if (counts[0].count_in_at(place, kPlace, word, word.load().proof())) {
      use();
      counts[0].give_back();
    } else {
      counts[0].refuse();
    }
    if (place.load() != kPlace) end_place();
  }
  void close_place(Way way) {
    place.store(0, std::memory_order_seq_cst);
    Scheduler::point();
    if (way == Way::fenced) drain();
    fenced.store(true);
    end_place();
  }
  void end_place() {
    if (fenced.load() && out() == 0) closed.store(true);
  }

  std::uint64_t out() const {
    return leases_out([this](auto&& visit) {
      for (const auto& count : counts) visit(count);
    });
  }
  void close(Way way) {
    word.doom();
    if (out() != 0) return;
    Scheduler::point();
    if (way == Way::fenced) drain();
    if (out() == 0) closed.store(true);
  }
  void drain() {
    for (StoreBuffer& buffer : buffers) buffer.drain();
  }
};

/// Uses that were overlooked, in all schedules.
std::uint64_t overlooked(Way way, bool hands_over) {
  std::uint64_t sum = 0;
  const auto explored = Scheduler::explore({.preemptions = 2, .exhaustive = 3000, .random = 300}, [&] {
    const auto world = std::make_shared<World>();
    const auto at_any_time = [world] {
      Scheduler::point();
      world->drain();
    };
    Scenario scenario;
    scenario.threads = {[=] { world->take(way, hands_over); }, [=] { world->close(way); }};
    if (hands_over)
      scenario.threads.push_back([=] { world->give_back(); });
    else
      scenario.threads.push_back(at_any_time);
    scenario.check = [world, &sum] {
      sum += world->overlooked;
      EXPECT_EQ(world->out(), 0u) << "all are back";
    };
    return scenario;
  });
  EXPECT_GT(explored.schedules, 100u);
  return sum;
}

TEST(LeaseCountSchedule, ALeaseKeepsItsSegment) {
  for (const bool hands_over : {false, true})
    for (const Way way : {Way::fenced, Way::ordered}) EXPECT_EQ(overlooked(way, hands_over), 0u);
}

/// Uses that were overlooked, and regions that stayed open, in all schedules.
struct OfShared {
  std::uint64_t overlooked = 0, left_open = 0;
};
OfShared of_shared(Way way) {
  OfShared sum;
  Scheduler::explore({.preemptions = 3, .exhaustive = 5000, .random = 500}, [&] {
    const auto world = std::make_shared<World>();
    Scenario scenario;
    scenario.threads = {[=] { world->share(); }, [=] { world->close_place(way); },
                        [world] {
                          Scheduler::point();
                          world->drain();
                        }};
    scenario.check = [world, &sum] {
      sum.overlooked += world->overlooked;
      sum.left_open += !world->closed.load();
      EXPECT_EQ(world->out(), 0u) << "all are back";
    };
    return scenario;
  });
  return sum;
}

TEST(LeaseCountSchedule, ASharedRegionIsClosedByItsLastUser) {
  const OfShared fenced = of_shared(Way::fenced);
  EXPECT_EQ(fenced.overlooked, 0u);
  EXPECT_EQ(fenced.left_open, 0u);
}

TEST(LeaseCountSchedule, WithoutFencesASharedRegionsUserIsOverlooked) {
  EXPECT_GT(of_shared(Way::neither).overlooked, 0u) << "else these schedules show nothing";
}

TEST(LeaseCountSchedule, WithoutFencesOneIsOverlooked) {
  EXPECT_GT(overlooked(Way::neither, false), 0u) << "else these schedules show nothing";
}

}  // namespace
}  // namespace pinion
