// The buffers that retention `helper` knows: the ranges of whole pages (or of bytes, where the device
// registers such ranges) that transfers have used, by number and by address; what they cost, when they are
// used next, and which of them are settled. HelperRetention owns it all, and adds and removes buffers; its
// parts read them and note their own fields. One thread, retention's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/access.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/range.h"
#include "predict/predictor.h"
#include "registry/domain.h"
#include "registry/region.h"
#include "retention/costs.h"
#include "runlog/format.h"

namespace pinion {

constexpr Time kNotYet = INT64_MIN / 2;

inline bool registered(const RegionRef& ref) { return ref.current() && ref.region->word.load().leasable(); }

/// The predictor's last answer for a buffer (Forecast). It holds until the predictor learns, and is needed
/// several times a use.
struct KnownUse {
  std::uint64_t learnt = 0;  ///< uses by then
  Time after = 0;
  Duration worth = -1;  ///< -1: nothing is known
  Estimate next;
};
/// The worth of a buffer's pages, as last computed (Ledger).
struct KnownWorth {
  std::uint64_t terms = 0;  ///< their number
  std::size_t entries = 0;
  Duration value = 0;
};

/// What is known of a buffer. Its state follows from its region and the list of HelperRetention that has it:
///
///   state    region             list, and what the helper waits for       then
///   used     registered         undecided_: next()                        kept, settled or gone
///   kept     registered         looks_: waiting has cost a late use       used, or decided about again
///   settled  registered, marked looks_: a rest                            used, or decided about as used
///   gone     being deregistered none: done()                              queued or absent
///   queued   none               plan_: the registration is due            ahead; used, if that is sooner
///   absent   none               none: the use, which registers            used
///   ahead    registered         looks_: as kept                           used, or decided about again
///   unknown  registered         looks_: it has cost many late uses        used, or decided about
///
/// `unknown` are buffers that a sweep has found, whose uses left no record. From each state, a change of the
/// memory ends the buffer, and its number is given again. A buffer that is kept, absent or ahead may be in
/// overs_, too: the helper wakes when its next use should be over, and decides at once.
struct Buffer {
  bool live = false;
  Range pages{};
  Access access = Access::read;
  std::uint16_t thread = 0;  ///< that used it last
  RegionRef region;
  std::size_t entries = 1;  ///< translation entries that its pages take, as far as is known

  Time last_use = kNotYet;
  Time busy_until = kNotYet;  ///< the end of its transfers so far
  Duration lasts = 0;         ///< its transfers, lately
  Duration pace = 0;          ///< the last interval
  Duration longest_interval = 0;
  bool reused = false;  ///< it has had a use before its last
  bool late = false;    ///< its last use, which awaits a decision

  /// The state of SettledRegions.
  struct Settled {
    bool by_last_use = false;
    Time since = kNotYet;
    std::uint32_t uses = 0;    ///< Region::uses at the last record
    std::uint32_t passed = 0;  ///< uses while settled, of which the predictor sees a sample
    runlog::Event use{};       ///< the last one that left a record: those that leave none are alike
  } settled;
  Duration reserved = 0;  ///< in the time budget, for its next use (Ledger)
  /// The state of CollapsePlan.
  struct Collapsing {
    Time dear_since = kNotYet;  ///< its region is kept since then, as it would be dear to have it back
    Duration rent = 0;          ///< so long, until its last use
    Address done_to = 0;        ///< its units below that are done
    Duration dear = 0;          ///< a registration before that
    Time again = 0;             ///< the next try, after a refusal
    Duration rest = 0;          ///< the last wait for that
  } collapsing;
  /// Its next use, as last planned.
  struct Expected {
    Time at_release = kNever;  ///< predicted one full reuse ahead
    Time over = kNever;        ///< when it should be over, as the helper was to wake for it
    Duration margin = 0;       ///< so long before it the buffer is to be registered
  } expected;
  mutable KnownUse known_use;
  mutable KnownWorth known_worth;

  /// Another region than this one serves it.
  bool served_elsewhere(const RegionRef& than) const {
    return region.region != than.region && registered(region);
  }
};

using Ids = std::vector<BufferId>;

class BufferTable {
 public:
  Buffer& operator[](BufferId id) { return buffers_[id]; }
  const Buffer& operator[](BufferId id) const { return buffers_[id]; }
  /// False for numbers of a domain before this one, too.
  bool is_live(BufferId id) const { return id < buffers_.size() && buffers_[id].live; }
  std::size_t size() const { return by_begin_.size(); }
  std::size_t all_pages() const { return all_pages_; }

