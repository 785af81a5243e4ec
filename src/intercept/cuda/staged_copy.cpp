#include "intercept/cuda/staged_copy.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/fork_generation.h"
#include "device/cuda/host_ranges.h"
#include "intercept/cuda/copy_check.h"
#include "intercept/cuda/copy_threads.h"
#include "intercept/cuda/end_of_copy.h"
#include "intercept/cuda/faults.h"
#include "intercept/cuda/kept.h"
#include "intercept/cuda/ring.h"
#include "intercept/cuda/staging_figures.h"
#include "intercept/cuda/stream_copy.h"
#include "intercept/cuda/submission_gate.h"
#include "lease/copy_counters.h"

namespace pinion::cuda {

namespace {

using namespace staging;

/// A context is lost: the driver is left alone.
constinit std::atomic<bool> off{false};

/// Copies that waited for streams which other threads kept busy, and were left to the driver in the end. More
/// are left to it at once after each.
class Contention {
 public:
  /// Whether this copy is one of those.
  bool leaves_to_driver() {
    unsigned left = left_.load(std::memory_order_relaxed);
    while (left != 0) {
      if (left_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void note() {
    const unsigned next = std::min(2 * last_.load(std::memory_order_relaxed) + 1, kMostLeft);
    last_.store(next, std::memory_order_relaxed);
    left_.store(next, std::memory_order_relaxed);
  }
  void note_success() {
    if (last_.load(std::memory_order_relaxed) != 0) last_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<unsigned> last_{0}, left_{0};
};
constinit Contention contention;

void watch_forks() {
  [[maybe_unused]] static const int once = ::pthread_atfork(nullptr, nullptr, [] {
    copy_threads().abandon_after_fork();
    pinned_rings().abandon_after_fork();
    submission_gate().abandon_after_fork();
  });
}

/// True: the range is memory of one allocation on a device.
bool is_one_allocation(const Driver& driver, DevicePointer device, std::size_t bytes) {
  unsigned type = 0;
  DevicePointer begin = 0;
  std::size_t size = 0;
  if (driver.pointer_attribute(&type, kAttributeMemoryType, device) != kSuccess || type != kMemoryTypeDevice)
    return false;
  if (driver.pointer_attribute(&begin, kAttributeRangeStart, device) != kSuccess) return false;
  if (driver.pointer_attribute(&size, kAttributeRangeSize, device) != kSuccess) return false;
  return begin <= device && device - begin <= size && bytes <= size - (device - begin);
}

/// Memory that we have registered is pageable to the program.
bool counts_as_pageable(const Driver& driver, const void* host) {
  return host_ranges().registration_of(reinterpret_cast<Address>(host)) || is_pageable(driver, host);
}

/// The current context, if it is the stream's.
bool find_context(const Driver& driver, Stream stream, ContextKey& key) {
  if (driver.stream_context(stream, &key.context) != kSuccess) return false;
  const Context current = current_context(driver);
  if (current == nullptr) return false;
  if (driver.context_id != nullptr && driver.context_id(current, &key.id) != kSuccess) return false;
  return current == key.context;
}

/// The driver's answer in a forked child.
constexpr Result kNotInitialized = 3;

/// The pieces of one copy on their way. The calling thread alone uses it, but for copy_piece(). It refers to
/// no frame (kept.h). A child that is forked meanwhile lacks its memory, and the threads.
class Pieces {
 public:
  Pieces(const Driver& driver, const LinearCopy& copy, PinnedRings::Part& part, std::uint32_t process)
      : process_(process),
        driver_(driver),
        copy_(copy),
        part_(part),
        piece_(piece_bytes(copy.bytes)),
        count_((copy.bytes + piece_ - 1) / piece_),
        in_flight_(std::min(part.bytes() / piece_, kMostInFlight)) {}
  ~Pieces() {
    if (over_) return;
    const Uncancelled uncancelled;
    job_.reset();
    // The piece that was being submitted may be on its way.
    ++issued_;
    unmarked_ = true;
    drain();
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  /// Nothing: the driver refused the first piece, and nothing has happened.
  std::optional<Result> run() {
    CopyThreads::Job& job = job_.emplace(copy_threads(), copier_);
    if (copy_.direction == Direction::to_device)
      to_device(job);
    else
      from_device(job);
    if (is_in_child()) return kNotInitialized;
    job_.reset();
    if (result_ != kSuccess && !is_sticky(result_)) drain();
    over_ = true;
    if (issued_ == 0) return std::nullopt;
    return result_;
  }

 private:
  struct CopyOne {
    Pieces& pieces;
    bool operator()(std::size_t i, Copier copier) { return pieces.copy_piece(i, copier); }
  };

  bool is_in_child() const { return fork_generation.load(std::memory_order_relaxed) != process_; }
  std::size_t size_of(std::size_t i) const { return std::min(piece_, copy_.bytes - i * piece_); }
  std::size_t place_of(std::size_t i) const { return i % in_flight_ * piece_; }
  char* host_of(std::size_t i) const { return static_cast<char*>(copy_.host) + i * piece_; }
  Event event_of(std::size_t i) const { return part_.event(place_of(i)); }

  bool copy_piece(std::size_t i, Copier copier) {
    char* const pinned = part_.memory(place_of(i));
    const bool in = copy_.direction == Direction::to_device;
    if (copier == Copier::helper && faults_are_handled())
      return in ? read_program(pinned, host_of(i), size_of(i))
                : write_program(host_of(i), pinned, size_of(i));
    stream_copy(in ? pinned : host_of(i), in ? host_of(i) : pinned, size_of(i));
    return true;
  }

  void to_device(CopyThreads::Job& job) {
    std::size_t posted = std::min(in_flight_, count_);
    job.post(posted);
    while (issued_ < count_) {
      const std::size_t before = posted;
      while (posted < count_ && posted - issued_ < in_flight_ && has_passed(posted - in_flight_)) ++posted;
      if (failed()) return;
      if (posted != before) job.post(posted);
      if (issued_ < posted && job.is_done(issued_)) {
        issue();
      } else if (!job.help()) {
        if (issued_ < posted)
          job.wait(issued_);
        else
          wait_for(posted - in_flight_);
      }
      if (failed()) return;
    }
    wait_for(count_ - 1);
  }

  void from_device(CopyThreads::Job& job) {
    std::size_t arrived = 0, emptied = 0;
    while (emptied < count_) {
      while (issued_ < count_ && issued_ - emptied < in_flight_) {
        if (!issue()) return;
      }
      const std::size_t before = arrived;
      while (arrived < issued_ && has_passed(arrived)) ++arrived;
      if (failed()) return;
      if (arrived != before) job.post(arrived);
      while (emptied < arrived && job.is_done(emptied)) ++emptied;
      if (emptied == count_ || job.help()) continue;
      if (arrived < issued_)
        wait_for(arrived);
      else if (emptied < arrived)
        job.wait(emptied);
      if (failed()) return;
    }
  }

  /// Submits the next piece. False: it failed.
  bool issue() {
    const std::size_t i = issued_;
    char* const memory = part_.memory(place_of(i));
    const DevicePointer device = copy_.device + i * piece_;
    result_ = copy_.direction == Direction::to_device
                  ? driver_.copy_in_async(device, memory, size_of(i), copy_.stream)
                  : driver_.copy_out_async(memory, device, size_of(i), copy_.stream);
    if (failed()) return false;
    ++issued_;
    result_ = driver_.event_record(event_of(i), copy_.stream);
    if (result_ != kSuccess) unmarked_ = true;
    return !failed();
  }

  bool failed() const { return result_ != kSuccess || is_in_child(); }
  /// Asks for the event of a piece. An error ends the copy.
  bool has_passed(std::size_t i) {
    const Result asked = driver_.event_query(event_of(i));
    if (asked != kSuccess && asked != kNotReady) result_ = asked;
    return asked == kSuccess;
  }
  void wait_for(std::size_t i) {
    const Time until = monotonic_now() + kSpin;
    do {
      if (has_passed(i) || failed()) return;
      StdAtomics::relax();
    } while (monotonic_now() < until);
    result_ = driver_.event_synchronize(event_of(i));
  }

  /// After an error: the engine must be through with the ring before others get its memory.
  void drain() {
    if (issued_ == 0) return;
    const Event last = event_of(issued_ - 1);
    if (unmarked_ && driver_.event_record(last, copy_.stream) != kSuccess) return part_.leave_to_engine();
    if (driver_.event_synchronize(last) != kSuccess) part_.leave_to_engine();
  }

  const std::uint32_t process_;  ///< the fork generation that the copy began in
  const Driver& driver_;
  const LinearCopy copy_;
  PinnedRings::Part& part_;
  const std::size_t piece_, count_, in_flight_;
  CopyOne copier_{*this};
  std::optional<CopyThreads::Job> job_;
  std::size_t issued_ = 0;
  Result result_ = kSuccess;  ///< the first error
  bool unmarked_ = false;     ///< the last piece has no event behind it
  bool over_ = false;         ///< run() has come to its end
};

enum class Reached { idle, busy, no };

/// Whether the stream's work is done within the time. The caller is exclusive: nothing can be added to it.
Reached look(const Driver& driver, Stream stream, Event event, Duration patience) {
  if (is_capturing(driver, stream) || driver.event_record(event, stream) != kSuccess) return Reached::no;
  const Time until = monotonic_now() + patience;
  Result asked = kNotReady;
  while ((asked = driver.event_query(event)) == kNotReady && monotonic_now() < until) StdAtomics::relax();
  if (asked == kNotReady) return Reached::busy;
  return asked == kSuccess ? Reached::idle : Reached::no;
}

/// Waits until the stream is idle, and runs the pieces with all others kept out. They are not kept out of a
/// stream that waits: it may be they who will let it go on.
std::optional<Result> run_when_idle(const Driver& driver, const LinearCopy& copy, Context context,
                                    PinnedRings::Part& part, std::uint32_t process) {
  const Event event = part.event(0);
  for (int round = 0; round < kRounds; ++round) {
    {
      const Kept<SubmissionGate::Exclusive> alone(submission_gate(), driver, copy.stream, context);
      if (!alone->held()) break;
      const Reached reached = look(driver, copy.stream, event, round == 0 ? kSpin : kLastSpin);
      if (reached == Reached::no || fork_generation.load(std::memory_order_relaxed) != process)
        return std::nullopt;
      if (reached == Reached::idle) {
        CopyCheck check(driver, copy);
        const Kept<std::unique_ptr<Pieces>> pieces(std::make_unique<Pieces>(driver, copy, part, process));
        const std::optional<Result> result = (*pieces)->run();
        if (result == kSuccess) check.finish(runlog::CopyWay::staged);
        return result;
      }
    }
    if (driver.event_synchronize(event) != kSuccess) return std::nullopt;
  }
  contention.note();
  return std::nullopt;
}

}  // namespace

std::optional<Result> staged_copy(const Driver& driver, const LinearCopy& copy) {
  if (copy.bytes < kLeastBytes || off.load(std::memory_order_relaxed)) return std::nullopt;
  if (contention.leaves_to_driver()) return std::nullopt;
  watch_forks();
  const std::uint32_t process = fork_generation.load(std::memory_order_relaxed);
  const Time began = monotonic_now();
  const Duration checks = time_of_checks();
  ContextKey key;
  if (!find_context(driver, copy.stream, key) || is_capturing(driver, copy.stream)) return std::nullopt;
  if (!counts_as_pageable(driver, copy.host) || !is_one_allocation(driver, copy.device, copy.bytes))
    return std::nullopt;
  const Kept<PinnedRings::Part> part(pinned_rings());
  part->take(driver, key, copy.bytes);
  if (!*part) return std::nullopt;
  const Kept<RelaxedCapture> relaxed(driver);
  const std::optional<Result> result = run_when_idle(driver, copy, key.context, *part, process);
  if (!result) return result;
  if (is_sticky(*result)) {
    off.store(true, std::memory_order_relaxed);
    part->leave_to_engine();
  }
  contention.note_success();
  if (*result == kSuccess)
    copy_counters().add(copy.direction == Direction::to_device, runlog::CopyWay::staged, copy.bytes,
                        monotonic_now() - began - (time_of_checks() - checks));
  return result;
}

void staging_contexts_changed(unsigned long long id) { pinned_rings().contexts_changed(id); }

}  // namespace pinion::cuda
