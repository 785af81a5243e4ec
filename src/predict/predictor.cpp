#include "predict/predictor.h"

#include "predict/adaptive.h"
#include "predict/periodicity.h"
#include "predict/shortest.h"

namespace pinion {

Estimate Predictor::estimate(BufferId buffer, Time after, Duration) const {
  const Time next = next_use(buffer, after);
  return {next, next, 0, next == kNever ? 0.0 : 1.0};
}

const std::vector<BufferId>& Predictor::moved() const {
  static const std::vector<BufferId> none;
  return none;
}

std::unique_ptr<Predictor> make_predictor(const std::string& name, unsigned window, unsigned period_window) {
  if (name == "shortest") return std::make_unique<ShortestPredictor>(window);
  if (name == "periodicity") return std::make_unique<PeriodicityPredictor>(period_window);
  if (name == "adaptive") return std::make_unique<AdaptivePredictor>();
  return nullptr;
}

}  // namespace pinion
