#include "retention/retention.h"

#include <utility>

#include "retention/helper_retention.h"

namespace pinion {

namespace {

/// Retention `on-demand`: each release that leaves a region idle deregisters it.
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

/// Retention `lru`: keeps so many bytes registered, and lets the least recently used idle regions go beyond
/// them: at the registration that exceeds the size, and at each release that makes a region idle while there
/// is too much. So at most that size is registered, or the memory under lease, whichever is larger.
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

constexpr Choice<RetentionKind> kRetentions[] = {{"observe", RetentionKind::observe},
                                                 {"on-demand", RetentionKind::on_demand},
                                                 {"leave-pinned", RetentionKind::leave_pinned},
                                                 {"lru", RetentionKind::lru},
                                                 {"helper", RetentionKind::helper}};

}  // namespace

std::unique_ptr<Retention> make_retention(RetentionSettings settings, Domain& domain,
                                          std::unique_ptr<Predictor> predictor, CostEstimates& costs,
                                          TimeBudget& budget) {
  switch (settings.kind) {
    case RetentionKind::on_demand:
      return std::make_unique<OnDemandRetention>(domain);
    case RetentionKind::leave_pinned:
      return std::make_unique<Retention>();  // a region stays until its memory changes or a limit needs room
    case RetentionKind::lru:
      return std::make_unique<LruRetention>(domain, settings.lru_bytes);
    case RetentionKind::observe:
    case RetentionKind::helper:
      break;
  }
  Predictor& predicts = *predictor;
  return std::make_unique<HelperRetention>(
      domain, predicts, costs,
      HelperRetention::Settings{.act = traits_of(settings.kind).acts,
                                .budget = &budget,
                                .keeps_until_short = domain.device().capabilities().cheap_to_keep,
                                .collapse = settings.collapse,
                                .site_name = std::move(settings.site_name),
                                .own_predictor = std::move(predictor)});
}

OptionTable<RetentionOptions> retention_options() {
  using O = RetentionOptions;
  return {
      choice_option(&O::retention, {"retention", "strategy that decides how long memory stays registered"},
                    kRetentions),
      share_option(
          &O::time_budget,
          {"time-budget",
           "upper bound on the run time lost to retention helper, on the program's threads and, where "
           "no core is idle, to the helper: a share such as 1%, at least 20 ms in all, or off"}),
      size_or_auto_option(
          &O::minimum_gain,
          {"minimum-gain",
           "bytes that a process must have in use, all in all, before retention helper lets any go, unless "
           "memory is short; auto: 1 % of the limit in force, at least 16M",
           Listing::everyday, "a size such as 64M, or auto"}),
      size_option(&O::lru_size, {"lru-size", "bytes that retention lru keeps registered", Listing::advanced}),
      time_option(
          &O::poll,
          {"poll", "longest sleep of the helper while communication goes on, 50us to 1s", Listing::advanced},
          50 * kMicrosecond, kSecond),
  };
}

const char* to_string(RetentionKind kind) {
  for (const auto& choice : kRetentions)
    if (choice.value == kind) return choice.name;
  return "unknown";
}

}  // namespace pinion
