// The event stream of a thread in AdaptivePredictor: events are put in order, learnt from, and compared with
// the walk ahead, which is led on.
#include <algorithm>

#include "predict/adaptive.h"

namespace pinion {

namespace {
constexpr std::size_t kMostHeld = 32;
constexpr std::size_t kStepsPerEvent = 6, kMostCredit = 2 * LookAhead::kMostSteps;
// A buffer is looked for this many times the events between its uses ahead, and at least kLeastReach events.
constexpr std::uint64_t kReach = 3, kLeastReach = 64;
}  // namespace

// ---- events ----

void AdaptivePredictor::arrive(Thread& thread, const Use& use, const EventModel::Event& event) {
  thread.credit = std::min(thread.credit + kStepsPerEvent, kMostCredit);
  // Held events that ended before this one began are put in order now; the others stay held.
  while (!thread.held.empty() && (thread.held.front().end <= use.time || thread.held.size() >= kMostHeld))
    put_next_in_order(thread);

  LookAhead& ahead = thread.ahead;
  Held held{event, use.time, use.end, LookAhead::kNone, ahead.generation()};
  const std::uint64_t head = ahead.head();
  // One that began before another that has come was passed over; any other is one of the next.
  if (!thread.held.empty() && use.time < thread.held.back().time)
    held.step = ahead.overdue(event.name, event.is_new);
  if (held.step != LookAhead::kNone) {
    ahead[held.step].seen = true;
  } else {
    held.step = ahead.expected(event.name, event.is_new, use.time);
    if (held.step != LookAhead::kNone) sooner_ = ahead.anchor(held.step, use.time);
  }
  const std::uint64_t step = held.step;
  const auto later = std::upper_bound(thread.held.begin(), thread.held.end(), use.time,
                                      [](Time time, const Held& other) { return time < other.time; });
  thread.held.insert(later, held);
  thread.newest.known = false;
  if (step == LookAhead::kNone) {
    restart(thread);
    return;
  }
  Buffer& buffer = buffers_[event.buffer];
  if (buffer.plan.generation == ahead.generation() && buffer.plan.step <= step)
    plan(buffer, ahead, ahead[step].next_same);
  // Events passed over too long ago are given up.
  for (std::uint64_t i = head; i < ahead.head(); ++i) {
    if (i >= LookAhead::kTolerance) pass(thread, i - LookAhead::kTolerance);
  }
}

void AdaptivePredictor::put_next_in_order(Thread& thread) {
  const Held held = thread.held.front();
  thread.held.erase(thread.held.begin());
  // Mostly it was the only one held, and its consequences were worked out when it came.
  Newest& newest = thread.newest;
  const bool only = newest.known && thread.held.empty();
  newest.known = false;
  if (thread.begun) model_.learn(thread.contexts, held.event, held.time - thread.time);
  thread.begun = true;
  thread.position.advance(held.event.name);
  thread.contexts = only ? newest.contexts : thread.position.contexts();
  thread.time = held.time;
  // Earlier expected events that are still missing were left out.
  if (held.step == LookAhead::kNone || held.generation != thread.ahead.generation()) return;
  for (std::uint64_t i = held.step; i > thread.passed && held.step - i < LookAhead::kTolerance;)
    pass(thread, --i);
  thread.passed = std::max(thread.passed, held.step);
}

/// Ends all expectation at a step that was passed over.
void AdaptivePredictor::pass(Thread& thread, std::uint64_t i) {
  LookAhead& ahead = thread.ahead;
  if (!ahead.holds(i) || ahead[i].seen || i >= ahead.head()) return;
  LookAhead::Step& step = ahead[i];
  step.seen = true;
  if (!step.live) return;
  Buffer& buffer = buffers_[step.buffer];
  if (buffer.plan.generation != ahead.generation() || buffer.plan.step != i || buffer.key != step.name.buffer)
    return;
  plan(buffer, ahead, step.next_same);
  moved_.push_back(step.buffer);
}

const AdaptivePredictor::Newest& AdaptivePredictor::newest(Thread& thread) {
  Newest& newest = thread.newest;
  if (newest.known) return newest;
  newest.known = true;
  newest.position = thread.position;
  for (const Held& held : thread.held) newest.position.advance(held.event.name);
  newest.contexts = newest.position.contexts();
  return newest;
}

// ---- the walk ahead ----

void AdaptivePredictor::restart(Thread& thread) {
  std::uint64_t steps = thread.ahead.tail() - thread.ahead.head();
  thread.ahead.restart(newest(thread).position, thread.held.back().time);
  // All plans are made anew.
  while (steps-- > 0 && walk(thread)) {
  }
}

bool AdaptivePredictor::walk(Thread& thread) {
  if (thread.credit == 0) return false;
  --thread.credit;
  LookAhead& ahead = thread.ahead;
  LookAhead::Step* step = ahead.extend(model_);
  if (!step) return false;
  if (step->buffer >= buffers_.size() || buffers_[step->buffer].key != step->name.buffer) {
    const auto at = by_key_.find(step->name.buffer);
    if (at == by_key_.end()) return true;  // a new one, or one that is gone
    step->buffer = at->second;
  }
  expect(thread, ahead.last());
  return true;
}

/// Step `i`, the last one so far of a buffer that is known.
void AdaptivePredictor::expect(Thread& thread, std::uint64_t i) {
  LookAhead& ahead = thread.ahead;
  const BufferId id = ahead[i].buffer;
  ahead[i].live = true;
  Buffer& buffer = buffers_[id];
  if (&threads_[buffer.thread] != &thread) return;
  if (buffer.walked_in == ahead.generation() && ahead.holds(buffer.walked_to))
    ahead[buffer.walked_to].next_same = i;
  buffer.walked_in = ahead.generation();
  buffer.walked_to = i;
  if (buffer.plan.generation != ahead.generation()) {
    plan(buffer, ahead, i);
    moved_.push_back(id);
  }
}

/// A buffer that so far was only in a profile has come. Steps already walked may expect it, too.
void AdaptivePredictor::meet(Thread& thread, BufferId id) {
  LookAhead& ahead = thread.ahead;
  for (std::uint64_t i = ahead.head(); i < ahead.tail(); ++i) {
    if (ahead[i].live || ahead[i].name.buffer != buffers_[id].key) continue;
    ahead[i].buffer = id;
    expect(thread, i);
  }
}

void AdaptivePredictor::plan(Buffer& buffer, const LookAhead& ahead, std::uint64_t step) {
  buffer.plan = step == LookAhead::kNone ? Plan{} : Plan{ahead.generation(), step, ahead[step].at};
}

void AdaptivePredictor::find_next(Thread& thread, BufferId id) {
  const Buffer& buffer = buffers_[id];
  if (buffer.uses < 2 && !profiled_) return;  // its first return is still to come
  const LookAhead& ahead = thread.ahead;
  const std::uint64_t reach = std::max(kLeastReach, kReach * buffer.gap);
  while (buffer.plan.generation != ahead.generation() && ahead.tail() - ahead.head() < reach &&
         walk(thread)) {
  }
}

}  // namespace pinion
