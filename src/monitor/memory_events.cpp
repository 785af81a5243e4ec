#include "monitor/memory_events.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/held_signals.h"
#include "base/process_mutex.h"
#include "monitor/held_back.h"
#include "monitor/libc_hooks.h"
#include "monitor/loader.h"

namespace pinion::memory_events {

namespace {

constinit Brackets g_brackets;
constinit BasicSinkArray<MemorySink> g_sinks;
constinit BasicHeldBack<> g_held_back;
constinit ProcessMutex g_carrying;  ///< one thread at a time carries out unmappings

constinit ProcessMutex g_control;  ///< guards the following, except reading the atomics
constinit std::atomic<MemoryMonitor*> g_monitor{nullptr};
MemoryMonitor* g_staying GUARDED_BY(g_control) = nullptr;  ///< the monitor that leave() passes by
constinit std::atomic<bool> g_never_sees{false};           ///< sight is lost until the next watch(), because:
constinit Error g_unseen GUARDED_BY(g_control);
/// Other code was patching while the self-test ran: events have not been proved to arrive.
constinit std::atomic<bool> g_untested{false};

Answer ask_sinks(const MemoryChange& change) {
  Answer answer = Answer::proceed;
  g_sinks.for_each([&](MemorySink& sink) {
    const Answer one = sink.changing(change);
    if (!change.takes(one)) return;
    if (one == change.alternative || answer == Answer::proceed) answer = one;
  });
  return answer;
}

/// Whether the unmapping is over. The memory stays where a sink holds it still, and where the kernel refuses.
bool carry_out_in_bracket(Range range) {
  g_brackets.open(range);
  const Answer answer = ask_sinks({range, Answer::hold_back, ChangeKind::unmap});
  const bool gone = answer == Answer::done || (answer == Answer::proceed && unmap_held_back(range));
  end(range);
  return gone;
}

MappingWish wish(std::size_t bytes) {
  MappingWish wish;
  g_sinks.for_each([&](MemorySink& sink) {
    if (wish.alignment == 0) wish = sink.wish(bytes);
  });
  return wish;
}

void code_unloaded() {
  g_sinks.for_each([](MemorySink& sink) { sink.code_unloaded(); });
}

constexpr HookCallbacks kCallbacks{
    .begin = begin,
    .end = end,
    .exposed = lose_sight,
    .wish = wish,
    .appeared = appeared,
    .bracketed = [](Range range) { return g_brackets.opened_by_another(range); },
    .unloaded = code_unloaded,
};

/// The child's only thread needs no lock.
void forget_parent() NO_THREAD_SAFETY_ANALYSIS {
  g_brackets.forget_other_threads();
  g_held_back.forget_all();
  g_monitor.store(g_staying, std::memory_order_relaxed);
}

bool is_staying(const MemoryMonitor& monitor) REQUIRES(g_control) {
  return g_staying != nullptr && &g_staying->chosen() == &monitor.chosen();
}

/// Makes regain_sight() give up at once, for this reason or an earlier one.
Error give_up(const Error& unseen) {
  const ProcessLock lock(g_control);
  if (!g_never_sees.exchange(true, std::memory_order_acq_rel)) g_unseen = unseen;
  return g_unseen;
}

/// Whether this failure comes of other code that patches, or has patched since `sight` was looked at: a later
/// look may find all in place.
bool is_passing(const Error& failure, const MemoryMonitor& monitor, Sight::Look sight) {
  return failure.code == EAGAIN || monitor.exposed() || g_brackets.sight.changed_since(sight);
}

Error earlier_reason() {
  const ProcessLock lock(g_control);
  return g_unseen;
}

}  // namespace

// ---- hooks ----

Answer begin(const MemoryChange& change) {
  g_brackets.open(change.range);
  const Answer wanted = ask_sinks(change);
  const bool instead = wanted == Answer::done || wanted == Answer::copy;
  const Answer answer = g_held_back.answer_to(change, instead ? Answer::proceed : wanted);
  if (!instead || answer != Answer::proceed) return answer;
  if (change.kind == ChangeKind::unmap)
    g_sinks.for_each([&](MemorySink& sink) { sink.unmapped(change.range); });
  return wanted;
}

void end(Range range) {
  g_brackets.close(range);
  g_sinks.for_each([&](MemorySink& sink) { sink.changed(range); });
}

void appeared(const NewMapping& mapping) {
  g_held_back.forget(mapping.range);
  g_sinks.for_each([&](MemorySink& sink) { sink.appeared(mapping); });
}

void lose_sight() {
  g_brackets.sight.lost();
  constexpr Range kEverything{0, ~Address{0}};
  g_brackets.open(kEverything);
  ask_sinks({kEverything});
  end(kEverything);
}

const Brackets& brackets() { return g_brackets; }

// ---- sinks ----

Error add(MemorySink& sink) {
  if (g_sinks.add(sink)) return {};
  return Error::make(ENOSPC, "too many receivers of memory events in this process");
}

void remove(MemorySink& sink) { g_sinks.remove(sink); }

std::size_t carry_out() {
  const HeldSignals held;
  const ProcessLock lock(g_carrying);
  g_held_back.carry_out(carry_out_in_bracket);
  return g_held_back.count();
}

// ---- the monitor ----

StartedMonitor watch(MonitorKind kind) {
  const HeldSignals held;
  const ProcessLock lock(g_control);
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_parent); });
  g_brackets.sight.lost();
  const auto sight = g_brackets.sight.look();
  // Under every monitor, because sinks must know that code goes. An error concerns memory events only under
  // the monitors of libc, which report it.
  static_cast<void>(watch_loader(kCallbacks));
  StartedMonitor started = start_monitor(kind, kCallbacks);
  const bool untested = started.missing && is_passing(started.missing, *started.monitor, sight);
  g_untested.store(untested, std::memory_order_release);
  if (untested) started.missing = {};
  g_unseen = started.missing;
  g_never_sees.store(static_cast<bool>(started.missing), std::memory_order_release);
  if (!untested && !started.missing && started.monitor->knows_code()) g_brackets.sight.regained(sight);
  g_monitor.store(started.monitor, std::memory_order_release);
  return started;
}

