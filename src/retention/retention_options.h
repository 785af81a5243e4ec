// The kinds of retention with their constant properties, which are the same in every domain, and the options:
// the kind, and its allowed cost. Options are filled before threads start, then only read; any thread may
// keep copies of the properties. retention.cpp has the tables.
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

/// All kinds, in the order in which they are listed.
constexpr RetentionKind kRetentionKinds[] = {RetentionKind::observe, RetentionKind::on_demand,
                                             RetentionKind::leave_pinned, RetentionKind::lru,
                                             RetentionKind::helper};

struct RetentionTraits {
  const char* text;                 ///< one line for users
  bool registers = true;            ///< false: transfers are only observed
  bool decides_on_threads = false;  ///< decides on application threads (Retention::claim_after_*)
  bool keeps_idle = true;           ///< false: each registration ends with its transfers
  bool acts = false;                ///< the helper lets go and registers ahead, as it learns from records
  bool predicts = false;            ///< uses a predictor
};

constexpr RetentionTraits traits_of(RetentionKind kind) {
  switch (kind) {
    case RetentionKind::observe:
      return {
          .text = "registers nothing; records and predicts, for a report of what each strategy would hold",
          .registers = false,
          .predicts = true};
    case RetentionKind::on_demand:
      return {.text = "registers before each transfer and deregisters after it",
              .decides_on_threads = true,
              .keeps_idle = false};
    case RetentionKind::leave_pinned:
      return {.text = "registers at first use and keeps until the memory goes away or the limit is met"};
    case RetentionKind::lru:
      return {.text = "keeps the most recently used regions, up to lru-size bytes",
              .decides_on_threads = true};
    case RetentionKind::helper:
      break;
  }
  return {.text =
              "a helper thread predicts each region's next use, lets it go in between, and registers it "
              "just in time",
          .acts = true,
          .predicts = true};
}

}  // namespace pinion
