// The options of prediction. Filled before threads start, then only read.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace pinion {

struct PredictOptions {
  std::string predictor = "adaptive";
  std::uint64_t window = 2;
  /// The best of the powers of two on NAS benchmarks (helper-threads.md).
  std::uint64_t period_window = 4;
  std::string profile;
};

OptionTable<PredictOptions> predict_options();

}  // namespace pinion
