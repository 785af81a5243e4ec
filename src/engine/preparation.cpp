#include "engine/preparation.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <system_error>

#include "base/preemption.h"
#include "base/units.h"
#include "device/kernel/fault_in.h"

namespace pinion {

namespace {

/// The default piece: with 4 KiB pages its registration takes a NIC about a millisecond (cost_model.h), the
/// kernel a fifth.
constexpr std::size_t kPiece = std::size_t{16} << 20;
constexpr Duration kLongStep = kMillisecond / 4;
/// Processor time between pauses: a step, mostly. Without them the next step would take the memory map before
/// a waiting thread wakes up, and a used-up time slice would end within a step.
constexpr Duration kRun = kMillisecond / 5;
constexpr std::chrono::microseconds kPause{20};
constexpr std::size_t kLeastStep = std::size_t{64} << 10;

/// Preparations under way or ready.
struct All {
  Mutex mutex;
  std::vector<Preparation*> list;
};
/// Never destroyed, and made without allocating: a forked child makes it anew while the allocator may be
/// locked by a thread of the parent's.
All& all() {
  alignas(All) static std::byte storage[sizeof(All)];
  static All* const preparations = new (storage) All;
  return *preparations;
}

unsigned default_threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U); }

}  // namespace

Preparation::Preparation(LeasePath& leases, int domain, CallSite site, const Request& request)
    : leases_(leases),
      domain_(domain),
      site_(site),
      access_(request.access),
      // On a device without peers the request has all rights first (registry/domain.h).
      faults_for_writing_(writes(access_) || !leases.domains().slot(domain).device->capabilities().remote),
      began_(monotonic_now()) {
  const std::size_t asked = request.piece_bytes ? request.piece_bytes : kPiece;
  const std::size_t most =
      std::max(page_size(), page_floor(std::min(asked, leases.most_in_a_region(domain))));
  for (const Range& range : request.ranges) {
    const Range pages = range.to_pages();
    bytes_ += pages.bytes();
    if (request.hugepages)
      ::madvise(reinterpret_cast<void*>(pages.begin), pages.bytes(), MADV_HUGEPAGE);  // advice, no more
    // A range that fits a piece is a buffer, which one registration must serve. Longer ones are cut at
    // multiples, so that hugepages stay whole.
    for (Address at = pages.begin; at < pages.end;) {
      const Address end = pages.bytes() <= most ? pages.end : std::min(pages.end, (at / most + 1) * most);
      pieces_.emplace_back().pages = {at, end};
      at = end;
    }
  }
}

std::unique_ptr<Preparation> Preparation::start(LeasePath& leases, int domain, CallSite site,
                                                const Request& request, Error& error) {
  std::unique_ptr<Preparation> made(new Preparation(leases, domain, site, request));
  error = made->check_room();
  if (error) return nullptr;
  const auto pieces = static_cast<unsigned>(std::min<std::size_t>(made->pieces_.size(), 1U << 16));
  // The caller counts as a thread of it meanwhile, so that the preparation cannot end before all are
  // launched.
  made->begin();
  const bool launched = made->launch(std::min(request.threads ? request.threads : default_threads(), pieces));
  made->finish(this_thread(), {});
  if (!launched) {
    error = Error::make(EAGAIN, "no thread can be made that prepares memory");
    return nullptr;
  }
  const MutexLock lock(all().mutex);
  all().list.push_back(made.get());
  return made;
}

Error Preparation::check_room() const {
  const std::uint64_t most = leases_.budget().most_bytes();
  if (bytes_ <= most) return {};
  return Error::make(ENOMEM, "%s to prepare, but the limit is %s (%s): prepare less, or raise the limit",
                     format_size(bytes_).c_str(), format_size(most).c_str(),
                     leases_.budget().limits().bytes_from.c_str());
}

