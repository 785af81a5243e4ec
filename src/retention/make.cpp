#include "retention/make.h"

#include <utility>

#include "retention/helper_retention.h"
#include "retention/leave_pinned.h"
#include "retention/lru.h"
#include "retention/on_demand.h"
#include "retention/traits.h"

namespace pinion {

std::unique_ptr<Retention> make_retention(RetentionSettings settings, Domain& domain,
                                          std::unique_ptr<Predictor> predictor, CostEstimates& costs,
                                          TimeBudget& budget) {
  switch (settings.kind) {
    case RetentionKind::on_demand:
      return std::make_unique<OnDemandRetention>(domain);
    case RetentionKind::leave_pinned:
      return std::make_unique<LeavePinnedRetention>();
    case RetentionKind::lru:
      return std::make_unique<LruRetention>(domain, settings.lru_bytes);
    case RetentionKind::observe:
    case RetentionKind::helper:
      break;
  }
  return std::make_unique<HelperRetention>(
      domain, std::move(predictor), costs,
      HelperRetention::Settings{.act = traits_of(settings.kind).acts,
                                .budget = &budget,
                                .keeps_until_short = domain.device().capabilities().cheap_to_keep,
                                .collapse = settings.collapse,
                                .site_name = std::move(settings.site_name)});
}

}  // namespace pinion
