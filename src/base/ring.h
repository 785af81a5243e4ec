// A bounded queue from one thread to one other (the paper's lock-less deregistration queue, one per
// application thread). push(), refuses(): the owning thread only. pop(), size(): the consumer only. Free of
// locks, system calls and allocations. A full ring refuses the newest record and counts it. Only learning is
// lost: leases are counted in the regions themselves, and the consumer sweeps the registry when dropped()
// moves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/atomics.h"

namespace pinion {

template <class T, std::size_t Capacity, class Atomics = StdAtomics>
class Ring {
  static_assert((Capacity & (Capacity - 1)) == 0, "capacity is a power of two");

 public:
  static constexpr std::size_t capacity() { return Capacity; }

  /// Returns how full the ring is after the push, 0 when the record was refused. Exact from half full on;
  /// below that the consumer's line is not read for it, and the answer may be too great (but is less than
  /// half).
  std::size_t push(const T& value) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head + 1 - cached_tail_ >= Capacity / 2) {
      cached_tail_ = tail_.load(std::memory_order_acquire);
      if (head - cached_tail_ >= Capacity) {
        dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return 0;
      }
    }
    slots_[head & (Capacity - 1)] = value;
    head_.store(head + 1, std::memory_order_release);
    return static_cast<std::size_t>(head + 1 - cached_tail_);
  }

  /// Whether push() would refuse a value now, which counts as refused then: the producer need not make it.
  bool refuses() {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - cached_tail_ < Capacity) [[likely]]
      return false;
    cached_tail_ = tail_.load(std::memory_order_acquire);
    if (head - cached_tail_ < Capacity) return false;
    dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }

  bool pop(T& value) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail == head_.load(std::memory_order_acquire)) return false;
    value = slots_[tail & (Capacity - 1)];
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  std::size_t size() const {
    return static_cast<std::size_t>(head_.load(std::memory_order_acquire) -
                                    tail_.load(std::memory_order_acquire));
  }
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  // Producer's line: head and the producer's view of the tail. Consumer's line: tail.
  alignas(64) typename Atomics::template Atomic<std::uint64_t> head_{0};
  std::uint64_t cached_tail_ = 0;
  typename Atomics::template Atomic<std::uint64_t> dropped_{0};
  alignas(64) typename Atomics::template Atomic<std::uint64_t> tail_{0};
  alignas(64) std::array<T, Capacity> slots_{};
};

}  // namespace pinion
