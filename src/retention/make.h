// The one factory of retentions. Ordinary code.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "predict/predictor.h"
#include "registry/domain.h"
#include "retention/collapse_plan.h"
#include "retention/cost_estimate.h"
#include "retention/retention.h"
#include "retention/retention_options.h"
#include "retention/time_budget.h"

namespace pinion {

struct RetentionSettings {
  RetentionKind kind = RetentionKind::helper;
  std::uint64_t lru_bytes = 64 << 20;
  CollapsePlan::Settings collapse = {};
  /// The name of a call site in predictions, which outlives the run; empty: its number.
  std::function<std::uint64_t(std::uint64_t)> site_name = {};
};

/// `predictor` is for kinds that predict (traits.h). All references outlive the retention.
std::unique_ptr<Retention> make_retention(RetentionSettings settings, Domain& domain,
                                          std::unique_ptr<Predictor> predictor, CostEstimates& costs,
                                          TimeBudget& budget);

}  // namespace pinion
