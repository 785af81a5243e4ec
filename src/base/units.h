// Sizes, times and shares as users write them, for options, files of settings and messages. Pure functions;
// they allocate, so outside of hooks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace pinion {

/// "16K", "2g", "1.5MiB", "4096" -> bytes (powers of 1024, also "80MB"; at most 2^60). Nothing when the text
/// has another form. Fractions need a unit, and must come to one byte at least: 0 often means no limit. The
/// same holds for durations and shares.
std::optional<std::uint64_t> parse_size(std::string_view text);
/// "10us", "5ms", "2s", "100ns" -> nanoseconds.
std::optional<Duration> parse_duration(std::string_view text);
/// "0.5%" -> 0.005, from 0 to 100 %. Nothing when the text has another form.
std::optional<double> parse_share(std::string_view text);
/// "4096": digits only.
std::optional<std::uint64_t> parse_count(std::string_view text);
std::string format_share(double share);
/// 65536 -> "64K", 1500 -> "1500".
std::string format_size(std::uint64_t bytes);
std::string format_duration(Duration d);

}  // namespace pinion
