#include "intercept/cuda/copy_threads.h"

#include <climits>
#include <exception>
#include <thread>

#include "base/atomics.h"
#include "base/futex.h"
#include "monitor/own_threads.h"

namespace pinion::cuda {

namespace {

/// Spins until `over()`. False: it took longer than sleeping would.
template <class Over>
bool spin_until(Over&& over) {
  // On a machine of few cores the thread that is waited for needs this one.
  static const bool few = std::thread::hardware_concurrency() <= staging::kHelpers + 1;
  const Time until = monotonic_now() + (few ? 0 : staging::kSpin);
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (over()) return true;
      StdAtomics::relax();
    }
    if (monotonic_now() >= until) return false;
  }
}

/// Sleeps until the word differs from `seen`, or somebody wakes its sleepers.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::atomic<std::uint32_t>& sleepers) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  futex_wait(word, seen, kNever);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void advance(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers) {
  word.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake(word, INT_MAX);
}

}  // namespace

// ---- a job ----

CopyThreads::Job::Job(CopyThreads& threads, FunctionRef<bool(std::size_t, Copier)> copy)
    : threads_(threads), copy_(copy) {
  const MutexLock lock(threads_.mutex_);
  threads_.begin_threads();
  next_ = threads_.first_;
  threads_.first_ = this;
}

CopyThreads::Job::~Job() {
  std::size_t taken = 0;
  {
    const MutexLock lock(threads_.mutex_);
    Job** link = &threads_.first_;
    while (*link != this) link = &(*link)->next_;
    *link = next_;
    taken = taken_;
  }
  if (copied_here_ != kNone) done_[copied_here_ % staging::kMostInFlight] = copied_here_ + 1;
  const std::size_t oldest = taken < staging::kMostInFlight ? 0 : taken - staging::kMostInFlight;
  for (std::size_t piece = oldest; piece < taken; ++piece) await_copiers(piece);
}

void CopyThreads::Job::post(std::size_t pieces) {
  {
    const MutexLock lock(threads_.mutex_);
    posted_ = pieces;
  }
  advance(threads_.posts_, threads_.idle_);
}

bool CopyThreads::Job::help() {
  std::size_t piece = kNone;
  if (threads_.take(this, piece) == nullptr) return false;
  run_here(piece);
  return true;
}

void CopyThreads::Job::run(std::size_t piece, Copier copier) {
  auto& ended = copy_(piece, copier) ? done_ : left_;
  ended[piece % staging::kMostInFlight].store(piece + 1, std::memory_order_release);
}

void CopyThreads::Job::run_here(std::size_t piece) {
  copied_here_ = piece;
  run(piece, Copier::caller);
  copied_here_ = kNone;
}

void CopyThreads::Job::await_copiers(std::size_t piece) {
  for (;;) {
    const std::uint32_t seen = threads_.ends_.load(std::memory_order_seq_cst);
    if (spin_until([&] { return is_done(piece) || is_left(piece); })) return;
    sleep_on(threads_.ends_, seen, threads_.waiting_);
  }
}

void CopyThreads::Job::wait(std::size_t piece) {
  await_copiers(piece);
  if (!is_done(piece)) run_here(piece);
}

// ---- the threads ----

void CopyThreads::begin_threads() {
  if (begun_) return;
  begun_ = true;
  try {
    for (int i = 0; i < staging::kHelpers; ++i) start_own_thread("pinion-copy", [this] { work(); }).detach();
  } catch (const std::exception&) {
    // The callers copy alone.
  }
}

void CopyThreads::work() {
  for (;;) {
    const std::uint32_t seen = posts_.load(std::memory_order_seq_cst);
    std::size_t piece = Job::kNone;
    Job* const job = take(nullptr, piece);
    if (job == nullptr) {
      sleep_until_posted(seen);
      continue;
    }
    job->run(piece, Copier::helper);
    advance(ends_, waiting_);
  }
}

CopyThreads::Job* CopyThreads::take(Job* wanted, std::size_t& piece) {
  const MutexLock lock(mutex_);
  Job** link = &first_;
  while (*link != nullptr && ((wanted != nullptr && *link != wanted) || (*link)->taken_ == (*link)->posted_))
    link = &(*link)->next_;
  Job* const job = *link;
  if (job == nullptr) return nullptr;
  piece = job->taken_++;
  if (wanted == nullptr) {
    // The last in the list is the next in turn.
    *link = job->next_;
    while (*link != nullptr) link = &(*link)->next_;
    *link = job;
    job->next_ = nullptr;
  }
  return job;
}

void CopyThreads::sleep_until_posted(std::uint32_t seen) {
  if (spin_until([&] { return posts_.load(std::memory_order_acquire) != seen; })) return;
  sleep_on(posts_, seen, idle_);
}

void CopyThreads::abandon_after_fork() NO_THREAD_SAFETY_ANALYSIS {
  mutex_.free_in_child();
  first_ = nullptr;
  begun_ = false;
  idle_ = 0;
  waiting_ = 0;
}

CopyThreads& copy_threads() {
  alignas(CopyThreads) static unsigned char memory[sizeof(CopyThreads)];
  static CopyThreads* const threads = new (memory) CopyThreads;
  return *threads;
}

}  // namespace pinion::cuda