void leave() {
  const HeldSignals held;
  const ProcessLock lock(g_control);
  MemoryMonitor* const left = g_monitor.exchange(g_staying, std::memory_order_acq_rel);
  if (left == nullptr || is_staying(*left)) return;
  left->stop();
  if (g_staying == nullptr) unwatch_loader();
}

void stay() {
  const HeldSignals held;
  const ProcessLock lock(g_control);
  g_staying = g_monitor.load(std::memory_order_relaxed);
}

MemoryMonitor* monitor() { return g_monitor.load(std::memory_order_acquire); }

Error regain_sight(MemoryMonitor& monitor) {
  auto sight = g_brackets.sight.look();
  if (!sight.blind() && monitor.intact()) [[likely]]
    return {};
  const HeldSignals held;
  if (g_never_sees.load(std::memory_order_acquire)) return earlier_reason();
  // A library loaded since (UCX, for one) has put its own hooks over ours, or may have. Events went by
  // meanwhile: all earlier registrations are in doubt.
  if (!sight.blind()) {
    lose_sight();  // overwritten in a way that the hooks did not notice
    sight = g_brackets.sight.look();
  }
  // Only when they are done; asked after the look that has to hold.
  if (monitor.exposed() || loader_unloading() || !monitor.knows_code()) return {};
  HookReport report = monitor.repair();
  if (report.complete && g_untested.load(std::memory_order_acquire)) report = monitor.self_test();
  if (!report.complete) return is_passing(report.error, monitor, sight) ? Error{} : give_up(report.error);
  g_untested.store(false, std::memory_order_release);
  g_brackets.sight.regained(sight);
  return {};
}

}  // namespace pinion::memory_events
