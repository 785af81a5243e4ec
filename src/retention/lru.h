// Retention `lru`: keeps so many bytes registered, and lets the least recently used idle regions go beyond
// them: at the registration that exceeds the size, and at each release that makes a region idle while there
// is too much. So at most that size is registered, or the memory under lease, whichever is larger. Threads as
// in retention.h.
#pragma once

#include <cstdint>

#include "registry/domain.h"
#include "retention/retention.h"

namespace pinion {

class LruRetention final : public Retention {
 public:
  LruRetention(Domain& domain, std::uint64_t keep_bytes) : domain_(domain), keep_bytes_(keep_bytes) {
    domain.choose_least_recently_used();
  }

  Region* claim_after_registration() override { return domain_.begin_trim(keep_bytes_); }
  bool may_claim() const override { return domain_.registered_bytes() > keep_bytes_; }
  Region* claim_after_release(RegionRef) override { return domain_.begin_trim(keep_bytes_); }

  /// A refused hit may hold a region's last count for a moment: then all releases find it in use.
  void sweep() override { swept_ = true; }
  Action next(Time) override {
    if (!swept_) return {};
    if (Region* region = domain_.begin_trim(keep_bytes_)) return deregistration(region);
    swept_ = false;
    return {};
  }

 private:
  Domain& domain_;
  const std::uint64_t keep_bytes_;
  bool swept_ = false;  ///< the helper's
};

}  // namespace pinion
