#include "retention/retention_options.h"

namespace pinion {

namespace {

constexpr Choice<RetentionKind> kRetentions[] = {{"observe", RetentionKind::observe},
                                                 {"on-demand", RetentionKind::on_demand},
                                                 {"leave-pinned", RetentionKind::leave_pinned},
                                                 {"lru", RetentionKind::lru},
                                                 {"helper", RetentionKind::helper}};

}  // namespace

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
