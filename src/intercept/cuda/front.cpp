#include "intercept/cuda/front.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/clock.h"
#include "base/warning.h"
#include "device/cuda/host_ranges.h"
#include "engine/copy_counters.h"
#include "intercept/cuda/buffer_history.h"
#include "intercept/cuda/copy_check.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/end_of_copy.h"
#include "intercept/cuda/registrations.h"
#include "intercept/cuda/shadow.h"
#include "intercept/cuda/stack_room.h"
#include "intercept/cuda/staged_copy.h"
#include "intercept/cuda/submission_gate.h"
#include "monitor/memory_events.h"

namespace pinion::cuda {

namespace {

using Plain = FunctionRef<Result(void* host)>;

/// Smaller copies gain nothing: a single plain one is faster than a registered one (evidence-gpu.md).
constexpr std::size_t kLeastUse = std::size_t{64} << 10;
/// Smaller copies gain little by three threads and a ring.
constexpr std::size_t kLeastStaged = std::size_t{4} << 20;
/// A context of our own takes half a GiB of GPU memory: it is made once so many bytes were copied.
constexpr std::uint64_t kWorthAContext = std::uint64_t{256} << 20;

constinit BufferHistory g_history;
constinit std::atomic<std::uint64_t> g_copied{0};

void nap() {
  const timespec time{0, 50'000};
  ::nanosleep(&time, nullptr);
}

/// Whether the program may rely on the function to return before the stream has come to the copy: it may open
/// the stream after the call. Where a driver waits below kReadAtOnce, such copies only gain less.
bool returns_at_once(const LinearCopy& copy) {
  return copy.async && copy.direction == Direction::to_device && copy.bytes <= kReadAtOnce;
}

/// Ranges that are closed to registration while a call is in the driver.
class Closed {
 public:
  explicit Closed(std::span<const Range> ranges) : ranges_(ranges), closed_(host_ranges().close(ranges)) {}
  ~Closed() {
    if (closed_) host_ranges().open(ranges_);
  }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;
  explicit operator bool() const { return closed_; }

 private:
  const std::span<const Range> ranges_;
  const bool closed_;
};

/// The driver gets other memory in place of the program's, of the same kind.
Result shadowed(const LinearCopy& copy, Plain plain) {
  Shadow shadow(copy.bytes);
  if (!shadow) return kOutOfMemory;
  if (copy.direction == Direction::to_device) {
    shadow.read_from(copy.host);
    return plain(shadow.memory());
  }
  const Result result = plain(shadow.memory());  // waits, asynchronous or not
  if (result == kSuccess) shadow.write_to(copy.host);
  return result;
}

/// Makes the call on a lease, and waits for the copy. The lease is held only while nothing holds the stream
/// back: another thread's call may need the memory, and open the stream after it. Nothing: the copy was not
/// made.
std::optional<Result> registered(Registrations& registrations, const LinearCopy& copy,
                                 const EntryFrame& entry, Plain plain, Use& use) {
  EndOfCopy end(driver());
  if (copy.async && !end.ready()) return {};
  for (int tries = 0; tries < 2; ++tries) {
    {
      const SubmissionGate::Exclusive alone(submission_gate(), driver(), copy.stream,
                                            current_context(driver()));
      if (alone.held() && end.has_come(copy.stream)) {
        CopyCheck check(driver(), copy);
        Result result = plain(copy.host);
        // The driver itself waits for a synchronous copy of registered memory.
        if (result == kSuccess && copy.async) result = end.wait(copy.stream);
        if (result == kSuccess) check.finish(runlog::CopyWay::registered);
        return result;
      }
    }
    if (returns_at_once(copy)) break;
    use.end();
    if (const Result result = end.wait(copy.stream)) return result;
    if (!registrations.try_lease(copy, entry, use)) break;
  }
  use.end();
  return {};
}

/// Makes a linear copy of pageable memory.
Result plain_copy(const LinearCopy& copy, const EntryFrame& entry, Plain plain) {
  const Range range = copy.range();
  for (bool again : {true, false}) {
    if (const Closed closed({&range, 1}); closed) return plain(copy.host);
    Registrations* const registrations = Registrations::started();
    if (!again || registrations == nullptr) break;
    Use use;
    if (!returns_at_once(copy) && can_wait(driver(), copy.stream) &&
        registrations->try_lease(copy, entry, use))
      if (const auto result = registered(*registrations, copy, entry, plain, use)) return *result;
    use.end();
    // A region that contains a small copy serves others, and goes on to do so.
    const auto around = host_ranges().registration_of(range.begin);
    if (around && around->contains(range) && (copy.bytes < kLeastUse || returns_at_once(copy))) break;
    registrations->let_go(range);
  }
  return shadowed(copy, plain);
}

/// Whether a registration on this thread pays: the buffer is used again and again, and enough was copied to
/// be worth a context.
bool pays(Registrations& registrations, const LinearCopy& copy) {
  const bool worth = g_copied.fetch_add(copy.bytes, std::memory_order_relaxed) >= kWorthAContext;
  return worth && (registrations.registers_at_once() || g_history.used(copy.range()));
}

/// Finds or makes a registration for the copy, where that pays. False: the use is recorded.
bool find_lease(Registrations& registrations, const LinearCopy& copy, const EntryFrame& entry, Use& use) {
  const Range range = copy.range();
  if (registrations.registers()) {
    if (registrations.try_lease(copy, entry, use)) return true;
    if (pays(registrations, copy) && !memory_events::brackets().sight.blind() &&
        registrations.has_room(range) && host_ranges().may_register(range) &&
        is_pageable(driver(), copy.host) && has_room_on_stack() && registrations.can_register()) {
      g_history.registered(range);
      return registrations.lease(copy, entry, use);
    }
  }
  registrations.record(copy, entry, use);
  return false;
}

void watch_memory() {
  static const Error refused = [] {
    const Error error = memory_events::add(host_ranges());  // else bars stay
    return error ? error : memory_events::add(g_history);   // else each buffer counts as one that stays
  }();
  static_cast<void>(refused);
}

/// Counts a copy from call to return, where the call returns no sooner than the copy is done.
class Counted {
 public:
  explicit Counted(const LinearCopy& copy) : copy_(copy) {}
  Result as(runlog::CopyWay way, Result result) const {
    if (result == kSuccess)
      copy_counters().add(copy_.direction == Direction::to_device, way, copy_.bytes,
                          monotonic_now() - begin_ - (time_of_checks() - checks_));
    return result;
  }

 private:
  const LinearCopy& copy_;
  const Time begin_ = monotonic_now();
  const Duration checks_ = time_of_checks();
};

/// Makes a copy that is large enough to gain.
Result large_copy(Registrations& registrations, const LinearCopy& copy, const EntryFrame& entry,
                  Plain plain) {
  using runlog::CopyWay;
  const Counted counted(copy);
  watch_memory();
  Use use;
  if (!registrations.acts() || !can_wait(driver(), copy.stream)) {
    registrations.record(copy, entry, use);
  } else {
    if (find_lease(registrations, copy, entry, use))
      if (const auto result = registered(registrations, copy, entry, plain, use))
        return counted.as(CopyWay::registered, *result);
    if (copy.bytes >= kLeastStaged && !returns_at_once(copy))
      if (const auto result = staged_copy(driver(), copy)) return *result;
  }
  const Result result = plain_copy(copy, entry, plain);
  return returns_at_once(copy) ? result : counted.as(CopyWay::plain, result);
}

}  // namespace

Result copy(const LinearCopy& copy, const EntryFrame& entry, Plain plain) {
  // A copy that a graph takes up is made at each of its launches.
  const Range range = copy.range();
  if (copy.async && is_capturing(driver(), copy.stream))
    return pass_for_good({&range, 1}, [&] { return plain(copy.host); });
  // What the program has pinned itself gains nothing.
  Registrations* const registrations =
      copy.bytes < kLeastUse || host_ranges().is_barred(range) ? nullptr : Registrations::running();
  return registrations != nullptr ? large_copy(*registrations, copy, entry, plain)
                                  : plain_copy(copy, entry, plain);
}

namespace {

/// The ranges change, as far as the registry knows: no lease and no registration begins in them.
class Withheld {
 public:
  explicit Withheld(std::span<const Range> ranges) : ranges_(ranges) {
    for (const Range& range : ranges_) memory_events::begin({pages_touched(range)});
  }
  ~Withheld() {
    for (const Range& range : ranges_) memory_events::end(pages_touched(range));
  }
  Withheld(const Withheld&) = delete;
  Withheld& operator=(const Withheld&) = delete;

