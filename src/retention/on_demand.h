// Retention `on-demand`: each release that leaves a region idle deregisters it. Threads as in retention.h.
#pragma once

#include <vector>

#include "registry/domain.h"
#include "retention/retention.h"

namespace pinion {

class OnDemandRetention final : public Retention {
 public:
  explicit OnDemandRetention(Domain& domain) : domain_(domain) {}

  bool may_claim() const override { return true; }
  Region* claim_after_release(RegionRef idle) override { return domain_.begin_retire(idle); }

  /// A refused hit may hold a region's last count for a moment: then all releases find it in use.
  void sweep() override { swept_ = domain_.idle_regions(); }
  Action next(Time) override {
    while (!swept_.empty()) {
      const RegionRef idle = swept_.back();
      swept_.pop_back();
      if (Region* region = domain_.begin_retire(idle)) return deregistration(region);
    }
    return {};
  }

 private:
  Domain& domain_;
  std::vector<RegionRef> swept_;  ///< idle at the last sweep; the helper's
};

}  // namespace pinion
