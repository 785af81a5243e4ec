// The leases at one place (counted_leases.h), as one thread counts them: those that it takes, and those that
// it returns, its own or another thread's. Each number has one writer and grows. Only the sums over all
// threads have a meaning.
//
// PROTOCOL. Taking counts first, and then looks whether the region is doomed. Closing dooms first, and then
// sums up, between fences of all threads (thread_fence.h). So at least one of them sees the other. The fence
// costs the closing thread a system call, and spares each lease a locked instruction. Where the system lacks
// it, taking is `ordered`: a locked instruction.
//
// A thread that has returned a lease looks at the same, for the same reason: the last one ends what was
// closed.
//
// A sum reads what was returned before what was taken. A lease is taken before it is returned, so the sum is
// never below the leases that are out.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/atomics.h"

namespace pinion {

template <class Atomics = StdAtomics>
struct BasicLeaseCount {
  using Number = typename Atomics::template Atomic<std::uint64_t>;

  Number taken{0}, returned{0};
  Number refused{0};  ///< of those taken: in vain
  Number bytes{0};    ///< of the others

  /// True: a lease on the region of that proof (RegionWord::Value::proof), until give_back(). False: none;
  /// refuse() must follow.
  template <class Word>
  bool count_in(const Word& word, std::uint64_t proof, bool ordered) {
    const std::uint64_t count = taken.load(std::memory_order_relaxed) + 1;
    if (ordered) [[unlikely]]
      taken.exchange(count, std::memory_order_seq_cst);
    else
      taken.store(count, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return word.grants(proof);
  }
  /// count_in() for a region whose leases are counted here while its `place` says `at` (counted_leases.h).
  /// Only with fences.
  template <class Word, class Place>
  bool count_in_at(const Place& place, std::uint16_t at, const Word& word, std::uint64_t proof) {
    return count_in(word, proof, false) && place.load(std::memory_order_acquire) == at;
  }
  /// Undoes a count that was in vain.
  [[gnu::noinline, gnu::cold]] void refuse() {
    add(refused, 1);
    give_back();
  }
  /// Gives the lease back; all that its holder did with the memory comes before.
  void give_back() {
    returned.store(returned.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  static void add(Number& number, std::uint64_t n) {
    number.store(number.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

/// The sum of counts that `for_each(visit)` visits.
template <class ForEach>
std::uint64_t leases_out(ForEach&& for_each) {
  std::uint64_t returned = 0, taken = 0;
  for_each([&](const auto& count) { returned += count.returned.load(std::memory_order_acquire); });
  for_each([&](const auto& count) { taken += count.taken.load(std::memory_order_acquire); });
  return taken - returned;
}

using LeaseCount = BasicLeaseCount<>;

}  // namespace pinion
