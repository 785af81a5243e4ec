// The costs of retention: what the helper's operations take, what the run may lose to them, and from which
// size on they are worth it: CostEstimates, one a domain; TimeBudget and MinimumGain, one for all domains of
// a process. The helper's thread (or the simulator's). Durations in ns.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/options.h"

namespace pinion {

// ---- constants of several parts ----

/// The longest sleep of the helper, and time between two looks at anything.
constexpr Duration kLongestSleep = 250 * kMillisecond;
/// The looks come so often in the time since the last event of their kind, or since what they watch began.
constexpr int kLooksPerTime = 16;
/// An event longer ago tells the helper nothing of the present.
constexpr Duration kLongAgo = kSecond;
/// A trial, as of letting a buffer go that was used once only, needs a budget for so many of its kind.
constexpr Duration kTrials = 8;
/// The helper's CPU for waking up where a region goes and comes.
constexpr Duration kWakes = 10 * kMicrosecond;
/// Costs are estimated from so many observations; each weighs kKeep times as much as the next one.
constexpr std::size_t kRecent = 32;
constexpr double kKeep = 1 - 1.0 / kRecent;

// ---- estimates: the terms of t_p in the paper's inequality (1), section 3.2 ----

/// t = a * entries + b, for the translation entries of a registration (its pages, where the device leaves
/// them uncounted). Fitted online by least squares over the recent observations: each weighs 1/32 less than
/// the next. upper() allows for the excess over the line.
///
/// One call may take a thousand times as long as the others, where the host or another process had the core.
/// A single outlier is clamped to within `kFar` times the line. Two outliers in a row on the same side show
/// another device than assumed; the observations before them then keep a small weight only.
class LinearFit {
 public:
  LinearFit(double a_ns, double b_ns) {
    // The prior: two faint observations on its line. Real ones soon outweigh them.
    add(1, a_ns + b_ns, 0.05);
    add(512, 512 * a_ns + b_ns, 0.05);
    solve();
  }

  void observe(std::size_t entries, Duration took) {
    ++observed_;
    const double x = static_cast<double>(entries), y = static_cast<double>(took);
    const double expected = std::max(1.0, a_ * x + b_);
    const int off = y > kFar * expected ? 1 : y * kFar < expected ? -1 : 0;
    const bool again = off != 0 && off == off_;
    off_ = off;
    // Observations of another device still give a slope.
    keep(again ? 1.0 / kRecent : kKeep);
    add(x, again ? y : std::clamp(y, expected / kFar, expected * kFar), 1);
    solve();
    // Falls back towards 1 by a tenth of its height at every observation that the line explains.
    const double excess = y / (again ? std::max(1.0, a_ * x + b_) : expected);
    excess_ = std::clamp(excess, again ? 1 : 1 + (excess_ - 1) * 0.9, kFar);
    asked_ = SIZE_MAX;
  }

  /// Observations so far: while it is the same, so are all answers.
  std::uint64_t observed() const { return observed_; }
  double a() const { return a_; }
  double b() const { return b_; }
  /// The estimate is at least 0, as both terms are.
  Duration expected(std::size_t entries) const {
    const auto count = static_cast<Duration>(entries);  // a signed number becomes a double in one instruction
    return static_cast<Duration>(a_ * static_cast<double>(count) + b_ + 0.5);
  }
  /// The paper's "maximum potential cost": the line times the largest recent excess over it.
  Duration upper(std::size_t entries) const {
    if (entries == asked_) return upper_;  // mostly: each decision asks several times
    asked_ = entries;
    return upper_ = static_cast<Duration>(static_cast<double>(expected(entries)) * excess_ + 0.5);
  }

 private:
  static constexpr double kFar = 4;

