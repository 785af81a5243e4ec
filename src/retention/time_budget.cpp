#include "retention/time_budget.h"

#include <algorithm>
#include <bit>

namespace pinion {

namespace {
// Learning a program that registers several times as much as it has idle costs 2.3 times as much as
// registering everything once (FT).
constexpr double kCreditOfOnce = 2.5;
constexpr Duration kLeastCredit = 20 * kMillisecond;

/// To sixteenths of a power of two, the nearest.
double rounded(double value) {
  constexpr int kDropped = 52 - 4;  // bits of the fraction
  const auto bits = std::bit_cast<std::uint64_t>(value) + (std::uint64_t{1} << (kDropped - 1));
  return std::bit_cast<double>(bits >> kDropped << kDropped);
}
}  // namespace

void TimeBudget::advance(Time now) { set(now_, std::max(now_, now)); }

void TimeBudget::waited(Duration total) { set(waited_, total); }

void TimeBudget::leave_pinned_waited(Duration more) { set(leave_pinned_, leave_pinned_ + more); }

void TimeBudget::kept_books(Duration total) { set(books_, total); }

Duration TimeBudget::credit() const {
  if (settings_.credit >= 0) return settings_.credit;
  return std::max(kLeastCredit, static_cast<Duration>(kCreditOfOnce * static_cast<double>(once_)));
}

Duration TimeBudget::allowed() const {
  if (!bounded()) return 0;
  return credit() + static_cast<Duration>(settings_.share * static_cast<double>(now_ - start_));
}

bool TimeBudget::reserve(Duration worst) {
  if (!fits(worst)) {
    ++refused_;
    return false;
  }
  reserved_ += worst;
  return true;
}

Time TimeBudget::enough_at(Duration worst) const {
  const Duration missing = worst - left();
  if (!bounded() || missing <= 0) return now_;
  const double wait = static_cast<double>(missing) / settings_.share;
  return wait < 1e15 ? now_ + static_cast<Duration>(wait) : kNever;  // by 0 too
}

double TimeBudget::priced() const {
  const double unused = limit_binds_ ? kPrice * kPriceWhereALimitBinds : kPrice;
  if (!bounded()) return unused;
  const Duration may = std::max<Duration>(allowed(), 1);
  const double left = 1 - static_cast<double>(lost()) / static_cast<double>(may);
  return rounded(unused / std::clamp(left, 0.0001, 1.0));
}

}  // namespace pinion
