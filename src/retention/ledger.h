// The ledger of retention `helper`: what holding a buffer's region and what a late use cost, and what the
// time budget allows of it. Reserves in the budget for the regions that are gone. Owns the terms of these
// prices; budget, costs and buffers belong to others. One thread, retention's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/assert.h"
#include "predict/predictor.h"
#include "registry/domain.h"
#include "retention/buffer_table.h"
#include "retention/cost_estimate.h"
#include "retention/time_budget.h"

namespace pinion {

class Ledger {
 public:
  // A machine that others begin to use too makes intervals twice as long as any before.
  static constexpr int kPatience = 3;

  /// `budget` may be null: all is allowed. All outlive it.
  Ledger(TimeBudget* budget, const CostEstimates& costs, BufferTable& buffers)
      : budget_(budget), costs_(costs), buffers_(buffers) {}

  void advance(Time now) {
    if (budget_) budget_->advance(now);
  }
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
    if (!budget_ || !budget_->bounded()) return kNever / 4;
    const auto delay = static_cast<double>(budget_->lost(kSecond)) / kSecond;
    return static_cast<Duration>(static_cast<double>(budget_->free()) / delay);
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
  Duration least_patience() const {
    return budget_ && !budget_->core_idle() ? 10 * kMillisecond : kMillisecond;
  }
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

  /// The budget is used up: regions that are gone come back, and no other goes.
  bool resting() const { return budget_ && budget_->resting(); }
  /// Returns whether the helper may let the region go until its next use, and have it back.
  bool affords(std::size_t pages, std::size_t entries, const Estimate& next, Time now) const;
  /// Returns whether so many times the worst cost of letting the region go fit, the last one excepted.
  bool fits(const RegionRef& ref, Duration times) const {
    return !budget_ || budget_->fits((times - 1) * worst_cost(ref));
  }
  /// Returns when so many times that cost will fit; kNever: not as long as things stay as they are, or there
  /// is no budget.
  Time enough_at(const RegionRef& ref, Duration times) const {
    return budget_ ? budget_->enough_at((times - 1) * worst_cost(ref)) : kNever;
  }
  /// Reserves the worst cost of letting the region go. Returns a receipt for cancel() or gone(), or nothing
  /// if the budget refuses.
  std::optional<Duration> reserve(const RegionRef& ref);
  void cancel(Duration receipt);
  /// The region, of these pages, is claimed: the next uses of its buffers register them.
  void gone(const RegionRef& ref, Range pages, Duration receipt);
  /// The buffer went for the goal for the peak: its next use registers it, whatever is left.
  void gone_for_peak(Buffer& buffer);
  /// The buffer's use is over, or will not come: its reservation ends.
  void give_back(Buffer& buffer);

 private:
  static Time gone_until(const Estimate& next) { return std::min(next.early, next.time); }
  /// Seconds of holding everything that are saved while so many pages are gone.
  double freed(std::size_t pages, Duration gone) const;
  /// The cost of one use of each buffer of the region, when this region is gone, beyond the time reserved for
  /// it; negative where less than that is needed now.
  Duration more_reserved(const RegionRef& ref) const;
  Duration worst_cost(const RegionRef& ref) const { return std::max<Duration>(more_reserved(ref), 0); }

  /// The terms of all prices.
  struct Terms {
    double price = TimeBudget::kPrice;
    double twice_as_dear = std::numeric_limits<double>::infinity();
    std::size_t all_pages = 0;
    Duration unseen = 0;
    std::uint64_t observed = 0;  ///< registrations
    bool operator==(const Terms&) const = default;
  };

  TimeBudget* const budget_;
  const CostEstimates& costs_;
  BufferTable& buffers_;
  Terms terms_;
  std::uint64_t terms_number_ = 1;  ///< counts their changes
  Duration unseen_ = 0;             ///< from the end of a late use to the next look, lately
};

}  // namespace pinion