  void add(double x, double y, double w) {
    n_ += w, sx_ += w * x, sy_ += w * y, sxx_ += w * x * x, sxy_ += w * x * y;
  }
  void keep(double w) { n_ *= w, sx_ *= w, sy_ *= w, sxx_ *= w, sxy_ *= w; }
  void solve() {
    const double spread = n_ * sxx_ - sx_ * sx_;
    const double mean_x = sx_ / n_, mean_y = sy_ / n_;
    // All observations of one size leave the slope open: keep the last one (as far as the mean allows).
    if (spread > 1e-6 * n_ * sxx_) a_ = (n_ * sxy_ - sx_ * sy_) / spread;
    a_ = std::clamp(a_, 0.0, mean_y / std::max(1.0, mean_x));
    b_ = std::max(0.0, mean_y - a_ * mean_x);  // rounding could make it negative
  }

  double n_ = 0, sx_ = 0, sy_ = 0, sxx_ = 0, sxy_ = 0;
  double a_ = 0, b_ = 0;
  double excess_ = 1;
  std::uint64_t observed_ = 0;
  mutable std::size_t asked_ = SIZE_MAX;  ///< upper() was asked for last
  mutable Duration upper_ = 0;            ///< its answer
  int off_ = 0;  ///< the last observation lay far above the line (1), or far below (-1)
};

/// Translation entries that a page takes, over the recent registrations: 1 on ordinary pages, far less on
/// hugepages. It serves memory whose own entries are unknown.
class EntriesAPage {
 public:
  void observe(std::size_t pages, std::size_t entries) {
    pages_ = pages_ * kKeep + static_cast<double>(pages);
    entries_ = entries_ * kKeep + static_cast<double>(entries);
  }
  double value() const { return entries_ / pages_; }
  std::size_t of(std::size_t pages) const {
    return static_cast<std::size_t>(std::max(1.0, std::ceil(static_cast<double>(pages) * value())));
  }

 private:
  double pages_ = 1, entries_ = 1;
};

/// The n-th largest of the recent observations.
template <class T, std::size_t n>
class RecentLargest {
 public:
  explicit RecentLargest(T first) : value_(first) { recent_.fill(first); }
  void observe(T value) {
    T& oldest = recent_[next_++ % recent_.size()];
    const bool same = oldest == value || (oldest < value_ && value <= value_);
    oldest = value;
    if (same) return;
    // The largest one left, and stands elsewhere, too.
    if (n == 1 && value <= value_ && std::find(recent_.begin(), recent_.end(), value_) != recent_.end())
      return;
    std::array<T, n> largest{};  // in order of size
    std::size_t there = 0;
    for (const T& recent : recent_) {
      if (there == n && recent <= largest[n - 1]) continue;
      std::size_t at = there < n ? there++ : n - 1;
      for (; at > 0 && largest[at - 1] < recent; --at) largest[at] = largest[at - 1];
      largest[at] = recent;
    }
    value_ = largest[n - 1];
  }
  T value() const { return value_; }

 private:
  std::array<T, kRecent> recent_;
  std::size_t next_ = 0;
  T value_;
};

/// The helper's wake-up lateness: above nine wake-ups in ten, deaf to a single stall.
class WakeMargin {
 public:
  explicit WakeMargin(Duration first) : late_(first) {}
  void observe(Duration late) { late_.observe(std::max<Duration>(0, late)); }
  /// An additional wait of the helper: for its turn on a core that it shares (node/policy.h).
  void set_turn(Duration turn) { turn_ = turn; }
  /// Wake-ups wait for a beat (desk.h).
  void set_beat(Duration beat) { beat_ = beat; }
  Duration value() const { return std::max(late_.value(), turn_) + beat_; }

 private:
  RecentLargest<Duration, 3> late_;
  Duration turn_ = 0;
  Duration beat_ = 0;
};

/// The terms that are "easy to estimate": a fixed price for each comparison and each look into a table.
struct QueueCosts {
  Duration compare = 10;  ///< one item of a queue or of the registration cache compared
  Duration hash = 200;    ///< searching the call-site table and updating its entry
};

/// Everything the conditions need to know about costs.
struct CostEstimates {
  LinearFit registration;
  LinearFit deregistration;
  EntriesAPage entries_a_page;
  WakeMargin wake;
  QueueCosts queue;