bool Preparation::launch(unsigned threads) {
  // Signals belong to the program's threads.
  sigset_t signals, before;
  sigfillset(&signals);
  ::pthread_sigmask(SIG_SETMASK, &signals, &before);
  const MutexLock lock(joining_);
  try {
    while (threads_.size() < threads) {
      begin();
      threads_.emplace_back([this] { work(); });
    }
  } catch (const std::system_error&) {
    finish(this_thread(), {});  // the missing one; fewer will do
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !threads_.empty();
}

void Preparation::begin() {
  const MutexLock lock(mutex_);
  ++active_;
}

Preparation::~Preparation() {
  {
    const MutexLock lock(all().mutex);
    std::erase(all().list, this);
  }
  cancel();
  join();
  ThreadContext* const thread = this_thread();
  for (Piece& piece : pieces_) {
    if (!piece.leased) continue;
    if (&leases_ == LeasePath::running() && thread != nullptr)
      leases_.release(*thread, piece.transfer);
    else
      leases_.release_after_run(piece.transfer);
  }
}

void Preparation::join() {
  const MutexLock lock(joining_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// ---- as its user sees it ----

Preparation::State Preparation::state() const {
  const MutexLock lock(mutex_);
  State state;
  state.bytes = bytes_;
  state.prepared = prepared_.load(std::memory_order_relaxed);
  state.elapsed = (over_ ? end_ : monotonic_now()) - began_;
  state.error = over_ ? error_ : Error::make(EINPROGRESS, "the memory is being prepared");
  if (over_)
    state.left = 0;
  else if (state.prepared > 0)
    state.left = static_cast<Duration>(static_cast<double>(state.elapsed) *
                                       static_cast<double>(bytes_ - state.prepared) /
                                       static_cast<double>(state.prepared));
  return state;
}

bool Preparation::wait(Duration timeout) const {
  const MutexLock lock(mutex_);
  if (timeout == kNever) {
    while (!over_) ended_.wait(mutex_);
    return true;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout);
  while (!over_ && ended_.wait_until(mutex_, end) == std::cv_status::no_timeout) continue;
  return over_;
}

void Preparation::end_all() {
  const MutexLock lock(all().mutex);
  for (Preparation* preparation : all().list) {
    preparation->cancel();
    preparation->join();
  }
}

void Preparation::forget_after_fork() {
  new (&all()) All;  // its list is leaked with their threads, which stayed with the parent
}

// ---- its threads ----

void Preparation::work() {
  ::prctl(PR_SET_NAME, "pinion-prepare");
  ::prctl(PR_SET_TIMERSLACK, 1);  // its pauses are short, and many
  ThreadContext* const thread = this_thread();
  Error error;
  if (thread == nullptr) error = Error::make(ENOMEM, "no memory for Pinion's state of a thread");
  while (!error && !stopped()) {
    const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces_.size()) break;
    try {
      error = prepare(*thread, pieces_[i]);
    } catch (const std::bad_alloc&) {
      error = Error::make(ENOMEM, "out of memory");
    }
  }
  finish(thread, error);
}

Error Preparation::prepare(ThreadContext& thread, Piece& piece) {
  if (Error error = fault_in_steps(piece.pages)) return error;
  give_way();
  if (stopped()) return {};
  const CallPoint call{ticks_now(), site_, CallKind::prepare};
  Error error;
  if (!leases_.registry_source().acquire(thread, domain_, call, piece.pages, access_, piece.transfer,
                                         Refusal::report, &error))
    return error;
  piece.leased = true;
  prepared_.fetch_add(piece.pages.bytes(), std::memory_order_relaxed);
  return {};
}

/// A fault holds the process's memory map against all that change it, so each step is short, by the time that
/// the thread runs. A thread that sleeps begins a new time slice: the kernel seldom preempts it within a
/// step.
Error Preparation::fault_in_steps(Range pages) {
  std::size_t step = std::size_t{1} << 20;
  Duration ran = 0;
  for (Address at = pages.begin; at < pages.end && !stopped();) {
    give_way();
    const Address end = std::min(pages.end, at + step);
    const Duration before = thread_cpu_now();
    Error error = fault_in({at, end}, faults_for_writing_);
    if (error.code == EFAULT && !writes(access_)) error = fault_in({at, end}, false);
    if (error) return error;
    const Duration took = thread_cpu_now() - before;
    if (took > kLongStep)
      step = std::max(step / 2, std::max(kLeastStep, page_size()));
    else if (took < kLongStep / 4)
      step = std::min(step * 2, kFaultStep);
    at = end;
    ran += took;
    if (ran < kRun) continue;
    std::this_thread::sleep_for(kPause);
    ran = 0;
  }
  return {};
}

/// Transfers that wait for a registration go first, yet not for ever.
void Preparation::give_way() const {
  constexpr Duration kPatience = 50 * kMillisecond;
  const Time begin = monotonic_now();
  while (leases_.transfers_wait() && !stopped() && monotonic_now() - begin < kPatience)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void Preparation::finish(ThreadContext* thread, const Error& error) {
  bool failed = false;
  {
    const MutexLock lock(mutex_);
    if (error && !error_) error_ = error;
    if (error) cancel();
    if (--active_ > 0) return;
    const bool ready = prepared_.load(std::memory_order_relaxed) == bytes_;
    if (!ready && !error_) error_ = Error::make(ECANCELED, "the preparation was cancelled");
    failed = static_cast<bool>(error_);
  }
  // All pieces are this thread's now.
  if (failed && thread != nullptr) roll_back(*thread);
  const MutexLock lock(mutex_);
  end_ = monotonic_now();
  over_ = true;
  ended_.notify_all();
}

void Preparation::roll_back(ThreadContext& thread) {
  for (Piece& piece : pieces_) {
    if (!piece.leased) continue;
    piece.leased = false;
    leases_.undo(thread, piece.transfer);
  }
  prepared_.store(0, std::memory_order_relaxed);
}

}  // namespace pinion