  /// Returns the live buffer of exactly these pages, or null.
  Buffer* find(Range pages) {
    const auto at = by_begin_.find({pages.begin, pages.end});
    return at == by_begin_.end() ? nullptr : &buffers_[at->second];
  }
  /// Returns the buffer of these pages, and whether it is new.
  std::pair<BufferId, bool> add(Range pages);
  /// The number is given again.
  void remove(BufferId id);

  /// Returns the buffers that lie in `range`, by address. The list is good until a buffer comes or goes, or
  /// other ranges are asked for.
  const Ids& in(Range range) const {
    const Found& found = found_[slot_of(range)];
    return found.changes == changes_ && found.range == range ? found.buffers : find_in(range);
  }
  /// Returns the buffers that overlap `range`.
  Ids overlapping(Range range) const;
  /// Calls drop(id), which removes it, for half of the buffers that lack a region, the longest unused ones,
  /// if there are too many. Half at once, so that a stream of buffers used only once costs O(1) amortized.
  template <class Drop>
  void forget_oldest(BufferId except, Drop&& drop) {
    if (by_begin_.size() <= forget_beyond_) return;
    for (const BufferId id : longest_unused(except)) drop(id);
    // The next attempt waits for more new buffers if most have a region.
    forget_beyond_ = std::max(kMost, by_begin_.size() + kMost / 4);
  }

 private:
  static constexpr std::size_t kMost = 16384;

  const Ids& find_in(Range range) const;
  Ids longest_unused(BufferId except) const;
  std::size_t slot_of(Range range) const {
    return static_cast<std::size_t>(range.begin * 0x9E3779B97F4A7C15ull >> 40) & found_mask_;
  }

  std::vector<Buffer> buffers_;
  Ids free_;
  std::map<std::pair<Address, Address>, BufferId> by_begin_;
  std::uint64_t changes_ = 0;  ///< of by_begin_
  /// An answer of in(): each use needs that of one region several times.
  struct Found {
    std::uint64_t changes = UINT64_MAX;
    Range range{};
    Ids buffers;
  };
  mutable std::vector<Found> found_{64};  ///< by slot_of(); a power of two, as many as buffers at least
  std::size_t found_mask_ = found_.size() - 1;
  std::size_t largest_pages_ = 1;  ///< of any buffer so far
  std::size_t all_pages_ = 0;
  std::size_t forget_beyond_ = kMost;
};

/// Prices holding a buffer's region against a late use of it, within the time budget.
/// Reserves in the budget for the regions that are gone. Owns the terms of these prices; budget, costs and
/// buffers belong to others.
class Ledger {
 public:
  // A machine that others begin to use too makes intervals twice as long as any before.
  static constexpr int kPatience = 3;

  /// `budget` may be null: all is allowed. All outlive it.
  Ledger(TimeBudget* budget, const CostEstimates& costs, BufferTable& buffers)
      : budget_(budget ? *budget : unbounded_), costs_(costs), buffers_(buffers) {}

  TimeBudget& budget() const { return budget_; }
  /// Takes the terms of now for prices.
  void note_terms();
  /// The helper sees the late use of a buffer only now, as it came unawaited.
  void learn_unseen(Buffer& buffer, Time now);

  // ---- prices ----

  /// Returns for how long to hold so many pages is as bad as one late transfer of them. Such a transfer
  /// registers so many translation entries, and leaves them registered until the next look.
  Duration worth(std::size_t pages, std::size_t entries) const;
  /// Returns for how long to hold so many pages is as bad as so much work of the helper's, at the price of an
  /// unused budget.
  Duration worth_of_work(std::size_t pages, Duration work) const;
  /// The helper's work for which the budget has time that is not reserved.
  Duration free_for_work() const {
    if (!budget_.bounded()) return kNever / 4;
    const auto delay = static_cast<double>(budget_.lost(kSecond)) / kSecond;
    return static_cast<Duration>(static_cast<double>(budget_.free()) / delay);
  }
  /// Returns the worth of the buffer's pages, by the noted terms.
  Duration worth(const Buffer& buffer) const {
    KnownWorth& known = buffer.known_worth;
    if (known.terms != terms_number_ || known.entries != buffer.entries)
      known = {terms_number_, buffer.entries, worth(buffer.pages.pages(), buffer.entries)};
    return known.value;
  }
  /// Returns how long after its predicted use a region is kept for it: until that has cost as much as a late
  /// use would.
  Duration patience(const Buffer& buffer) const {
    return std::max(std::min(kPatience * buffer.longest_interval, worth(buffer)), least_patience());
  }
  /// On a core that it shares, the helper's own work delays the use that it waits for.
  Duration least_patience() const { return budget_.core_idle() ? kMillisecond : 10 * kMillisecond; }
  /// The helper must begin to register a buffer so long before its use.
  Duration lead(std::size_t entries) const {
    return costs_.registration.upper(entries) + costs_.wake.value();
  }
  /// A region must be gone for so long at least, to go at all.
  Duration away(const Buffer& buffer) const {
    return costs_.deregistration.upper(buffer.entries) + lead(buffer.entries);
  }
  /// Returns whether the region's pages, free until the use, are worth the likely loss: `worth` is the
  /// region's.
  static bool repays(Duration worth, const Estimate& next, Time now) {
    return static_cast<double>(gone_until(next) - now) >= next.risk * static_cast<double>(worth);
  }
  /// Returns whether a late transfer, if the use comes, is worse than having the region in vain, if the use
  /// stays away.
  bool worth_registering(const Buffer& buffer, const Estimate& next) const;