  /// A registration of so many pages took so many translation entries, and so long.
  void registered(std::size_t pages, std::size_t entries, Duration took) {
    registration.observe(entries, took);
    entries_a_page.observe(pages, entries);
  }

  /// Returns the time that each page adds to a registration with its deregistration; at least 1 ns, also
  /// where their size makes no difference.
  double a_page() const {
    constexpr double kLeast = 1;
    return std::max((registration.a() + deregistration.a()) * entries_a_page.value(), kLeast);
  }
  /// The constant part of that time, in pages that take as long.
  double call_pages() const { return (registration.b() + deregistration.b()) / a_page(); }

  /// Priors: UCX's model of an InfiniBand device; deregistration a quarter of it; waking within 60 us.
  CostEstimates() : registration(246, 16000), deregistration(62, 4000), wake(60 * kMicrosecond) {}
};

// ---- the bound ----

/// The part of a wait for a range that leave-pinned would have had too. The share `fresh` (0 to 1) of the
/// range is registered for the first time; `expected` is the usual time for that much. Untouched pages take
/// much longer than expected, with leave-pinned too: so it is its share of the wait at least.
inline Duration leave_pinned_wait(Duration waited, Duration expected, double fresh) {
  return std::min(waited, std::max(expected, static_cast<Duration>(static_cast<double>(waited) * fresh)));
}

/// A record's meaning to leave-pinned, in its domain.
struct UnderLeavePinned {
  std::size_t fresh_bytes = 0;  ///< of its pages, registered for the first time
  std::size_t all_bytes = 0;    ///< registered since, these included
  /// Of a registration, its time: the lease that it was made for may last until the end. Of a lease, the rest
  /// of its wait.
  Duration wait = 0;
};

/// The bound on the time that the run loses to retention, against leave-pinned: a share of the time that has
/// passed, and 20 ms at least, so that runs of seconds can learn. Two kinds of spending count alike:
///   - on the program's threads: waits for registrations and copies beyond leave-pinned's, and bookkeeping;
///   - by the helper, while all cores of the node are busy: it then takes its time from the program. That
///     counts in seconds that the run loses, as ranks wait for the rank that a helper delays. A node with
///     more ranks than cores loses the sum over its ranks divided by its cores.
///
/// The bound is kept in four ways:
///   - letting a region go may cost a registration, by the helper or on the critical path. So much is
///   reserved
///     before, and given back when the region is registered again. Where nothing is left, the region stays;
///   - the price of a second grows as the rest shrinks, so that the rest goes where it frees most;
///   - looks at the records take at most a quarter of the share: the dearer a look, the longer the sleep
///     before it;
///   - with the rest used up, the helper stops learning until enough has come together again. Regions that
///   are
///     gone are still registered ahead: their cost was reserved.
/// So spending exceeds the bound by one registration in flight at most, where reservations cover the worst.
///
/// Where a limit binds, what the helper registers ahead spares a thread the same work, and the wait for it:
/// each raises the bound by its own time once it is used. Until then it counts as spent, so that at most as
/// much is in doubt as the rest of the budget bears. What a transfer waits or copies because the limit has
/// evicted its region is the limit's loss, as leave-pinned would have it too.
class TimeBudget {
 public:
  static constexpr double kUnbounded = -1;
  static constexpr Duration kLeast = 20 * kMillisecond;
  /// The price of a short loss while the budget is unused. At 2, most logs of real programs end with two
  /// thirds of it unused; below one half little more is freed for more lost time.
  static constexpr double kPrice = 0.5;
  /// A rank that a helper delays has its peers wait; their own helpers delay them at other times. Measured:
  /// up to twice the helper's time (evidence-measured.md).
  static constexpr double kWaitsForPeers = 2;

  struct Settings {
    double share = 0.01;      ///< of elapsed time; kUnbounded: all is allowed
    Duration least = kLeast;  ///< allowed in any case
    double delay = 1;         ///< seconds that the run loses by one of the helper's: delay_of()
    bool core_idle = false;   ///< until set_core_idle()
  };

