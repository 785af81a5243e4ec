#include "predict/adaptive.h"

#include <algorithm>

#include "predict/profile.h"

namespace pinion {

namespace {
// Own errors that a buffer needs until it stops borrowing those of others. A margin is kept while less than
// one of so many is new.
constexpr std::size_t kEnoughErrors = 8;
constexpr std::size_t kMostHeld = 32;
constexpr std::size_t kStepsPerEvent = 6, kMostCredit = 2 * LookAhead::kMostSteps;
// A buffer is looked for this many times the events between its uses ahead, and at least kLeastReach events.
constexpr std::uint64_t kReach = 3, kLeastReach = 64;
}  // namespace

Margin best_margin(std::span<const float> errors, Duration worth, std::size_t own) {
  const std::size_t n = errors.size();
  if (n == 0) return {worth, 0, 0.5, 0};
  // Giving up readiness costs as much as being late for certain.
  Margin best{worth, Margin::kNotReady, 1, own / kEnoughErrors};
  const double late = static_cast<double>(worth);
  double least = late;
  // Being ready for all but the k earliest of them; of those that are to come, one in 2 n is earlier still.
  // Held in vain, in the mean: from then to the use.
  const double one_of_all = 1 / (static_cast<double>(n) + 0.5), mean = 1 / static_cast<double>(n);
  // A use that comes later than that is waited for in vain, and late all the same.
  const double most = 2 * late;
  double sum = 0;  // of the errors from the k-th on
  std::size_t k = n;
  // The margin is zero for all of these.
  const auto cut = static_cast<float>(most);
  for (; k > 1 && errors[k - 2] > 0; --k) sum += static_cast<double>(std::min(errors[k - 1], cut));
  while (k-- > 0) {
    const double error = std::min(static_cast<double>(errors[k]), most), by = std::max(0.0, -error);
    sum += error;
    const double held = std::max(0.0, sum + by * static_cast<double>(n - k)) * mean;
    if (held >= least) break;  // and from here on it only grows
    const double risk = (static_cast<double>(k) + 0.5) * one_of_all, cost = held + risk * late;
    if (cost >= least) continue;
    least = cost;
    best.by = nearest(by);
    best.risk = risk;
  }
  return best;
}

// ---- learning ----

Observed AdaptivePredictor::observe(const Use& use) {
  sooner_ = 0;
  moved_.clear();
  Thread& thread = grown(threads_, use.thread);
  Buffer& buffer = buffer_of(use);
  if (use.continues) {
    buffer.end = std::max(buffer.end, use.end);
    return {kNever, next_use(use.buffer, use.time)};
  }
  Observed observed;
  const bool is_new = buffer.uses == 0;
  if (!is_new) {
    observed.foreseen = judge(buffer, use);
    if (const Duration interval = use.time - buffer.last; interval > 0)
      for (const std::uint64_t context : buffer.contexts) reuses_.insert(context).learn(interval);
    if (buffer.thread == use.thread) buffer.gap = thread.events - buffer.event;
  }
  buffer.thread = use.thread;
  ++buffer.uses;
  buffer.last = use.time;
  buffer.end = use.end;
  buffer.event = thread.events;

  arrive(thread, use, {{use.site, buffer.key}, use.buffer, is_new});
  if (is_new && profiled_) meet(thread, use.buffer);
  find_next(thread, use.buffer);
  buffer.chain_at_release = chain_next(buffer, use.time);
  choose_reuse(thread, buffer);
  thread.anchors[thread.events % thread.anchors.size()] = {use.end, thread.ahead.base(),
                                                           thread.ahead.generation(), thread.events};
  ++thread.events;
  observed.next = next_use(buffer, use.time, buffer.chain_at_release);
  return observed;
}

AdaptivePredictor::Buffer& AdaptivePredictor::buffer_of(const Use& use) {
  Buffer& buffer = grown(buffers_, use.buffer);
  if (buffer.live) return buffer;
  buffer.live = true;
  buffer.loss = loss_;
  // The n-th buffer of this size that this site is the first to use.
  std::uint32_t& n = first_used_.insert(mix(6, use.site));
  do {
    buffer.key = mix(mix(mix(4, use.site), use.pages), ++n);
  } while (!by_key_.try_emplace(buffer.key, use.buffer).second);
  return buffer;
}

void AdaptivePredictor::forget(BufferId id) {
  if (id >= buffers_.size() || !buffers_[id].live) return;
  by_key_.erase(buffers_[id].key);
  buffers_[id] = {};
}

Time AdaptivePredictor::judge(Buffer& buffer, const Use& use) {
  const auto interval = static_cast<float>(use.time - buffer.last);
  Horizon horizon{};
  const Time chain_last = chain_at(buffer, use.time - use.lead, horizon);
  const Time believed_last = believed(buffer, horizon, chain_last, buffer.reuse_at);
  const auto loss_of = [&](Time predicted) {
    return predicted == kNever ? 1.0f : prediction_loss(static_cast<float>(predicted - use.time), interval);
  };
  const float by_reuse = loss_of(buffer.reuse_at), by_chain = loss_of(chain_last);
  const Four loss = {chain_last == buffer.chain_at_release ? by_chain : loss_of(buffer.chain_at_release),
                     by_reuse, by_chain, by_reuse};
  buffer.loss.learn(loss, 1.0f / 16);
  loss_.learn(loss, 1.0f / 64);
  if (believed_last == kNever || interval <= 0) return believed_last;
  const auto error = static_cast<float>(use.time - believed_last);
  buffer.errors.add(error);
  shares_.add(error / interval);
  // One error among many hardly moves the margin, except where it went beyond.
  Margin& margin = buffer.margin;
  const bool beyond = margin.ready() && nearest(error) < -margin.by;
  if (beyond || margin.errors == 0)
    margin = {};
  else
    --margin.errors;
  return believed_last;
}

void AdaptivePredictor::choose_reuse(Thread& thread, Buffer& buffer) {
  const Contexts& contexts = thread.held.back().contexts;
  buffer.contexts = {mix(5, buffer.key), mix(contexts[kCurrentContext], buffer.key),
                     mix(contexts[kRunContext], buffer.key)};
  buffer.reuse_at = kNever;
  float least = 0;
  for (unsigned kind = 0; kind < kReuseContexts; ++kind) {
    const Interval* known = reuses_.find(buffer.contexts[kind]);
    if (!known || !known->known()) continue;
    const float loss = known->loss();
    if (buffer.reuse_at != kNever && loss >= least) continue;
    buffer.reuse_at = buffer.last + known->expected();
    least = loss;
  }
}

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
  hold(thread, held);
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
  const Held& held = thread.held.front();
  if (thread.begun) model_.learn(thread.contexts, held.event, held.time - thread.time);
  thread.begun = true;
  thread.position.advance(held.event.name);
  thread.contexts = held.contexts;
  thread.time = held.time;
  const bool expected = held.step != LookAhead::kNone && held.generation == thread.ahead.generation();
  const std::uint64_t step = held.step;
  thread.held.erase(thread.held.begin());
  if (!expected) return;
  // Earlier expected events that are still missing were left out.
  for (std::uint64_t i = step; i > thread.passed && step - i < LookAhead::kTolerance;) pass(thread, --i);
  thread.passed = std::max(thread.passed, step);
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

void AdaptivePredictor::hold(Thread& thread, const Held& held) {
  std::vector<Held>& all = thread.held;
  auto first = all.end();
  if (!all.empty() && held.time < all.back().time) {
    // It was passed over, which changes the contexts of those behind it.
    thread.newest = thread.position;
    for (first = all.begin(); first->time <= held.time; ++first) thread.newest.advance(first->event.name);
  }
  for (first = all.insert(first, held); first != all.end(); ++first) {
    thread.newest.advance(first->event.name);
    first->contexts = thread.newest.contexts();
  }
}

// ---- the walk ahead ----

void AdaptivePredictor::restart(Thread& thread) {
  std::uint64_t steps = thread.ahead.tail() - thread.ahead.head();
  thread.ahead.restart(thread.newest, thread.held.back().time);
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
  expect(thread, ahead.tail() - 1);
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

// ---- predicting ----

Time AdaptivePredictor::chain_next(const Buffer& buffer, Time after) const {
  const LookAhead& ahead = threads_[buffer.thread].ahead;
  if (buffer.plan.generation == 0 || buffer.plan.generation != ahead.generation()) return kNever;
  for (std::uint64_t i = buffer.plan.step; i != LookAhead::kNone && ahead.holds(i); i = ahead[i].next_same) {
    const Time time = ahead.base() + ahead[i].at;
    if (time > after) return time;
  }
  return kNever;
}

/// The answer of chain_next() at `moment` about the use that is expected now.
Time AdaptivePredictor::chain_at(const Buffer& buffer, Time moment, Horizon& horizon) const {
  const Thread& thread = threads_[buffer.thread];
  horizon = at_release;
  moment = std::max(moment, buffer.end);
  const std::uint64_t oldest =
      thread.events > thread.anchors.size() ? thread.events - thread.anchors.size() : 0;
  for (std::uint64_t i = thread.events; i-- > std::max(oldest, buffer.event);) {
    const Anchor& anchor = thread.anchors[i % thread.anchors.size()];
    if (anchor.known > moment) continue;
    if (anchor.event == buffer.event) return buffer.chain_at_release;
    horizon = at_last;
    const Plan& plan = buffer.plan;
    return plan.generation != 0 && plan.generation == anchor.generation ? anchor.base + plan.at : kNever;
  }
  return buffer.chain_at_release;
}

AdaptivePredictor::Horizon AdaptivePredictor::horizon_of(const Buffer& buffer) const {
  return threads_[buffer.thread].events <= buffer.event + 1 ? at_release : at_last;
}

Time AdaptivePredictor::believed(const Buffer& buffer, Horizon horizon, Time chain_says,
                                 Time reuse_says) const {
  if (chain_says == kNever) return reuse_says;
  if (reuse_says == kNever) return chain_says;
  // The chain wins in doubt: it sees more than the buffer's own past.
  return buffer.loss.of(horizon, reuse) < 0.85f * buffer.loss.of(horizon, chain) ? reuse_says : chain_says;
}

Time AdaptivePredictor::next_use(BufferId id, Time after) const {
  if (id >= buffers_.size() || buffers_[id].uses == 0) return kNever;
  return next_use(buffers_[id], after, chain_next(buffers_[id], after));
}

Time AdaptivePredictor::next_use(const Buffer& buffer, Time after, Time chain_says) const {
  return believed(buffer, horizon_of(buffer), chain_says, reuse_next(buffer, after));
}

const Margin& AdaptivePredictor::margin_of(const Buffer& buffer, Duration worth) const {
  Margin& margin = buffer.margin;
  if (margin.worth == worth) return margin;
  // While a buffer has few errors of its own, those of all others count, in proportion to its interval.
  std::array<float, kEnoughErrors> of_others, mixed;
  std::span<const float> errors = buffer.errors.sorted();
  const std::size_t n = errors.size();
  if (n < kEnoughErrors && shares_.size() > 0 && buffer.reuse_at != kNever) {
    const auto shares = shares_.sorted();
    const auto interval = static_cast<float>(buffer.reuse_at - buffer.last);
    const std::size_t borrowed = std::min(kEnoughErrors - n, shares.size());  // each once
    for (std::size_t i = 0; i < borrowed; ++i)
      of_others[i] = interval * shares[(2 * i + 1) * shares.size() / (2 * borrowed)];
    std::merge(errors.begin(), errors.end(), of_others.begin(),
               of_others.begin() + static_cast<std::ptrdiff_t>(borrowed), mixed.begin());
    errors = {mixed.data(), n + borrowed};
  }
  margin = best_margin(errors, worth, buffer.errors.size());
  return margin;
}

Estimate AdaptivePredictor::estimate(BufferId id, Time after, Duration worth) const {
  Estimate estimate;
  if (id >= buffers_.size() || buffers_[id].uses == 0) return estimate;
  const Buffer& buffer = buffers_[id];
  const Time chain_says = chain_next(buffer, after);
  estimate.until = std::min(chain_says, reuse_next(buffer, after));
  estimate.time = next_use(buffer, after, chain_says);
  if (estimate.time == kNever) return estimate;
  const Margin& margin = margin_of(buffer, worth);
  estimate.early = margin.ready() ? estimate.time - margin.by : kNever;
  estimate.risk = margin.risk;
  // An event chain that leads to it has done so before. A buffer announced by its own past alone may have
  // been used for the last time.
  const double reuses = buffer.uses - 1;
  estimate.reuse = chain_says != kNever ? 1 : std::max(0.0, reuses - 1) / std::max(1.0, reuses);
  return estimate;
}

// ---- profile ----

std::string AdaptivePredictor::profile() const {
  Profile profile;
  model_.for_each([&](std::uint64_t context, const EventName& next, Duration after, float right) {
    profile.transitions.push_back({context, next.site, next.buffer, after, static_cast<double>(right)});
  });
  reuses_.for_each([&](std::uint64_t context, const Interval& interval) {
    if (interval.known() && interval.expected() > 0) profile.reuses.push_back({context, interval.expected()});
  });
  return profile.to_bytes();
}

Error AdaptivePredictor::load_profile(const std::string& bytes) {
  Profile profile;
  if (Error error = profile.from_bytes(bytes)) return error;
  profiled_ = true;
  for (const auto& transition : profile.transitions)
    model_.assume(transition.context, {transition.site, transition.buffer}, transition.after_ns,
                  static_cast<float>(transition.right));
  for (const auto& reuse : profile.reuses) reuses_.insert(reuse.context).assume(reuse.after_ns);
  return {};
}

}  // namespace pinion
