#include "intercept/mpi/requests.h"

namespace pinion::mpi {

Requests& Requests::instance() {
  static auto* requests =
      new Requests;  // never destroyed: threads may complete requests while the process exits
  return *requests;
}

bool Requests::hold(MPI_Request request, const Transfer& transfer) {
  Shard& s = shard(request);
  std::lock_guard lock(s.mutex);
  const auto [at, is_new] = s.entries.try_emplace(request);
  if (at->second.transfer.active) return false;
  at->second.transfer = transfer;
  if (is_new) held_.fetch_add(1, std::memory_order_release);
  return true;
}

void Requests::remember(MPI_Request request, const Persistent& persistent) {
  Shard& s = shard(request);
  std::lock_guard lock(s.mutex);
  const auto [at, is_new] = s.entries.try_emplace(request);
  at->second.persistent = persistent;
  at->second.is_persistent = true;
  if (is_new) held_.fetch_add(1, std::memory_order_release);
}

bool Requests::find(MPI_Request request, Persistent& persistent) {
  Shard& s = shard(request);
  std::lock_guard lock(s.mutex);
  const auto at = s.entries.find(request);
  if (at == s.entries.end() || !at->second.is_persistent) return false;
  persistent = at->second.persistent;
  return true;
}

void Requests::complete(ThreadContext& thread, Engine& engine, MPI_Request request, bool gone) {
  Transfer finished;
  {
    Shard& s = shard(request);
    std::lock_guard lock(s.mutex);
    const auto at = s.entries.find(request);
    if (at == s.entries.end()) return;
    finished = at->second.transfer;
    at->second.transfer.active = false;
    if (gone) {
      s.entries.erase(at);
      held_.fetch_sub(1, std::memory_order_release);
    }
  }
  if (finished.active) engine.release(thread, finished);
}

void Requests::freed(MPI_Request request) {
  Shard& s = shard(request);
  std::lock_guard lock(s.mutex);
  const auto at = s.entries.find(request);
  if (at == s.entries.end()) return;
  if (at->second.transfer.active) {
    std::lock_guard orphans(orphans_mutex_);
    orphans_.push_back(at->second.transfer);
  }
  s.entries.erase(at);
  held_.fetch_sub(1, std::memory_order_release);
}

void Requests::release_all() {
  Engine* engine = Engine::running();
  ThreadContext* thread = this_thread();
  if (!engine || !thread) return;
  for (Shard& s : shards_) {
    std::lock_guard lock(s.mutex);
    for (auto& [request, entry] : s.entries) {
      if (entry.transfer.active) engine->release(*thread, entry.transfer);
      entry.transfer.active = false;
    }
    held_.fetch_sub(s.entries.size(), std::memory_order_release);
    s.entries.clear();
  }
  std::lock_guard lock(orphans_mutex_);
  for (Transfer& transfer : orphans_) engine->release(*thread, transfer);
  orphans_.clear();
}

}  // namespace pinion::mpi
