#include "intercept/cuda/front.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/warning.h"
#include "device/cuda/host_ranges.h"
#include "intercept/cuda/buffer_history.h"
#include "intercept/cuda/copy_check.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/end_of_copy.h"
#include "intercept/cuda/kept.h"
#include "intercept/cuda/registrations.h"
#include "intercept/cuda/shadow.h"
#include "intercept/cuda/stack_room.h"
#include "intercept/cuda/staged_copy.h"
#include "intercept/cuda/submission_gate.h"
#include "lease/copy_counters.h"
#include "monitor/memory_events.h"

namespace pinion::cuda {

namespace {

using Plain = FunctionRef<Result(void* host)>;

/// Smaller copies gain nothing: a single plain one is faster than a registered one (evidence-gpu.md).
constexpr std::size_t kLeastUse = kLeastRegistered;
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

/// Memory that is closed to registration while a call is in the driver. The blocks outlast it.
class Closed {
 public:
  explicit Closed(std::span<const Block> blocks) : blocks_(blocks), closed_(host_ranges().close(blocks)) {}
  ~Closed() {
    if (closed_) host_ranges().open(blocks_);
  }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;
  explicit operator bool() const { return closed_; }

 private:
  const std::span<const Block> blocks_;
  const bool closed_;
};

/// Likewise one run of bytes.
class ClosedRun {
 public:
  explicit ClosedRun(Range range) : block_(range), closed_({&block_, 1}) {}
  explicit operator bool() const { return static_cast<bool>(closed_); }
  std::span<const Block> memory() const { return {&block_, 1}; }

 private:
  const Block block_;
  const Closed closed_;
};

/// The context whose other work the copy keeps out of the driver while it waits; null: none.
Context context_held_by(const LinearCopy& copy) { return copy.async ? nullptr : current_context(driver()); }

/// Makes the copy of memory that is closed to registration.
Result unregistered(const LinearCopy& copy, std::span<const Block> memory, Plain plain) {
  const Kept<SubmissionGate::Entry> gate(submission_gate(), copy.stream, context_held_by(copy));
  const Result result = plain(copy.host);
  if (captures(driver(), copy.stream)) bar_captured(memory);
  return result;
}

Result submit(const LinearCopy& copy, void* host, Plain plain) {
  const Kept<SubmissionGate::Entry> gate(submission_gate(), copy.stream);
  return plain(host);
}

/// The driver gets other memory in place of the program's, of the same kind.
Result shadowed(const LinearCopy& copy, Plain plain) {
  const Kept<Shadow> shadow(copy.bytes);
  if (!*shadow) return kOutOfMemory;
  if (copy.direction == Direction::to_device) {
    shadow->read_from(copy.host);
    return submit(copy, shadow->memory(), plain);
  }
  const Result result = submit(copy, shadow->memory(), plain);  // waits, asynchronous or not
  if (result == kSuccess) shadow->write_to(copy.host);
  return result;
}

/// A captured copy is made at each launch of its graph, of the program's own memory.
Result captured(const LinearCopy& copy, Plain plain) {
  const Kept<Block> block(copy.range());
  return pass_for_good({&*block, 1}, [&] { return submit(copy, copy.host, plain); });
}

/// Makes the copy on a lease, where the calling thread is exclusive and the stream has come to it.
Result leased(const LinearCopy& copy, Plain plain, EndOfCopy& end, SubmissionGate::Exclusive& alone) {
  CopyCheck check(driver(), copy);
  Result result = submit(copy, copy.host, plain);
  // The driver itself waits for a synchronous copy of registered memory.
  if (result == kSuccess && copy.async) {
    end.mark(copy.stream);
    if (!check.chosen()) alone.release_context();
    result = end.wait();
  }
  if (result == kSuccess) check.finish(runlog::CopyWay::registered);
  return result;
}

/// A copy is made after one of these.
enum class After { stream, nothing };

/// Makes the copy where no other thread submits to the stream or has it captured, after what the stream has
/// yet to do if it is to wait for that. Returns `made()`; nothing if it is not to be had so.
template <class Made, class Again>
std::optional<Result> alone_on_stream(const LinearCopy& copy, EndOfCopy& end, After after, Made made,
                                      Again again) {
  for (int tries = 0; tries < 3; ++tries) {
    {
      // No stream joins a capture beside the thread that is exclusive: what is asked here stays true.
      const Kept<SubmissionGate::Exclusive> alone(submission_gate(), driver(), copy.stream,
                                                  current_context(driver()));
      if (!alone->held() || is_capturing(driver(), copy.stream)) return {};
      if (after == After::nothing || end.has_come(copy.stream)) return made(*alone);
      if (returns_at_once(copy)) return {};
      end.mark(copy.stream);
    }
    if (!again()) return {};
  }
  return {};
}

/// Makes the call on a lease, and waits for the copy. The lease is held only while nothing holds the stream
/// back: another thread's call may need the memory, and open the stream after it. Nothing: the copy was not
/// made.
std::optional<Result> registered(Registrations& registrations, const LinearCopy& copy,
                                 const EntryFrame& entry, Plain plain, Use& use) {
  const Kept<EndOfCopy> end(driver());
  if (copy.async && !end->ready()) return {};
  Result waited = kSuccess;
  const std::optional<Result> result = alone_on_stream(
      copy, *end, After::stream,
      [&](SubmissionGate::Exclusive& alone) { return leased(copy, plain, *end, alone); },
      [&] {
        use.end();
        waited = end->wait();
        return waited == kSuccess && registrations.try_lease(copy, entry, use);
      });
  if (result) return result;
  use.end();
  return waited == kSuccess ? std::nullopt : std::optional(waited);
}

/// Makes a copy of memory that others have registered.
Result copy_in_shadow(const LinearCopy& copy, Plain plain) {
  if (can_wait(driver(), copy.stream)) {
    const Kept<EndOfCopy> end(driver());
    const After after = returns_at_once(copy) ? After::nothing : After::stream;
    const auto result = alone_on_stream(
        copy, *end, after, [&](SubmissionGate::Exclusive&) { return shadowed(copy, plain); },
        [&] { return end->wait() == kSuccess; });
    if (result) return *result;
  }
  // A capture may begin at any time, and records the program's memory alone.
  const Kept<Block> block(copy.range());
  return pass({&*block, 1}, [&] { return unregistered(copy, {&*block, 1}, plain); });
}

/// Makes a linear copy of pageable memory.
Result plain_copy(const LinearCopy& copy, const EntryFrame& entry, Plain plain) {
  const Range range = copy.range();
  for (bool again : {true, false}) {
    if (const Kept<ClosedRun> closed(range); *closed) return unregistered(copy, closed->memory(), plain);
    Registrations* const registrations = Registrations::started();
    if (!again || registrations == nullptr) break;
    const Kept<Use> use;
    if (!returns_at_once(copy) && can_wait(driver(), copy.stream) &&
        registrations->try_lease(copy, entry, *use))
      if (const auto result = registered(*registrations, copy, entry, plain, *use)) return *result;
    use->end();
    // A region that contains a small copy serves others, and goes on to do so.
    const auto around = host_ranges().registration_of(range.begin);
    if (around && around->contains(range) && (copy.bytes < kLeastUse || returns_at_once(copy))) break;
    registrations->let_go(range);
  }
  return copy_in_shadow(copy, plain);
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
  if (captures(driver(), copy.stream)) return captured(copy, plain);
  const Counted counted(copy);
  watch_memory();
  const Kept<Use> use;
  if (!registrations.acts() || !can_wait(driver(), copy.stream)) {
    registrations.record(copy, entry, *use);
  } else {
    if (find_lease(registrations, copy, entry, *use))
      if (const auto result = registered(registrations, copy, entry, plain, *use))
        return counted.as(CopyWay::registered, *result);
    if (copy.bytes >= kLeastStaged && !returns_at_once(copy))
      if (const auto result = staged_copy(driver(), copy)) return *result;
  }
  const Result result = plain_copy(copy, entry, plain);
  return returns_at_once(copy) ? result : counted.as(CopyWay::plain, result);
}

}  // namespace

Result copy(const LinearCopy& copy, const EntryFrame& entry, Plain plain) {
  // Memory that the program has pinned itself gains nothing.
  Registrations* const registrations =
      copy.bytes < kLeastUse || host_ranges().is_barred(copy.range()) ? nullptr : Registrations::running();
  return registrations != nullptr ? large_copy(*registrations, copy, entry, plain)
                                  : plain_copy(copy, entry, plain);
}

namespace {

/// Registrations that stand in a call's way: they change, as far as the registry knows. So no lease and no
/// registration begins in their memory until the call has been made.
class Withheld {
 public:
  Withheld() = default;
  ~Withheld() {
    for (const Range& range : ranges_) memory_events::end(pages_touched(range));
  }
  Withheld(const Withheld&) = delete;
  Withheld& operator=(const Withheld&) = delete;

