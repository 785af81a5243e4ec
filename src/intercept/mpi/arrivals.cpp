#include "intercept/mpi/arrivals.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace pinion::mpi {

namespace {

struct Longest {
  std::atomic<std::uint64_t> key;
  std::atomic<std::uint64_t> bytes;
};

constexpr unsigned kPlaceBits = 10;
std::array<Longest, 1u << kPlaceBits> g_longest;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return (a ^ (b + 0x9E3779B97F4A7C15ull)) * 0xBF58476D1CE4E5B9ull;
}

Longest& place_of(std::uint64_t key) { return g_longest[key >> (64 - kPlaceBits)]; }

/// The key under which the lengths of such receives are learnt.
std::uint64_t arrival_key(CallSite site, int source, std::uint64_t posted) {
  return mix(mix(site, static_cast<std::uint32_t>(source)), posted) | 1;  // 0 marks an empty place
}

/// The bytes that will arrive, as far as is known: at most `posted`.
std::uint64_t expected_arrival(std::uint64_t key, std::uint64_t posted) {
  const Longest& place = place_of(key);
  if (place.key.load(std::memory_order_relaxed) != key) return posted;
  return std::min(posted, place.bytes.load(std::memory_order_relaxed));
}

void learn_arrival(std::uint64_t key, std::uint64_t arrived) {
  Longest& place = place_of(key);
  if (place.key.load(std::memory_order_relaxed) != key) {
    place.bytes.store(arrived, std::memory_order_relaxed);
    place.key.store(key, std::memory_order_relaxed);
  } else if (arrived > place.bytes.load(std::memory_order_relaxed)) {
    place.bytes.store(arrived, std::memory_order_relaxed);
  }
}

/// The bytes of a message that are worth a lease.
std::uint64_t to_lease(LeasePath& leases, std::uint64_t bytes) {
  return bytes < leases.threshold() ? 0 : bytes;
}

}  // namespace

std::uint64_t Receive::begin_expected(LeasePath& leases, Range posted, const CallPoint& point,
                                      std::int64_t known) {
  posted_ = posted.bytes();
  whole_ = false;
  const std::uint64_t key = arrival_key(point.site, point.peer, posted_);
  const std::uint64_t expected =
      known >= 0 ? std::min(posted_, static_cast<std::uint64_t>(known)) : expected_arrival(key, posted_);
  expected_ = {posted.begin, to_lease(leases, expected), key, point};
  return expected_.leased;
}

bool Receive::end_otherwise(ThreadContext& thread, LeasePath& leases, std::uint64_t posted,
                            std::int64_t arrived, Transfer& lease) {
  const std::uint64_t bytes = std::min(posted, static_cast<std::uint64_t>(arrived));
  if (whole_) {
    leases.release_shortened(thread, lease, posted, to_lease(leases, bytes));
    return true;
  }
  if (arrived < 0) return false;
  learn_arrival(expected_.key, bytes);
  if (bytes <= expected_.leased || to_lease(leases, bytes) == 0) return false;
  expected_.point.time = ticks_now();
  Transfer rest;
  leases.lease(thread, 0, expected_.point, {expected_.buffer + expected_.leased, expected_.buffer + bytes},
               Access::write, rest);
  leases.release(thread, rest);
  return false;
}

}  // namespace pinion::mpi
