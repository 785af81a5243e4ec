// A domain with its retention and the estimates of its device's costs, as the desk keeps them. The helper's
// thread, or the simulator's.
#pragma once

#include <memory>

#include "registry/domain.h"
#include "retention/cost_estimate.h"
#include "retention/retention.h"
#include "retention/time_budget.h"

namespace pinion {

struct KeptDomain {
  int number = 0;  ///< by Desk::add()
  Domain* domain = nullptr;
  bool observed = false;      ///< it only sees transfers; set before Desk::add()
  bool untimed_hits = false;  ///< hits leave no time before memory is short; set before Desk::add()
  CostEstimates costs;
  std::unique_ptr<Retention> retention;
  RegisteredOnce once;
};

}  // namespace pinion
