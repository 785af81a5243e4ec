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

}  // namespace

std::uint64_t arrival_key(CallSite site, int source, std::uint64_t posted) {
  return mix(mix(site, static_cast<std::uint32_t>(source)), posted) | 1;  // 0 marks an empty place
}

std::uint64_t expected_arrival(std::uint64_t key, std::uint64_t posted) {
  const Longest& place = place_of(key);
  if (place.key.load(std::memory_order_relaxed) != key) return posted;
  return std::min(posted, place.bytes.load(std::memory_order_relaxed));
}

void learn_arrival(ThreadContext& thread, LeasePath& leases, const Receive& receive, std::uint64_t arrived) {
  arrived = std::min(arrived, receive.posted);
  Longest& place = place_of(receive.key);
  if (place.key.load(std::memory_order_relaxed) != receive.key) {
    place.bytes.store(arrived, std::memory_order_relaxed);
    place.key.store(receive.key, std::memory_order_relaxed);
  } else if (arrived > place.bytes.load(std::memory_order_relaxed)) {
    place.bytes.store(arrived, std::memory_order_relaxed);
  }
  if (arrived <= receive.leased || arrived < leases.threshold()) return;
  CallPoint point = receive.point;
  point.time = ticks_now();
  Transfer rest;
  leases.registry_source().acquire(
      thread, 0, point, {receive.buffer + receive.leased, receive.buffer + arrived}, Access::write, rest);
  leases.release(thread, rest);
}

}  // namespace pinion::mpi
