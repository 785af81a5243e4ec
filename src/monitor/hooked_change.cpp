#include "monitor/hooked_change.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>

#include "base/assert.h"
#include "monitor/hook_self_test.h"
#include "monitor/own_process.h"
#include "monitor/patch_exposure.h"

namespace pinion {
namespace {

constinit std::atomic<Answer (*)(const MemoryChange&)> callback_begin{nullptr};
constinit std::atomic<void (*)(Range)> callback_end{nullptr};
constinit std::atomic<MappingWish (*)(std::size_t)> callback_wish{nullptr};
constinit std::atomic<void (*)(const NewMapping&)> callback_appeared{nullptr};

/// The answer to the beginning of an event. An answer that the call cannot follow becomes `proceed`.
Answer begin_event(const MemoryChange& change, Answer (*begin)(const MemoryChange&)) {
  note_change_of_code(change.range);
  const Answer answer = begin == nullptr ? Answer::proceed : begin(change);
  event_watch.note_begin(change.range);
  const bool possible =
      change.takes(answer) || (answer == Answer::refuse && change.alternative == Answer::hold_back);
  return possible ? answer : Answer::proceed;
}

bool copy_contents(Range from, Address to) {
  while (!from.empty()) {
    const long bytes = read_memory(from.begin, reinterpret_cast<void*>(to), from.bytes());
    if (is_error(bytes) || bytes == 0) return false;
    from.begin += static_cast<std::size_t>(bytes);
    to += static_cast<std::size_t>(bytes);
  }
  return true;
}

}  // namespace

void report_changes_to(const HookCallbacks& callbacks) {
  callback_end.store(callbacks.end, std::memory_order_relaxed);
  callback_begin.store(callbacks.begin, std::memory_order_release);
  callback_wish.store(callbacks.wish, std::memory_order_release);
  callback_appeared.store(callbacks.appeared, std::memory_order_release);
}

void stop_reporting_changes() {
  callback_begin.store(nullptr, std::memory_order_release);
  callback_wish.store(nullptr, std::memory_order_release);
  callback_appeared.store(nullptr, std::memory_order_release);
}

HookedChange::HookedChange(long system_call, const SystemCallArguments& arguments,
                           const ConcernedMemory& memory)
    : ranges_{memory.first, memory.second} {
  // report_changes_to() publishes end before begin, so a thread that finds a begin has its end.
  const auto begin = callback_begin.load(std::memory_order_acquire);
  if (begin != nullptr) end_ = callback_end.load(std::memory_order_relaxed);
  const Answer alternative = alternative_to(system_call);
  const ChangeKind kinds[] = {change_kind(system_call, arguments), ChangeKind::other};
  while (begun_ < 2 && answer_ == Answer::proceed) {
    const Range& range = ranges_[begun_];
    const ChangeKind kind = kinds[begun_++];
    if (!range.empty()) answer_ = begin_event({range, alternative, kind}, begin);
    if (answer_ != Answer::copy) continue;
    copies_ = true;
    answer_ = Answer::proceed;
  }
}

HookedChange::~HookedChange() {
  PINION_ASSERT(begun_ <= 2);
  while (begun_ > 0) {
    const Range& range = ranges_[--begun_];
    if (range.empty()) continue;
    event_watch.note_end(range);
    if (end_ != nullptr) end_(range);
  }
}

long copy_memory(Range memory) {
  const long copy = raw_system_call(
      SYS_mmap, arguments_of(0L, memory.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (is_error(copy)) return -ENOMEM;
  if (copy_contents(memory, static_cast<Address>(copy))) return copy;
  drop_copy(copy, memory);
  return -ENOMEM;
}

void drop_copy(long copy, Range memory) { raw_system_call(SYS_munmap, arguments_of(copy, memory.bytes())); }

MappingWish wish_for(const SystemCallArguments& arguments) {
  const auto wish = callback_wish.load(std::memory_order_acquire);
  if (wish == nullptr || !maps_plainly(arguments)) return {};
  return wish(page_ceil(static_cast<std::size_t>(arguments[1])));
}

void report_appeared(long system_call, const SystemCallArguments& arguments, long result, Range tail) {
  const auto appeared = callback_appeared.load(std::memory_order_acquire);
  if (appeared == nullptr) return;
  NewMapping mapping = appeared_memory(system_call, arguments, result);
  mapping.tail = tail;
  if (!mapping.range.empty()) appeared(mapping);
}

}  // namespace pinion
