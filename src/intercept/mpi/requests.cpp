#include "intercept/mpi/requests.h"

namespace pinion::mpi {

Requests& Requests::instance() {
  static auto* requests =
      new Requests;  // never destroyed: threads may complete requests while the process exits
  return *requests;
}

void Requests::hold(MPI_Request request, const Transfer& transfer) {
  Shard& s = shard(request);
  std::lock_guard lock(s.mutex);
  const auto [at, is_new] = s.entries.try_emplace(request);
  if (at->second.oldest.active) {
    at->second.later.push_back(transfer);
  } else {
    at->second.oldest = transfer;
  }
  if (is_new) held_.fetch_add(1, std::memory_order_release);
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

void Requests::forget_if_unused(Shard& shard, MPI_Request request, const Entry& entry) {
  if (entry.oldest.active || entry.is_persistent) return;
  shard.entries.erase(request);
  held_.fetch_sub(1, std::memory_order_release);
}

void Requests::complete(ThreadContext& thread, Engine& engine, MPI_Request request) {
  Transfer finished;
  {
    Shard& s = shard(request);
    std::lock_guard lock(s.mutex);
    const auto at = s.entries.find(request);
    if (at == s.entries.end()) return;
    Entry& entry = at->second;
    finished = entry.oldest;
    entry.oldest.active = false;
    if (!entry.later.empty()) {
      entry.oldest = entry.later.front();
      entry.later.erase(entry.later.begin());
    }
    forget_if_unused(s, request, entry);
  }
  if (finished.active) engine.release(thread, finished);
}

void Requests::freed(MPI_Request request) {
  Shard& s = shard(request);
  std::lock_guard lock(s.mutex);
  const auto at = s.entries.find(request);
  if (at == s.entries.end()) return;
  Entry& entry = at->second;
  if (entry.oldest.active) {
    std::lock_guard orphans(orphans_mutex_);
    if (entry.later.empty()) {
      orphans_.push_back(entry.oldest);
      entry.oldest.active = false;
    } else {
      orphans_.push_back(entry.later.back());
      entry.later.pop_back();
    }
  }
  entry.is_persistent = false;
  forget_if_unused(s, request, entry);
}

void Requests::release_all() {
  Engine* engine = Engine::running();
  ThreadContext* thread = this_thread();
  if (!engine || !thread) return;
  for (Shard& s : shards_) {
    std::lock_guard lock(s.mutex);
    for (auto& [request, entry] : s.entries) {
      if (entry.oldest.active) engine->release(*thread, entry.oldest);
      for (Transfer& transfer : entry.later) engine->release(*thread, transfer);
    }
    held_.fetch_sub(s.entries.size(), std::memory_order_release);
    s.entries.clear();
  }
  std::lock_guard lock(orphans_mutex_);
  for (Transfer& transfer : orphans_) engine->release(*thread, transfer);
  orphans_.clear();
}

}  // namespace pinion::mpi
