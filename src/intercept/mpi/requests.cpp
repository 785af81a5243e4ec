#include "intercept/mpi/requests.h"

namespace pinion::mpi {

constinit std::atomic<std::uint32_t> Requests::entries_known_{0};
constinit std::array<std::atomic<std::uint32_t>, 1024> Requests::known_{};

Requests& Requests::instance() {
  static auto* requests =
      new Requests;  // never destroyed: threads may complete requests while the process exits
  return *requests;
}

Requests::Entry& Requests::entry_of(Shard& shard, Key request) {
  const auto [at, is_new] = shard.entries.try_emplace(request);
  if (is_new) count(request, 1);
  return at->second;
}

void Requests::forget_if_unused(Shard& shard, Key request, const Entry& entry) {
  if (!entry.operations.empty() || entry.remembered) return;
  shard.entries.erase(request);
  count(request, -1);
}

void Requests::hold(Key request, Operation&& operation) {
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
  Shard& shard = shard_of(request);
  const MutexLock lock(shard.mutex);
  const auto at = shard.entries.find(request);
  if (at == shard.entries.end()) return active;
  Entry& entry = at->second;
  entry.remembered = nullptr;
  if (!entry.operations.empty()) {
    active = std::move(entry.operations.back());
    entry.operations.pop_back();
  }
  forget_if_unused(shard, request, entry);
  return active;
}

void Requests::release_all(ThreadContext& thread, LeasePath& leases) {
  for (Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    for (auto& [request, entry] : shard.entries) {
      for (Operation& operation : entry.operations) operation.complete(thread, leases);
      count(request, -1);
    }
    shard.entries.clear();
  }
}

}  // namespace pinion::mpi
