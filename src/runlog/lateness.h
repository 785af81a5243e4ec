// The lateness of a run's timed wake-ups of the helper, in their order: they come late in bursts, when the
// machine is busy, so a distribution would lose information. Plain data of the log's format, of fixed size:
// the longer the run, the fewer of them are kept. The helper fills it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace pinion::runlog {

struct Lateness {
  static constexpr std::uint32_t kMost = 1024;

  std::uint64_t wakeups;      ///< so far
  std::uint32_t stride;       ///< the first of so many is kept; 0 before there is one
  std::uint32_t kept;         ///< of `codes`
  std::uint8_t codes[kMost];  ///< encode()

  void add(std::int64_t late_ns) {
    stride = std::max(stride, 1u);
    if (wakeups++ % stride != 0) return;
    if (kept == kMost) {
      kept /= 2;
      stride *= 2;
      for (std::uint32_t i = 0; i < kept; ++i) codes[i] = codes[2 * i];
    }
    codes[kept++] = encode(late_ns);
  }

  /// To an eighth of its value, up to 15 seconds.
  static constexpr std::uint8_t encode(std::int64_t late_ns) {
    const auto late = static_cast<std::uint64_t>(std::clamp(late_ns, std::int64_t{0}, decode(UINT8_MAX)));
    if (late < 8) return static_cast<std::uint8_t>(late);
    const int exponent = std::bit_width(late) - 4;  // of the lowest bit that is kept
    return static_cast<std::uint8_t>(8 * exponent + static_cast<int>(late >> exponent));
  }
  static constexpr std::int64_t decode(std::uint8_t code) {
    if (code < 8) return code;
    const int exponent = code / 8 - 1;
    return static_cast<std::int64_t>(8 + code % 8) << exponent;
  }
};

}  // namespace pinion::runlog
