// The ledger of the time that retention may cost the program's own threads, against leave-pinned: a credit
// plus a share of the time that has passed. By default the credit grows with the cost of registering
// everything once, as learning a program costs a multiple of that. Letting a region go may cost as much as
// registering its buffers on the critical path. So much is reserved, and given back when the region is
// registered again in time. The ledger charges the real losses of threads, however long. A reservation that
// exceeds the rest is refused, and the region stays. So the loss stays within credit + share * elapsed for
// every program, under two conditions: reservations cover the worst, and threads lose only time that
// leave-pinned would save.
//
// The ledger also has the price: how many seconds of holding everything one lost second is worth. An unused
// budget has the price of an absent one; it grows as the budget runs out, so that the rest goes
// where it frees most. A larger budget has an equal or a lower price. Where a limit binds, memory below it is
// held for little: a late use is worth far more.
//
// One for all domains of a process; the helper's thread (or the simulator's).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/range.h"

namespace pinion {

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

/// Everything that a domain has had in use, registered once: the most that leave-pinned had at a time, so
/// that memory which comes and goes counts once.
struct RegisteredOnce {
  std::size_t pages = 0, calls = 0;
  void add(const UnderLeavePinned& lease) {
    const std::size_t all = lease.all_bytes / page_size();
    if (lease.fresh_bytes == 0 || all <= pages) return;
    pages = all;
    ++calls;
  }
};

class TimeBudget {
 public:
  static constexpr double kUnbounded = -1;
  /// The price while the budget is unused. At 4, retention spends where a loop repays it within its first
  /// turns; at 200 (0.5 % of the time for an empty registry) most short programs end with the budget unused.
  static constexpr double kPrice = 4;
  /// The factor on that price where a limit binds. With intervals between half and twice their length, take a
  /// loop over three buffers with room for two: at this factor it is late in 2 % of its uses, and at 50 in
  /// nearly all.
  static constexpr double kPriceWhereALimitBinds = 1000;
  /// 2.5 times the cost of registering everything once, 20 ms at least.
  static constexpr Duration kAutoCredit = -1;
  struct Settings {
    double share = 0.005;           ///< of elapsed time; kUnbounded: all is allowed
    Duration credit = kAutoCredit;  ///< negative: that
  };

  TimeBudget(Settings settings, Time start) : settings_(settings), start_(start), now_(start) {}

  bool bounded() const { return settings_.share >= 0; }
  /// Time has passed; `now` only grows.
  void advance(Time now);
  /// Registering once everything that has been used so far costs so much, by the fits of all domains.
  void registering_once(Duration cost) { set(once_, cost); }

  /// Notes whether the process would hold more than its limits allow.
  void limit_binds(bool binds) {
    stale_ |= binds != limit_binds_;
    limit_binds_ = binds;
  }

  // ---- losses so far ----

  /// All threads have waited for registrations so long: their own totals, so that records may be lost.
  void waited(Duration total);
  /// Leave-pinned would have waited so much longer; negative where that was less than assumed.
  void leave_pinned_waited(Duration more);
  /// Bookkeeping on application threads, and time that was only charged, so far.
  void kept_books(Duration total);

  // ---- possible losses ----

  /// Returns whether a reservation would fit.
  bool fits(Duration worst) const { return !bounded() || worst <= left(); }
  bool reserve(Duration worst);
  void give_back(Duration worst) { reserved_ -= worst; }
  /// Marks reserved time as for registrations that threads will make; negative: no longer.
  void leave_to_threads(Duration worst) { for_threads_ += worst; }
  /// Returns when that reservation will fit, if losses stay as they are until then.
  Time enough_at(Duration worst) const;

  /// Seconds of holding everything that one lost second is worth. Rounded, so that small changes leave the
  /// values computed from it.
  double price() const {
    if (stale_) price_ = priced();
    stale_ = false;
    return price_;
  }

  Duration allowed() const;  ///< credit and share, so far; 0 while unbounded
  Duration lost() const { return waited_ - leave_pinned_ + books_; }
  Duration reserved() const { return reserved_; }
  /// The time reserved for registrations that the helper will make.
  Duration reserved_for_helper() const { return reserved_ - for_threads_; }
  std::uint64_t refused() const { return refused_; }

 private:
  Duration credit() const;
  double priced() const;
  /// Sets one of the terms of the price.
  void set(std::int64_t& term, std::int64_t value) {
    stale_ |= value != term;
    term = value;
  }
  /// The time left for reservations. All of them may come true at once, so they share the rest once.
  Duration left() const { return allowed() - lost() - reserved_; }

  const Settings settings_;
  const Time start_;
  Time now_;
  Duration once_ = 0;
  Duration waited_ = 0;
  Duration leave_pinned_ = 0;
  Duration books_ = 0;
  Duration reserved_ = 0;
  Duration for_threads_ = 0;  ///< of those
  std::uint64_t refused_ = 0;
  bool limit_binds_ = false;
  // The price is asked for several times an event, and its terms change less often.
  mutable double price_ = 0;
  mutable bool stale_ = true;
};

}  // namespace pinion
