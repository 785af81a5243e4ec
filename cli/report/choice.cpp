#include "cli/report/choice.h"

#include <algorithm>

namespace pinion::cli {

namespace {

/// A hundredth of the run's time weighs as much as a tenth of the highest peak or mean.
constexpr double kTimeWeight = 10;

double share(double value, double whole) { return whole > 0 ? value / whole : 0; }

class Choice {
 public:
  Choice(const std::vector<WayFigures>& ways, const ChoiceTerms& terms) : ways_(ways), terms_(terms) {
    for (const WayFigures& way : ways) {
      most_peak_ = std::max(most_peak_, way.peak);
      most_mean_ = std::max(most_mean_, way.mean);
    }
  }

  std::size_t way() const {
    std::size_t best = ways_.size();
    for (const std::size_t i : unbeaten(ways_))
      if (is_good(ways_[i]) && (best == ways_.size() || price(ways_[i]) < price(ways_[best]))) best = i;
    if (best == ways_.size()) return terms_.pinned;
    const std::size_t present = terms_.present;
    const bool stays = present < ways_.size() && is_good(ways_[present]) &&
                       ways_[present].refused == ways_[best].refused &&
                       price(ways_[present]) <= price(ways_[best]) + kWorthChanging;
    return stays ? present : best;
  }

 private:
  const WayFigures& pinned() const { return ways_[terms_.pinned]; }
  bool is_good(const WayFigures& way) const { return is_affordable(way) && is_worth_it(way); }
  /// Leave-pinned may refuse transfers under a limit: time is then no bound.
  bool is_affordable(const WayFigures& way) const {
    return pinned().refused > way.refused || adds_little(way, pinned(), terms_.seconds);
  }
  bool is_worth_it(const WayFigures& way) const {
    if (pinned().refused > way.refused) return true;
    const auto frees = [&](double held, double of_pinned) {
      const double freed = of_pinned - held;
      return freed >= kWorthChanging * of_pinned && freed > 0 &&
             (terms_.memory_short || freed >= terms_.least_gain);
    };
    return frees(way.peak, pinned().peak) || frees(way.mean, pinned().mean);
  }
  double price(const WayFigures& way) const {
    return share(way.peak, most_peak_) + share(way.mean, most_mean_) +
           kTimeWeight * share(way.added, terms_.seconds);
  }

  const std::vector<WayFigures>& ways_;
  const ChoiceTerms& terms_;
  double most_peak_ = 0, most_mean_ = 0;
};

}  // namespace

bool beats(const WayFigures& a, const WayFigures& b) {
  const bool no_worse = a.peak <= b.peak && a.mean <= b.mean && a.added <= b.added && a.refused <= b.refused;
  return no_worse && (a.peak < b.peak || a.mean < b.mean || a.added < b.added);
}

std::vector<std::size_t> unbeaten(const std::vector<WayFigures>& ways) {
  std::uint64_t least = UINT64_MAX;
  for (const WayFigures& way : ways) least = std::min(least, way.refused);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const auto is_better = [&](const WayFigures& other) { return beats(other, ways[i]); };
    if (ways[i].refused == least && std::none_of(ways.begin(), ways.end(), is_better)) found.push_back(i);
  }
  return found;
}

bool adds_little(const WayFigures& way, const WayFigures& pinned, double seconds) {
  return way.added <= pinned.added + kWorthPaying * seconds;
}

std::size_t choose(const std::vector<WayFigures>& ways, const ChoiceTerms& terms) {
  return Choice(ways, terms).way();
}

}  // namespace pinion::cli
