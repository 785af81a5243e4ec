#include "intercept/mpi/requests.h"

#include <utility>

namespace pinion::mpi {

constinit std::atomic<bool> Requests::any_known_{false};
constinit std::array<Requests::Place, Requests::kPlaces> Requests::places_{};

Requests::Entry& Requests::entry_of(Shard& shard, Key request) {
  const auto [at, is_new] = shard.entries.try_emplace(request);
  if (is_new) places_[place_of(request)].listed.fetch_add(1, std::memory_order_release);
  note_any();
  return at->second;
}

void Requests::forget_if_unused(Shard& shard, Key request, const Entry& entry) {
  if (!entry.operations.empty() || entry.remembered) return;
  shard.entries.erase(request);
  places_[place_of(request)].listed.fetch_sub(1, std::memory_order_release);
}

void Requests::list(Key request, Operation&& operation) {
  Shard& shard = shard_of(request);
  const MutexLock lock(shard.mutex);
  entry_of(shard, request).operations.push_back(std::move(operation));
}

void Requests::remember(Key request, Remembered remembered) {
  auto shared = std::make_shared<const Remembered>(std::move(remembered));
  Shard& shard = shard_of(request);
  const MutexLock lock(shard.mutex);
  entry_of(shard, request).remembered = std::move(shared);
}

std::shared_ptr<const Remembered> Requests::find(Key request) {
  Shard& shard = shard_of(request);
  const MutexLock lock(shard.mutex);
  const auto at = shard.entries.find(request);
  return at == shard.entries.end() ? nullptr : at->second.remembered;
}

void Requests::complete(ThreadContext& thread, LeasePath& leases, Key request, std::int64_t arrived) {
  const std::size_t at = place_of(request);
  Place& place = places_[at];
  if (take(place, mark_of(request))) [[likely]] {
    operations_[at].complete(thread, leases, arrived);
    place.mark.store(kEmpty, std::memory_order_release);
  } else if (place.listed.load(std::memory_order_acquire) != 0) {
    complete_listed(thread, leases, request, arrived);
  }
}

void Requests::complete_listed(ThreadContext& thread, LeasePath& leases, Key request, std::int64_t arrived) {
  Operation finished;
  {
    Shard& shard = shard_of(request);
    const MutexLock lock(shard.mutex);
    const auto at = shard.entries.find(request);
    if (at == shard.entries.end() || at->second.operations.empty()) return;
    Entry& entry = at->second;
    finished = std::move(entry.operations.front());
    entry.operations.erase(entry.operations.begin());
    forget_if_unused(shard, request, entry);
  }
  finished.complete(thread, leases, arrived);
}

Operation Requests::take_freed(Key request) {
  Operation active;
  const std::size_t at = place_of(request);
  {
    Shard& shard = shard_of(request);
    const MutexLock lock(shard.mutex);
    if (const auto listed = shard.entries.find(request); listed != shard.entries.end()) {
      Entry& entry = listed->second;
      entry.remembered = nullptr;
      if (!entry.operations.empty()) {
        active = std::move(entry.operations.back());
        entry.operations.pop_back();
      }
      forget_if_unused(shard, request, entry);
    }
  }
  if (active.empty() && take(places_[at], mark_of(request))) {
    active = std::exchange(operations_[at], {});
    places_[at].mark.store(kEmpty, std::memory_order_release);
  }
  return active;
}

void Requests::release_all(ThreadContext& thread, LeasePath& leases) {
  for (std::size_t at = 0; at < kPlaces; ++at) {
    Place& place = places_[at];
    const Key mark = place.mark.load(std::memory_order_relaxed);
    if (mark == kEmpty || mark == kTaken || !take(place, mark)) continue;
    operations_[at].complete(thread, leases);
    place.mark.store(kEmpty, std::memory_order_release);
  }
  for (Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    for (auto& [request, entry] : shard.entries) {
      for (Operation& operation : entry.operations) operation.complete(thread, leases);
      places_[place_of(request)].listed.fetch_sub(1, std::memory_order_release);
    }
    shard.entries.clear();
  }
}

}  // namespace pinion::mpi
