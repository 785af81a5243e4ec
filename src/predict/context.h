// Context signatures as in section 3.1 of the helper-threads paper: the current call site (stack frames and
// buffer) and a window of the previous communication points (kind and address) of the same thread. Owned by a
// predictor; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/mix.h"
#include "predict/predictor.h"

namespace pinion {

using Signature = std::uint64_t;

class ContextWindow {
 public:
  static constexpr unsigned kLongest = 8;

  explicit ContextWindow(unsigned length) : length_(length < kLongest ? length : kLongest) {}

  /// The signature of `use`; afterwards the use is part of the thread's window. Buffers that begin at
  /// one address and differ in size have different signatures: a site that sends them in turn uses each at
  /// its own period.
  Signature enter(const Use& use) {
    if (use.thread >= threads_.size()) threads_.resize(use.thread + 1u);
    auto& previous = threads_[use.thread];
    Signature signature = mix(mix(mix(1, use.site), use.address), use.buffer);
    for (unsigned i = 0; i < length_; ++i) signature = mix(signature, previous[i]);
    for (unsigned i = kLongest - 1; i > 0; --i) previous[i] = previous[i - 1];
    previous[0] = mix(static_cast<std::uint64_t>(use.kind), use.address);
    return signature;
  }

 private:
  const unsigned length_;
  std::vector<std::array<std::uint64_t, kLongest>> threads_;
};

}  // namespace pinion
