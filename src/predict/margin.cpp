#include "predict/margin.h"

#include <algorithm>

namespace pinion {

namespace {

// A margin is kept while its share of the errors is new.
constexpr std::size_t kRenewed = 8;

/// The margin of least cost among those considered.
class Choice {
 public:
  Choice(Duration worth, std::size_t own)
      : margin_{worth, Margin::kNotReady, 1, own / kRenewed},
        late_(static_cast<double>(worth)),
        least_(late_) {}

  double least() const { return least_; }
  /// Being ready `by` before the use costs `held` in the mean, and a late use at that risk.
  void consider(double by, double risk, double held) {
    const double cost = held + risk * late_;
    if (cost >= least_) return;
    least_ = cost;
    best_ = by;
    margin_.risk = risk;
  }
  Margin chosen() {
    if (least_ < late_) margin_.by = nearest(best_);
    return margin_;
  }

 private:
  Margin margin_;
  const double late_;
  double least_, best_ = 0;  ///< at first, giving up readiness costs as much as being late for certain
};

}  // namespace

Margin best_margin(std::span<const float> errors, Duration worth, std::size_t own) {
  const std::size_t n = errors.size();
  if (n == 0) return {worth, 0, 0.5, 0};
  Choice choice(worth, own);
  // Being ready for all but the k earliest of them; of those that are to come, one in 2 n is earlier still.
  // Held in vain, in the mean: from then to the use.
  const double one_of_all = 1 / (static_cast<double>(n) + 0.5), mean = 1 / static_cast<double>(n);
  // A use that comes later than that is waited for in vain, and late all the same.
  const double most = 2 * static_cast<double>(worth);
  double sum = 0;  // of the errors from the k-th on
  std::size_t k = n;
  // The margin is zero for all of these.
  const auto cut = static_cast<float>(most);
  for (; k > 1 && errors[k - 2] > 0; --k) sum += static_cast<double>(std::min(errors[k - 1], cut));
  while (k-- > 0) {
    const double error = std::min(static_cast<double>(errors[k]), most), by = std::max(0.0, -error);
    sum += error;
    const double held = std::max(0.0, sum + by * static_cast<double>(n - k)) * mean;
    if (held >= choice.least()) return choice.chosen();  // and from here on it only grows
    choice.consider(by, (static_cast<double>(k) + 0.5) * one_of_all, held);
  }
  return choice.chosen();
}

}  // namespace pinion
