#include "retention/retention_options.h"

namespace pinion {

namespace {

constexpr Choice<RetentionKind> kRetentions[] = {{"observe", RetentionKind::observe},
                                                 {"on-demand", RetentionKind::on_demand},
                                                 {"leave-pinned", RetentionKind::leave_pinned},
                                                 {"lru", RetentionKind::lru},
                                                 {"helper", RetentionKind::helper}};
constexpr Choice<Minimize> kMinimize[] = {{"mean", Minimize::mean}, {"peak", Minimize::peak}};

}  // namespace

OptionTable<RetentionOptions> retention_options() {
  using O = RetentionOptions;
  return {
      choice_option(&O::retention, {"retention", "when registered memory is kept and when it is let go"},
                    kRetentions),
      share_option(&O::time_budget,
                   {"time-budget",
                    "most of elapsed time that retention helper may cost the program's own threads, beside "
                    "start-credit; or off"}),
      time_or_auto_option(
          &O::start_credit,
          {"start-credit",
           "time that retention helper may cost beside time-budget; auto: 2.5 times what registering "
           "everything once costs, 20ms at least",
           Listing::advanced, "a time from 0ms to 1000s, or auto"},
          0, 1000 * kSecond),
      share_option(
          &O::helper_share,
          {"helper-share",
           "most of the run's time that may be lost to the helper where no core is idle, with that of the "
           "ranks that wait meanwhile; or off"}),
      choice_option(
          &O::minimize,
          {"minimize", "what the time budget is spent on: registered bytes at any time, or only their peak",
           Listing::advanced},
          kMinimize),
      size_option(&O::lru_size, {"lru-size", "bytes that retention lru keeps registered", Listing::advanced}),
      time_option(&O::poll,
                  {"poll", "longest time that the helper sleeps while communication goes on, 50us to 1s",
                   Listing::advanced},
                  50 * kMicrosecond, kSecond),
  };
}

const char* to_string(RetentionKind kind) {
  for (const auto& choice : kRetentions)
    if (choice.value == kind) return choice.name;
  return "unknown";
}

}  // namespace pinion
