#include "runlog/runlog_options.h"

namespace pinion {

OptionTable<LogOptions> log_options() {
  using O = LogOptions;
  return {
      text_option(&O::log, {"log", "directory for the run's logs, one file per node; empty: no log"}),
      size_option(&O::log_size,
                  {"log-size", "upper bound on bytes of the event stream in one rank's log, 64K to 64G",
                   Listing::advanced},
                  64 << 10, std::uint64_t{64} << 30),
  };
}

}  // namespace pinion