  // ---- the time budget ----

  /// Returns whether the helper may let the region go until its next use, and have it back.
  bool affords(std::size_t pages, std::size_t entries, const Estimate& next, Time now) const;
  /// Returns whether so many times the worst cost of letting the region go fit, the last one excepted.
  bool fits(const RegionRef& ref, Duration times) const {
    return budget_.fits((times - 1) * worst_cost(ref));
  }
  /// Returns when so many times that cost will fit; kNever: not as long as things stay as they are.
  Time enough_at(const RegionRef& ref, Duration times) const {
    return budget_.enough_at((times - 1) * worst_cost(ref));
  }
  /// Returns whether the budget lets a region go; it counts refusals.
  bool may_go() { return budget_.reserve(0); }
  /// The region is claimed: the next uses of its buffers register them. Reserves the worst cost of that.
  void gone(const RegionRef& ref);
  /// The buffer went for the goal for the peak: its next use registers it, whatever is left.
  void gone_for_peak(Buffer& buffer);
  /// The buffer's use is over, or will not come: its reservation ends.
  void give_back(Buffer& buffer);

 private:
  static Time gone_until(const Estimate& next) { return std::min(next.early, next.time); }
  /// Seconds of holding everything that are saved while so many pages are gone.
  double freed(std::size_t pages, Duration gone) const;
  /// The cost of one use of each buffer of the region, when this region is gone, beyond the time reserved for
  /// it.
  Duration worst_cost(const RegionRef& ref) const;
  /// Reserves for the buffer's next use, which will register it.
  void reserve_for(Buffer& buffer);

  /// The terms of all prices.
  struct Terms {
    double price = TimeBudget::kPrice;
    double twice_as_dear = std::numeric_limits<double>::infinity();
    std::size_t all_pages = 0;
    Duration unseen = 0;
    std::uint64_t observed = 0;  ///< registrations
    bool operator==(const Terms&) const = default;
  };

  TimeBudget unbounded_{{.share = TimeBudget::kUnbounded, .core_idle = true}, 0};  ///< where none is given
  TimeBudget& budget_;
  const CostEstimates& costs_;
  BufferTable& buffers_;
  Terms terms_;
  std::uint64_t terms_number_ = 1;  ///< counts their changes
  Duration unseen_ = 0;             ///< from the end of a late use to the next look, lately
};

/// The next uses of buffers: the predictor's answers, on the program's own time, as times of the run. Owns
/// what threads had waited for registrations, by which the two differ; an interval that a late transfer has
/// prolonged would announce the next uses too late, and so make the next late transfer.
class Forecast {
 public:
  /// All outlive it.
  Forecast(Predictor& predictor, const BufferTable& buffers, const Ledger& ledger)
      : predictor_(predictor), buffers_(buffers), ledger_(ledger) {}

  /// Returns how long the thread had waited before its call. All ranges of a call count from its beginning: a
  /// wait for one of them comes after the next one's beginning.
  Duration delayed_before(std::uint16_t thread, Time call, Duration delayed);
  /// Learns from a use, whose times are the program's own. Returns times of the run.
  Observed learn(const Use& use);

