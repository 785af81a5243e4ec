// Sizes for people, in messages. Pure; allocates nothing, so locks may be held.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>

namespace pinion {

/// "64 KiB", "1.5 MiB".
struct SizeText {
  char text[24];
  explicit SizeText(std::uint64_t bytes) {
    static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
    std::snprintf(text, sizeof text, "%.*f %s", value == std::floor(value) ? 0 : 1, value, kUnits[unit]);
  }
};

}  // namespace pinion
