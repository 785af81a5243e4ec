#include "prepare/preparation.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "base/process_mutex.h"
#include "base/units.h"
#include "monitor/own_threads.h"
#include "monitor/userfault.h"

namespace pinion {

namespace {

/// The first piece, and the longest range that is always one: with 4 KiB pages its registration takes a NIC
/// about a millisecond (cost_model.h), the kernel a fifth.
constexpr std::size_t kPiece = std::size_t{16} << 20;
/// Larger default pieces gain nothing.
constexpr std::size_t kMostPiece = std::size_t{256} << 20;
/// Fault in between two looks at what else goes on.
constexpr std::size_t kSlice = std::size_t{1} << 20;

/// Preparations under way or ready.
struct All {
  ProcessMutex mutex;
  std::vector<Preparation*> list;
};
/// Never destroyed, and made without allocating: a forked child makes it anew while the allocator may be
/// locked by a thread of the parent's.
All& all() {
  alignas(All) static std::byte storage[sizeof(All)];
  static All* const preparations = new (storage) All;
  return *preparations;
}

Error stopped_by_user() {
  return Error::make(ECANCELED, "`pinion stop` has stopped Pinion here: memory stays registered no longer");
}

/// Most bytes of one pin. GPU drivers from r580 on refuse 512 GiB; Linux 6.11 to 6.13 refuse 2 GiB.
std::size_t most_of_a_pin() {
  utsname system{};
  unsigned major = 0, minor = 0;
  if (::uname(&system) == 0 && std::sscanf(system.release, "%u.%u", &major, &minor) == 2 && major == 6 &&
      minor >= 11 && minor <= 13)
    return std::size_t{1} << 30;
  return std::size_t{256} << 30;
}

/// Gives the pages of the ranges the advice that was asked for, and returns the ranges.
const std::vector<Range>& advised(const std::vector<Range>& ranges, bool hugepages) {
  for (const Range& range : ranges) {
    const Range pages = range.to_pages();
    if (hugepages)
      ::madvise(reinterpret_cast<void*>(pages.begin), pages.bytes(), MADV_HUGEPAGE);  // advice, no more
  }
  return ranges;
}

std::size_t most_in_a_piece(const LeasePath& leases, int domain) {
  return std::max(page_size(), page_floor(std::min(leases.most_in_a_region(domain), most_of_a_pin())));
}

std::size_t first_piece(const LeasePath& leases, int domain, std::size_t asked) {
  return std::max(page_size(), page_floor(std::min(asked ? asked : kPiece, most_in_a_piece(leases, domain))));
}

/// A caller's numbers are where the search begins, and its bounds.
PreparationSpeed::Bounds bounds(const LeasePath& leases, int domain, const Preparation::Request& request,
                                const PreparationPieces& pieces, const node::CpuSet& cpus) {
  const std::size_t first = first_piece(leases, domain, request.piece_bytes);
  const bool grows = request.piece_bytes == 0 && first == kPiece;
  const auto parts = static_cast<unsigned>(std::min<std::size_t>(pieces.most_parts(), 1U << 16));
  const auto cores = std::max(static_cast<unsigned>(cpus.count()), 1U);
  const unsigned most = std::min(request.threads ? request.threads : cores, parts);
  return {.first_threads = request.threads ? most : std::min(2U, most),
          .most_threads = most,
          .first_piece = first,
          .most_piece = grows ? std::min(kMostPiece, leases.most_in_a_region(domain)) : first};
}

}  // namespace

Preparation::Preparation(LeasePath& leases, int domain, CallSite site, const Request& request)
    : leases_(leases),
      domain_(domain),
      site_(site),
      access_(request.access),
      // On a device without peers the request has all rights first (registry/domain.h).
      faults_for_writing_(writes(access_) || !leases.domains().slot(domain).device->capabilities().remote),
      registers_(request.registers),
      began_(monotonic_now()),
      place_{node::cpus_of_own_threads(), MemoryPolicy::of_this_thread()},
      pieces_(advised(request.ranges, request.hugepages), first_piece(leases, domain, request.piece_bytes),
              most_in_a_piece(leases, domain)),
      speed_(bounds(leases, domain, request, pieces_, place_.cpus), began_) {}

std::unique_ptr<Preparation> Preparation::start(LeasePath& leases, int domain, CallSite site,
                                                const Request& request, Error& error) {
  if (leases.stopped()) {
    error = stopped_by_user();
    return nullptr;
  }
  error = check_room(leases, request.ranges);
  if (error) return nullptr;
  std::unique_ptr<Preparation> made(new Preparation(leases, domain, site, request));
  const bool launched = made->launch(made->speed_.threads());
  made->end_launch();
  if (!launched) {
    error = Error::make(EAGAIN, "no thread can be made that prepares memory");
    return nullptr;
  }
  const ProcessLock lock(all().mutex);
  all().list.push_back(made.get());
  return made;
}

Error Preparation::check_room(const LeasePath& leases, const std::vector<Range>& ranges) {
  const std::uint64_t most = leases.budget().most_bytes();
  std::uint64_t bytes = 0;
  // A sum beyond all addresses grows no more.
  for (const Range& range : ranges) bytes = std::min(bytes + range.to_pages().bytes(), 2 * kAddressEnd);
  if (bytes > kAddressEnd) return Error::make(ENOMEM, "more to prepare than there are addresses");
  if (bytes <= most) return {};
  return Error::make(ENOMEM, "%s to prepare, but the limit is %s (%s): prepare less, or raise the limit",
                     format_size(bytes).c_str(), format_size(most).c_str(),
                     leases.budget().limits().bytes_from.c_str());
}

bool Preparation::launch(unsigned threads) {
  const MutexLock lock(joining_);
  try {
    for (unsigned i = 0; i < threads; ++i) {
      {
        const MutexLock counting(mutex_);
        crew_.join();
      }
      threads_.push_back(start_own_thread("pinion-prepare", [this] { work(); }));
    }
  } catch (const std::exception&) {
    finish(this_thread(), {});  // the missing one; fewer will do
  }
  return !threads_.empty();
}

Preparation::~Preparation() {
  {
    const ProcessLock lock(all().mutex);
    std::erase(all().list, this);
  }
  cancel();
  join();
  {
    const MutexLock lock(mutex_);
    while (going_) ended_.wait(mutex_);
  }
  ThreadContext* const thread = this_thread();
  pieces_.for_each([&](PreparationPieces::Piece& piece) {
    if (!piece.leased) return;
    if (&leases_ == LeasePath::running() && thread != nullptr)
      leases_.release(*thread, piece.transfer);
    else
      leases_.release_after_run(piece.transfer);
  });
}

void Preparation::join() {
  // A thread that is joined may be starting others: the mutex is free meanwhile.
  for (;;) {
    std::thread thread;
    {
      const MutexLock lock(joining_);
      if (threads_.empty()) return;
      thread = std::move(threads_.back());
      threads_.pop_back();
    }
    thread.join();
  }
}

// ---- as its user sees it ----

Preparation::State Preparation::state() const {
  const MutexLock lock(mutex_);
  State state;
  state.bytes = pieces_.bytes();
  state.prepared = prepared_.load(std::memory_order_relaxed);
  state.elapsed = (over_ ? end_ : monotonic_now()) - began_;
  state.error = over_ ? error_ : Error::make(EINPROGRESS, "the memory is being prepared");
  if (over_)
    state.left = 0;
  else if (state.prepared > 0)
    state.left = static_cast<Duration>(static_cast<double>(state.elapsed) *
                                       static_cast<double>(state.bytes - state.prepared) /
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
  const ProcessLock lock(all().mutex);
  for (Preparation* preparation : all().list) {
    preparation->cancel();
    preparation->join();
  }
}

void Preparation::let_all_go(const LeasePath& leases) {
  ThreadContext* const thread = this_thread();
  if (thread == nullptr) return;
  // The device's operations may be the program's: no lock is held meanwhile.
  while (Preparation* const ready = next_to_let_go(leases)) ready->let_go(*thread);
}

/// Cancels those under way, and claims one that is ready. Null: there is none.
Preparation* Preparation::next_to_let_go(const LeasePath& leases) {
  // Whoever has the mutex may wait for a thread that waits for the caller.
  if (!all().mutex.try_lock()) return nullptr;
  const ProcessLock lock(all().mutex, std::adopt_lock);
  for (Preparation* preparation : all().list)
    if (&preparation->leases_ == &leases && preparation->begin_to_let_go()) return preparation;
  return nullptr;
}

void Preparation::forget_after_fork() {
  new (&all()) All;  // its list is leaked with their threads, which stayed with the parent
}

// ---- its threads ----

void Preparation::work() {
  ::prctl(PR_SET_TIMERSLACK, 1);  // its pauses are short, and many
  place_.policy.apply();
  ThreadContext* const thread = this_thread();
  Error error;
  if (thread == nullptr) error = Error::make(ENOMEM, "no memory for Pinion's state of a thread");
  // A fault that the program's own userfaultfd holds back would hold the end of the run up, too.
  if (!error && program_serves_faults(Look::now)) error = userfaultfd_gave_way();
  FaultPace pace;
  while (!error && !stopped()) {
    if (leaves()) return;
    try {
      const PreparationPieces::Part part = pieces_.take();
      if (part.piece == nullptr) break;
      error = prepare(*thread, pace, part);
    } catch (const std::bad_alloc&) {
      error = Error::make(ENOMEM, "out of memory");
    }
  }
  finish(thread, error);
}

/// True: the search wants fewer threads, and the calling one ends.
bool Preparation::leaves() {
  const MutexLock lock(mutex_);
  return crew_.leaves();
}

/// Sets the number of threads. Called by one of them.
void Preparation::follow(unsigned threads) {
  unsigned missing = 0;
  {
    const MutexLock lock(mutex_);
    missing = crew_.want(threads);
  }
  // If no thread can be made, those that work will do.
  if (missing > 0 && !stopped()) static_cast<void>(launch(missing));
}

Error Preparation::prepare(ThreadContext& thread, FaultPace& pace, const PreparationPieces::Part& part) {
  if (program_serves_faults(Look::at_times)) return userfaultfd_gave_way();
  if (Error error = fault_in(pace, part.pages)) return error;
  if (stopped() || !part.piece->faulted_in(part.pages)) return {};
  give_way();
  return stopped() ? Error{} : register_piece(thread, *part.piece);
}

Error Preparation::register_piece(ThreadContext& thread, PreparationPieces::Piece& piece) {
  const Time begin = monotonic_now();
  if (registers_) {
    const CallPoint call{ticks_now(), site_, CallKind::prepare};
    Error error;
    if (!leases_.lease_alone(thread, domain_, call, piece.pages, access_, piece.transfer, Refusal::report,
                             &error))
      return error;
    piece.leased = true;
  }
  prepared_.fetch_add(piece.pages.bytes(), std::memory_order_relaxed);
  pieces_.set_piece_bytes(speed_.registered(piece.pages.bytes(), monotonic_now() - begin));
  worked(piece.pages.bytes());
  return {};
}

Error Preparation::fault_in(FaultPace& pace, Range pages) {
  for (Range slice = pages; !slice.empty() && !stopped();) {
    give_way();
    if (Error way = userfaultfd_gave_way()) return way;
    slice.end = std::min(pages.end, slice.begin + kSlice);
    Error error = pace.fault_in(slice, faults_for_writing_);
    if (error.code == EFAULT && !writes(access_)) error = pace.fault_in(slice, false);
    if (error) return error;
    worked(slice.bytes());
    slice = {slice.end, pages.end};
  }
  return {};
}

void Preparation::worked(std::size_t bytes) {
  if (const auto threads = speed_.worked(bytes, monotonic_now())) follow(*threads);
}

/// Transfers that wait for a registration go first, yet not for ever.
void Preparation::give_way() const {
  constexpr Duration kPatience = 50 * kMillisecond;
  const Time begin = monotonic_now();
  while (leases_.transfers_wait() && !stopped() && monotonic_now() - begin < kPatience)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
}

/// Ends the work of a thread.
void Preparation::finish(ThreadContext* thread, const Error& error) {
  {
    const MutexLock lock(mutex_);
    if (error && !error_) error_ = error;
    if (error) cancel();
    if (!crew_.end()) return;
  }
  end(thread);
}

void Preparation::end_launch() {
  {
    const MutexLock lock(mutex_);
    if (!crew_.end_launch()) return;
  }
  end(this_thread());
}

/// For the last of the crew.
void Preparation::end(ThreadContext* thread) {
  bool failed = false;
  {
    const MutexLock lock(mutex_);
    const bool ready = prepared_.load(std::memory_order_relaxed) == pieces_.bytes();
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
  // Whoever sees the last registration gone sees no bytes prepared.
  prepared_.store(0, std::memory_order_relaxed);
  pieces_.for_each([&](PreparationPieces::Piece& piece) {
    if (!piece.leased) return;
    piece.leased = false;
    leases_.undo(thread, piece.transfer);
  });
}

bool Preparation::begin_to_let_go() {
  cancel();
  const MutexLock lock(mutex_);
  if (!over_ || error_) return false;
  error_ = stopped_by_user();
  going_ = true;
  return true;
}

void Preparation::let_go(ThreadContext& thread) {
  roll_back(thread);
  const MutexLock lock(mutex_);
  going_ = false;
  ended_.notify_all();
}

}  // namespace pinion