 private:
  const std::span<const Range> ranges_;
};

/// More than the machine has, or none at all: the driver refuses it, and memory of our own may lie within.
bool is_absurd(Range range) { return !range.empty() && !is_possible(range); }

}  // namespace

Result pass(std::span<const Range> ranges, FunctionRef<Result()> plain) {
  if (std::any_of(ranges.begin(), ranges.end(), is_absurd)) return plain();
  if (const Closed closed(ranges); closed) return plain();
  if (Registrations* const registrations = Registrations::started()) {
    // In a callback of the driver's the call fails, as it does without us.
    if (is_in_callback(driver())) return plain();
    for (const Range& range : ranges) registrations->let_go(range);
    if (const Closed closed(ranges); closed) return plain();
  }
  // Another thread's copy has a lease, until the engine has made it; or the helper is at a region.
  const Withheld withheld(ranges);
  for (;;) {
    for (const Range& range : ranges) Registrations::let_go_at_any_time(range);
    if (const Closed closed(ranges); closed || Registrations::is_broken()) return plain();
    nap();
  }
}

Result pass_for_good(std::span<const Range> ranges, FunctionRef<Result()> plain) {
  watch_memory();
  return pass(ranges, [&] {
    for (const Range& range : ranges) host_ranges().bar(range);
    return plain();
  });
}

void let_doomed_go() {
  if (Registrations* const registrations = Registrations::started()) registrations->let_go({});
}

void unknown_copy(const char* name) {
  Registrations* const registrations = Registrations::running();
  if (registrations == nullptr || !registrations->registers()) return;
  registrations->stop_registering();
  warn("the program may call %s, which this version does not know: copies are staged, never registered",
       name);
}

}  // namespace pinion::cuda
