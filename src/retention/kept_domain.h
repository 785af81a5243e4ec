// A domain with its retention and the estimates of its device's costs, as the desk keeps them. The helper's
// thread, or the simulator's.
#pragma once

#include <cstddef>
#include <memory>

#include "base/range.h"
#include "registry/domain.h"
#include "retention/cost_estimate.h"
#include "retention/retention.h"
#include "retention/time_budget.h"

namespace pinion {

/// Everything that a domain has had in use, registered once: the most that leave-pinned had at a time, so
/// that memory which comes and goes counts once.
struct RegisteredOnce {
  std::size_t pages = 0, calls = 0;
  void add(const UnderLeavePinned& lease) {
    const std::size_t all = lease.all_bytes / page_size();
    if (lease.fresh_bytes == 0 || all <= pages) return;
    pages = all;
    ++calls;
  }
};

struct KeptDomain {
  int number = 0;  ///< by Desk::add()
  Domain* domain = nullptr;
  bool observed = false;            ///< it only sees transfers; set before Desk::add()
  bool gains_by_hugepages = false;  ///< registrations take less time in them
  bool untimed_hits = false;        ///< hits leave no time before memory is short; set before Desk::add()
  CostEstimates costs;
  std::unique_ptr<Retention> retention;
  RegisteredOnce once;
};

}  // namespace pinion