  /// Returns the delay of a node with so many ranks on so many cores.
  static double delay_of(double ranks, double cores) {
    return ranks > 1 ? kWaitsForPeers * std::max(1.0, ranks / cores) : 1;
  }

  TimeBudget(Settings settings, Time start) : settings_(settings), start_(start), now_(start) {}

  bool bounded() const { return settings_.share >= 0; }
  /// Time has passed; `now` only grows.
  void advance(Time now) {
    if (now > now_) set(now_, now);
  }
  /// Allowed in any case.
  Duration least() const { return settings_.least; }
  void set_core_idle(bool idle) { settings_.core_idle = idle; }
  bool core_idle() const { return settings_.core_idle; }
  /// The helper's work counts now.
  bool binds_helper() const { return bounded() && !settings_.core_idle; }
  /// Notes whether the process would hold more than its limits allow.
  void set_limit_binds(bool binds) { set(limit_binds_, binds); }
  bool limit_binds() const { return limit_binds_; }

  // ---- spending so far ----

  /// All threads have waited for registrations so long: their own totals, so that records may be lost.
  void waited(Duration total) { set(waited_, total); }
  /// Leave-pinned would have waited so much longer; negative where that was less than assumed.
  void leave_pinned_waited(Duration more) { set(leave_pinned_, leave_pinned_ + more); }
  /// Bookkeeping on application threads so far.
  void kept_books(Duration total) { set(books_, total); }
  /// The helper has used so much CPU since its start; modelled device time counts as such. `only_looked`:
  /// just looks since the last call.
  void used(Duration cpu, bool only_looked, Time now);
  /// Leave-pinned's helper would have done so much of used(), too.
  void leave_pinned_did(Duration cpu) { cpu_ += cpu; }
  /// It would have used all of this CPU, as far as it has not counted yet.
  void leave_pinned_used(Duration cpu) { cpu_ = std::max(cpu_, cpu); }
  /// Counts work that the helper has done in place of the program's threads, if a use follows. Returns a
  /// receipt for settle().
  Duration did_for_threads(Duration work);
  /// The use has come, or the work was in vain.
  void settle(Duration receipt, bool used);

  // ---- possible losses ----

  /// Returns whether one more reservation fits beside `others`: the last one may exceed the rest.
  bool fits(Duration others = 0) const { return !bounded() || lost(others) < left(); }
  bool reserve(Duration worst);
  /// Like reserve(), for what is lost already: it may exceed the rest.
  void reserve_beyond(Duration worst) { set(reserved_, reserved_ + worst); }
  void give_back(Duration worst) { set(reserved_, reserved_ - worst); }
  /// Returns when fits() will hold, if losses stay as they are until then.
  Time enough_at(Duration others = 0) const;
  /// The time that is neither spent nor reserved; kNever: any.
  Duration free() const { return bounded() ? std::max<Duration>(left(), 0) : kNever; }
  std::uint64_t refused() const { return refused_; }

  /// Seconds of holding everything that one lost second is worth. An unused budget has the price of an absent
  /// one, and a larger budget an equal or a lower one. Where a limit binds, memory below it is held for
  /// little: a late use is worth far more. Rounded, so that small changes leave the values computed from it.
  double price() const;
  /// A loss of this length at once has twice that price, and longer ones more in proportion: the bound holds
  /// few of them, and what is learnt by the first ones comes too late. Rounded likewise; infinite while
  /// unbounded.
  double twice_as_dear() const;

  // ---- the helper's work ----

  /// Returns whether so much work of the helper's fits, and is worth it to have `freed`: seconds of holding
  /// everything, saved.
  bool affords(Duration work, double freed) const;
  /// Work of the helper's that other threads may have to wait for counts where cores are idle, too; elsewhere
  /// used() counts it.
  void worked(Duration took) {
    if (settings_.core_idle) set(by_helper_, by_helper_ + static_cast<double>(took));
  }
  /// The helper's work as time of the run.
  Duration lost(Duration work) const {
    return settings_.core_idle ? work : static_cast<Duration>(static_cast<double>(work) * settings_.delay);
  }
  /// The longest of these and its own time is the helper's sleep.
  Duration least_sleep() const;
  /// The rest is used up: learning stops.
  bool resting() const { return resting_; }