  void add(Range range) {
    if (std::find(ranges_.begin(), ranges_.end(), range) != ranges_.end()) return;
    ranges_.push_back(range);
    memory_events::begin({pages_touched(range)});
  }

 private:
  std::vector<Range> ranges_;
};

/// pass(), of blocks in order.
Result pass_in_order(std::span<const Block> blocks, FunctionRef<Result()> plain) {
  if (const Kept<Closed> closed(blocks); *closed) return plain();
  if (Registrations* const registrations = Registrations::started()) {
    // In a callback of the driver's the call fails, as it does without us.
    if (is_in_callback(driver())) return plain();
    for (const Range& range : host_ranges().registrations_in(blocks)) registrations->let_go(range);
    if (const Kept<Closed> closed(blocks); *closed) return plain();
  }
  // Another thread's copy has a lease, until the engine has made it; or the helper is at a region.
  const Kept<Withheld> withheld;
  for (;;) {
    for (const Range& range : host_ranges().registrations_in(blocks)) {
      withheld->add(range);
      Registrations::let_go_at_any_time(range);
    }
    if (const Kept<Closed> closed(blocks); *closed || Registrations::is_broken()) return plain();
    nap();
  }
}

}  // namespace

Result pass(std::span<Block> blocks, FunctionRef<Result()> plain) {
  return pass_in_order(order(blocks), plain);
}

Result pass_for_good(std::span<Block> blocks, FunctionRef<Result()> plain) {
  watch_memory();
  const std::span<const Block> ordered = order(blocks);
  return pass_in_order(ordered, [&] {
    host_ranges().bar(ordered);
    return plain();
  });
}

void bar_captured(std::span<const Block> blocks) {
  watch_memory();
  host_ranges().bar(blocks);
}

void let_doomed_go() {
  if (Registrations* const registrations = Registrations::started()) registrations->let_go({});
}

void unknown_copy(const char* name) {
  Registrations::only_stage();
  Registrations* const registrations = Registrations::running();
  if (registrations == nullptr || !registrations->registers()) return;
  registrations->stop_registering();
  warn("the program may call %s, which this version does not know: copies are staged, never registered",
       name);
}

}  // namespace pinion::cuda
