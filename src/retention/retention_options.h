// The options of retention: the strategy, and its allowed cost. Filled before threads start, then only
// read.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/options.h"

namespace pinion {

enum class RetentionKind : std::uint8_t { observe, on_demand, leave_pinned, lru, helper };

struct RetentionOptions {
  RetentionKind retention = RetentionKind::helper;
  double time_budget = 0.01;  ///< share of the run's time; negative: off
  std::uint64_t minimum_gain = kAutoSize;
  std::uint64_t lru_size = 64 << 20;
  Duration poll = kMillisecond;
};

OptionTable<RetentionOptions> retention_options();
const char* to_string(RetentionKind kind);

}  // namespace pinion