  // ---- results ----

  Duration allowed() const;  ///< so far; 0 while unbounded
  Duration spent() const { return on_threads() + by_helper(); }
  Duration on_threads() const { return waited_ - leave_pinned_ + books_; }
  Duration by_helper() const { return static_cast<Duration>(by_helper_); }

 private:
  /// Sets one of the terms of the price.
  template <class Term>
  void set(Term& term, Term value) {
    stale_ |= value != term;
    term = value;
  }
  /// The time left for reservations. All of them may come true at once, so they share the rest once.
  Duration left() const { return allowed() - spent() - lost(reserved_); }
  /// The time left if the latest work in place of threads, which alone may have exceeded it, will be used.
  Duration hoped() const { return left() + std::min(for_threads_.in_doubt, for_threads_.latest); }
  /// The part of the bound that is spent or reserved, 0 to nearly 1.
  double used_part() const;

  Settings settings_;
  const Time start_;
  Time now_;
  Duration waited_ = 0;
  Duration leave_pinned_ = 0;
  Duration books_ = 0;
  Duration cpu_ = 0;
  double by_helper_ = 0;
  /// Work in place of threads, as time of the run.
  struct ForThreads {
    Duration used = 0;
    Duration in_doubt = 0;  ///< without a use so far
    Duration latest = 0;    ///< the latest receipt
  } for_threads_;
  Duration reserved_ = 0;
  std::uint64_t refused_ = 0;
  double look_ = 5.0 * kMicrosecond;  ///< CPU of a mere look, lately
  bool limit_binds_ = false;
  bool resting_ = false;
  // The price is asked for several times an event, and its terms change less often.
  mutable double price_ = 0;
  mutable bool stale_ = true;
};

// ---- the floor ----

/// The floor of value: retention acts where it can free enough to be of use to anybody, or where memory is
/// short. Below that, letting regions go costs time for nothing. What it can free is at most what the process
/// has had in use at a time. Once reached, it stays so.
class MinimumGain {
 public:
  /// kAutoSize: this share of the limit in force, or of the machine's memory without one; at least so much.
  static constexpr double kAutoShare = 0.01;
  static constexpr std::uint64_t kAutoLeast = std::uint64_t{16} << 20;

  struct Settings {
    std::uint64_t bytes = 0;    ///< 0: any gain will do
    std::uint64_t machine = 0;  ///< bytes of memory that the node has; 0: unknown
  };
  explicit MinimumGain(Settings settings) : settings_(settings) {}

  /// Leave-pinned would hold so much, within a limit of `limit` bytes (UINT64_MAX: none). A page of it takes
  /// so many translation entries (0 to 1).
  void see(std::uint64_t leave_pinned_bytes, std::uint64_t limit, double entries_a_page) {
    reached_ = reached_ || leave_pinned_bytes >= in_force(limit, entries_a_page);
  }
  /// Memory is short, or a limit binds: any gain will do.
  void see_shortage() { reached_ = true; }

  bool reached() const { return reached_; }
  /// Returns the least gain that is worth acting for: less where registrations are cheap.
  std::uint64_t in_force(std::uint64_t limit, double entries_a_page) const {
    if (settings_.bytes != kAutoSize) return settings_.bytes;
    const std::uint64_t machine = settings_.machine, all = machine == 0 ? 0 : std::min(limit, machine);
    return std::max(kAutoLeast, static_cast<std::uint64_t>(kAutoShare * std::min(1.0, entries_a_page) *
                                                           static_cast<double>(all)));
  }

 private:
  const Settings settings_;
  bool reached_ = settings_.bytes == 0;
};

}  // namespace pinion
