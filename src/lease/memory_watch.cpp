#include "lease/memory_watch.h"

#include <cerrno>

#include "base/warning.h"
#include "callsite/call_site.h"
#include "device/kernel/shared_files.h"
#include "monitor/memory_events.h"
#include "monitor/userfault.h"

namespace pinion {

void MemoryWatch::begin(const MonitorOptions& options) {
  invalidate_call_sites();  // code may have been unloaded between runs
  keeps_shared_files_ = options.keep_shared_files || !keeps_idle_;
  const StartedMonitor started = memory_events::watch(options.monitor);
  monitor_ = started.monitor;
  if (started.missing) keep_nothing(started.missing);
}

void MemoryWatch::end() { memory_events::leave(); }

Error MemoryWatch::watch(Range range, bool is_held) {
  const Range pages = range.to_pages();
  if (!registers_.load(std::memory_order_relaxed)) {
    registers_.store(true);
    report_keeping_nothing();
  }
  // The helper may learn of the transfer only after the memory has gone again.
  events_.mark(pages);
  if (!keeps_shared_files_ && !is_held && others_can_cut(pages))
    return Error::make(EPERM, "other users can cut the file that is mapped there");
  if (userfaultfd_threads() != 0 && !domains_.may_watch_by_userfaultfd())
    return Error::make(ENOMEM, "watching it by userfaultfd would take mappings that the program may need");
  return monitor_->watch(pages);
}

void MemoryWatch::keep_nothing(const Error& why) {
  if (keeps_nothing_.exchange(true, std::memory_order_acq_rel)) return;
  memory_events::lose_sight();
  if (!keeps_idle_) return;
  why_nothing_ = why;
  unreported_.store(true);
  if (registers_.load()) report_keeping_nothing();
}

void MemoryWatch::report_keeping_nothing() {
  if (!unreported_.exchange(false)) return;
  warn(
      "memory events cannot all be seen (%s): no registration is kept beyond its transfer; "
      "`pinion doctor` shows more",
      why_nothing_.message);
}

void MemoryWatch::check_hooks() {
  if (keeps_nothing()) return;
  if (const Error never = memory_events::regain_sight(*monitor_)) keep_nothing(never);
}

bool MemoryWatch::is_newly_blind(Time now) {
  constexpr Duration kLong = 20 * kSecond;
  if (!blind() || keeps_nothing()) {
    blind_since_ = kNever;
    return false;
  }
  if (blind_since_ == kNever) blind_since_ = now;
  return now - blind_since_ < kLong;
}

void MemoryWatch::report_exposure() {
  exposed_looks_ = monitor_->exposed() ? exposed_looks_ + 1 : 0;
  constexpr int kPassing = 2;  // a library that patches has them open for microseconds
  if (exposed_looks_ != kPassing || !keeps_idle_ || !registers_.load(std::memory_order_relaxed)) return;
  warn(
      "another library leaves libc's code writable, so that memory events may be missed: as "
      "long as it does, no registration is kept beyond its transfer");
}

Answer MemoryWatch::changing(const MemoryChange& change) {
  const ArenaLeases::Met met = arena_.meet(change);
  if (change.is_advice() && met.answer == Answer::done) return Answer::done;
  doom(change.range, !met.dooms);
  events_.post(change.range);
  memory_events_.fetch_add(1, std::memory_order_relaxed);
  return met.answer;
}

void MemoryWatch::code_unloaded() { invalidate_call_sites(); }

void MemoryWatch::doom(Range range, bool spares_arena) {
  std::size_t doomed = 0;
  const void* const spared = spares_arena ? &arena_ : nullptr;
  domains_.for_each([&](DomainSlot& slot) { doomed += slot.domain->doom(range, spared); });
  if (doomed) doomed_bytes_.fetch_add(doomed, std::memory_order_relaxed);
}

}  // namespace pinion
