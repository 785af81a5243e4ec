// The options of the run log. Filled before threads start, then only read.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace pinion {

struct LogOptions {
  std::string log;
  std::uint64_t log_size = 64 << 20;
};

OptionTable<LogOptions> log_options();

}  // namespace pinion
