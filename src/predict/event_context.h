// The four contexts of an event stream: keys made of its latest events, by which the next one is predicted.
// Pure values. A key depends only on the names of sites and buffers, so that it means the same in another
// run.
#pragma once

#include <array>
#include <cstdint>

#include "predict/context.h"

namespace pinion {

/// A communication point: this call site with this buffer.
struct EventName {
  std::uint64_t site = 0;
  std::uint64_t buffer = 0;  ///< the buffer's key rather than its number

  std::uint64_t symbol() const { return mix(mix(2, site), buffer); }
  bool operator==(const EventName& other) const { return site == other.site && buffer == other.buffer; }
};

/// Stands for any buffer at its first use.
constexpr std::uint64_t kNewBuffer = 1;

enum class ContextKind : unsigned {
  current,  ///< this event alone
  run,      ///< how often this event came in a row, and the one before the run
  sites,    ///< this and the previous call site, for all buffers
  history,  ///< the last sixteen
};
constexpr unsigned kContextKinds = 4;

using Contexts = std::array<std::uint64_t, kContextKinds>;  ///< a key for each kind

/// The position of an event stream.
class StreamPosition {
 public:
  void advance(const EventName& event) {
    const std::uint64_t symbol = event.symbol();
    if (symbol == latest_) {
      if (run_ < kLongest) ++run_;
    } else {
      before_run_ = latest_;
      run_ = 1;
    }
    history_ = kBase * history_ + symbol - kOldest * last_[at_];
    last_[at_] = symbol;
    at_ = (at_ + 1) % kHistory;
    latest_ = symbol;
    previous_site_ = site_;
    site_ = event.site;
  }

  Contexts contexts() const {
    return {
        mix(key(ContextKind::current), latest_),
        mix(mix(mix(key(ContextKind::run), latest_), before_run_), run_),
        mix(mix(key(ContextKind::sites), site_), previous_site_),
        mix(key(ContextKind::history), history_),
    };
  }

 private:
  static std::uint64_t key(ContextKind kind) { return mix(3, static_cast<std::uint64_t>(kind)); }

  static constexpr std::uint32_t kLongest = 1024;

  static constexpr std::uint32_t kHistory = 16;
  // The base of a polynomial over the symbols, modulo 2^64: one symbol comes in, the oldest goes.
  static constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15;
  static constexpr std::uint64_t kOldest = [](std::uint64_t power) {
    for (std::uint32_t n = 1; n < kHistory; n *= 2) power *= power;
    return power;
  }(kBase);

  std::uint64_t latest_ = 0;  ///< symbol
  std::array<std::uint64_t, kHistory> last_{};
  std::uint64_t history_ = 0;
  std::uint32_t at_ = 0;
  std::uint64_t before_run_ = 0;
  std::uint64_t site_ = 0, previous_site_ = 0;
  std::uint32_t run_ = 0;
};

}  // namespace pinion