  /// Returns the time of the buffer's earliest predicted use later than `after`.
  Time next_time(BufferId id, Time after) const {
    const Duration delay = delay_of(buffers_[id]);
    return delayed_by(predictor_.next_use(id, after - delay), delay);
  }
  /// Returns that use with its sureness. Good until it is asked for again.
  const Estimate& next_use(BufferId id, Time after) const;
  /// Returns the use of the region's buffer that has to be ready first, by the margins as they were last;
  /// `time` is the earliest of all.
  Estimate earliest_use(const Ids& region, Time after) const;
  /// Returns the earliest time of all. `known`: that of buffer `id`, one of them.
  Time earliest_time(const Ids& region, Time after, BufferId id, Time known) const;

 private:
  /// A predictor's time as the run's: its thread has waited so long for registrations before.
  static Time delayed_by(Time predicted, Duration delay) {
    return predicted == kNever ? kNever : predicted + delay;
  }
  Duration delay_of(const Buffer& buffer) const { return threads_[buffer.thread].delayed; }

  struct Thread {
    Time call = kNotYet;   ///< the last one's beginning
    Duration delayed = 0;  ///< how long registration had held it up by then
  };

  Predictor& predictor_;
  const BufferTable& buffers_;
  const Ledger& ledger_;
  std::vector<Thread> threads_ = std::vector<Thread>(1);  ///< a fresh buffer's thread is the first
  std::uint64_t learnt_ = 0;
};

/// Settled buffers: they are used again and again, each time sooner than their region could go and come back.
/// Decisions about them wait until they rest. Their regions carry a mark for the threads (Region::settled),
/// whose hits then leave a count alone (Region::uses). While the helper rests, each known buffer is settled
/// by its first use, so that its records cost nothing. The count tells at each look whether the region was
/// used since the look before. The longer a region has been settled, the longer is the time between looks.
///
/// Owns the list of marked regions, and the runs of uses that the counts tell of, for the log.
class SettledRegions {
 public:
  /// All outlive it.
  SettledRegions(Domain& domain, BufferTable& buffers, const Ledger& ledger)
      : domain_(domain), buffers_(buffers), ledger_(ledger) {}

  /// Whether uses before the records that follow left none, because rings were full.
  void note_losses(bool any) { records_lost_ = any; }
  enum class May : std::uint8_t { never, at_once, after_a_run };
  /// Notes whether the buffer is settled with this use: as `may` has it, or as the use came too soon for a
  /// decision, like those of its thread before.
  void note(Buffer& buffer, const runlog::Event& lease, RegionRef region, May may);
  /// Returns whether this use of a settled buffer is passed over: the predictor sees a sample.
  static bool passes_over(Buffer& buffer) {
    return buffer.settled.by_last_use && buffer.settled.passed++ % kRun != 0;
  }
  /// Returns when the region will have rested long enough for a decision, as far as is known now; up to
  /// `now`: it has.
  Time rested_at(RegionRef ref, const Ids& buffers, Time now);
  /// Decisions about the region wait until then, and hits on it leave no records, if all its buffers are
  /// settled.
  void mark(RegionRef ref, Time now, Time until);
  /// Bytes whose next decision comes later than now.
  std::size_t bytes(Time now);
  /// Ends the region's mark, or all marks.
  void end(const RegionRef& ref, Time now);
  void clear(Time now);
  /// The runs of uses since the last call, as events of kind `uses`.
  std::vector<runlog::Event> take_runs() { return std::exchange(runs_, {}); }

 private:
  // Uses of a thread in a row that each came too soon for a decision, until their buffers are settled. Then
  // one in so many of a buffer's is learnt from.
  static constexpr std::uint32_t kRun = 16;

  struct Marked {
    std::uint32_t generation = 0;
    std::uint32_t uses = 0;  ///< at the last look
    Time looked = 0;
    Time until = 0;
  };
  using Marks = std::unordered_map<Region*, Marked>;

  static RegionRef ref_of(const Marks::value_type& mark) { return {mark.first, mark.second.generation}; }
  /// Returns whether the region was used since the look before.
  bool look(Region* region, Marked& marked, Time now);
  void unmark(const RegionRef& ref);
  /// Returns the time since the use before; where uses left no record, their mean time: a region's buffers
  /// share its count.
  Duration interval(Buffer& buffer, Time begin, const Region& region) const;
  void note_run(const Buffer& buffer, std::uint32_t count, Time begin, Time end);

  Domain& domain_;
  BufferTable& buffers_;
  const Ledger& ledger_;
  Marks marked_;
  std::vector<runlog::Event> runs_;
  bool records_lost_ = false;
  std::vector<unsigned> soon_;  ///< by thread: uses in a row that came too soon for a decision, up to kRun
};

}  // namespace pinion
