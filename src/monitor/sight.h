// Whether memory events are seen. They are not while another library may write over the hooks, until the
// hooks have been verified since; and for good where the self-test missed one. A registration made in between
// serves only the lease that it was made for.
//
// Owns one word: the number of the last change, and whether we are blind now. Lock-free; lost() may be called
// from hooks.
//
// Against a registration it works as the brackets do: lost() publishes that it is dark and then looks for
// regions to doom; a registering thread publishes its region and then checks that its first look still holds.
// Both sides are sequentially consistent, so at least one of them sees the other.
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace pinion {

template <class Atomics = StdAtomics>
class BasicSight {
 public:
  /// The result of a look; compared with a later one.
  class Look {
   public:
    bool blind() const { return bits_ & kBlind; }

   private:
    friend class BasicSight;
    explicit Look(std::uint64_t bits) : bits_(bits) {}
    std::uint64_t bits_;
  };

  Look look() const { return Look{word_.load(std::memory_order_seq_cst)}; }
  bool blind() const { return look().blind(); }
  /// Events have been seen from `first` on until now.
  bool unbroken(Look first) const { return !first.blind() && look().bits_ == first.bits_; }

  /// Sight was lost or regained after that look.
  bool changed_since(Look earlier) const { return look().bits_ != earlier.bits_; }

  /// Events may be missed after this. The caller then dooms every registration.
  void lost() {
    std::uint64_t seen = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(seen, (seen + kChange) | kBlind, std::memory_order_seq_cst,
                                        std::memory_order_relaxed)) {
    }
  }

  /// The hooks have been verified after `before` was looked at. Without effect when sight was lost again.
  void regained(Look before) {
    word_.compare_exchange_strong(before.bits_, (before.bits_ + kChange) & ~kBlind, std::memory_order_seq_cst,
                                  std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kBlind = 1;
  static constexpr std::uint64_t kChange = 2;

  typename Atomics::template Atomic<std::uint64_t> word_{0};
};

using Sight = BasicSight<>;

}  // namespace pinion
