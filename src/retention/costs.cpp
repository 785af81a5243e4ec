#include "retention/costs.h"

#include <bit>
#include <cmath>
#include <limits>

namespace pinion {

namespace {
// The factor on the price where a limit binds. With intervals between half and twice their length, take a
// loop over three buffers with room for two: at this factor it is late in 2 % of its uses, and at 200 in
// nearly all.
constexpr double kWhereALimitBinds = 4000;
// A loss of this part of the bound is twice as dear.
constexpr double kTwiceAsDear = 0.05;
// The part of the share that pays for looks.
constexpr double kLooks = 0.25;
// A rest lasts until that part of the bound is free again.
constexpr Duration kEnough = 10;
constexpr double kWorkPrice = 4;

/// To sixteenths of a power of two, the nearest.
double rounded(double value) {
  constexpr int kDropped = 52 - 4;  // bits of the fraction
  const auto bits = std::bit_cast<std::uint64_t>(value) + (std::uint64_t{1} << (kDropped - 1));
  return std::bit_cast<double>(bits >> kDropped << kDropped);
}
}  // namespace

void TimeBudget::used(Duration cpu, bool only_looked, Time now) {
  const Duration more = std::max<Duration>(cpu - cpu_, 0);
  cpu_ += more;
  advance(now);
  if (only_looked) look_ += (static_cast<double>(more) - look_) / 16;
  if (!settings_.core_idle) set(by_helper_, by_helper_ + static_cast<double>(more) * settings_.delay);
  if (binds_helper() && hoped() <= 0)
    resting_ = true;
  else if (!binds_helper() || hoped() >= allowed() / kEnough)
    resting_ = false;
}

Duration TimeBudget::did_for_threads(Duration work) {
  if (settings_.core_idle) return 0;
  set(for_threads_.latest, lost(work));
  set(for_threads_.in_doubt, for_threads_.in_doubt + for_threads_.latest);
  return for_threads_.latest;
}

void TimeBudget::settle(Duration receipt, bool used) {
  set(for_threads_.in_doubt, for_threads_.in_doubt - receipt);
  if (used) set(for_threads_.used, for_threads_.used + receipt);
}

Duration TimeBudget::allowed() const {
  if (!bounded()) return 0;
  const auto share = static_cast<Duration>(settings_.share * static_cast<double>(now_ - start_));
  return std::max(settings_.least, share) + for_threads_.used;
}

bool TimeBudget::reserve(Duration worst) {
  if (!fits()) {
    ++refused_;
    return false;
  }
  set(reserved_, reserved_ + worst);
  return true;
}

Time TimeBudget::enough_at(Duration others) const {
  const Duration missing = lost(others) - left();
  if (!bounded() || missing < 0) return now_;
  // The share alone grows.
  const double needed = static_cast<double>(allowed() + missing - for_threads_.used);
  const double at = static_cast<double>(start_) + needed / settings_.share;
  return at < 1e18 ? static_cast<Time>(at) : kNever;  // by 0 too
}

double TimeBudget::used_part() const {
  const Duration may = allowed();
  const double left_of_it = static_cast<double>(hoped()) / static_cast<double>(std::max<Duration>(may, 1));
  return std::clamp(1 - left_of_it, 0.0, 0.9999);
}

double TimeBudget::price() const {
  if (!stale_) return price_;
  stale_ = false;
  const double unused = limit_binds_ ? kPrice * kWhereALimitBinds : kPrice;
  return price_ = bounded() ? rounded(unused / (1 - used_part())) : unused;
}

double TimeBudget::twice_as_dear() const {
  return bounded() ? rounded(kTwiceAsDear * static_cast<double>(std::max<Duration>(allowed(), 1)))
                   : std::numeric_limits<double>::infinity();
}

bool TimeBudget::affords(Duration work, double freed) const {
  if (!binds_helper()) return true;
  const Duration costs = lost(work + kWakes);
  if (costs > left()) return false;
  // Nine tenths used: a second of work must save three of holding everything; towards the end, any number.
  const double used = used_part(), price = kWorkPrice * std::pow(used, 24) / (1 - used);
  return freed * static_cast<double>(kSecond) >= price * static_cast<double>(costs);
}

Duration TimeBudget::least_sleep() const {
  if (!binds_helper()) return 0;
  if (resting_ || settings_.share == 0) return kLongestSleep;
  const double every = look_ * settings_.delay / (kLooks * settings_.share);
  return static_cast<Duration>(std::min(every, static_cast<double>(kLongestSleep)));
}

}  // namespace pinion
