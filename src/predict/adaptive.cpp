#include "predict/adaptive.h"

#include <algorithm>
#include <cmath>

#include "predict/profile.h"

namespace pinion {

namespace {
constexpr std::size_t kMostHeld = 32;
constexpr std::size_t kStepsPerEvent = 6, kMostCredit = 2 * LookAhead::kMostSteps;
// A buffer is looked for this many times the events between its uses ahead, and at least kLeastReach events.
constexpr std::uint64_t kReach = 3, kLeastReach = 64;
// Own errors that a buffer needs until it stops borrowing those of others.
constexpr std::size_t kEnoughErrors = 8;
// A stream is steady after so many events that came as expected. Then one in so many is learnt from in all
// contexts, and one in so many by the context that predicted it.
constexpr std::uint32_t kSteady = 64, kSample = 16, kConfirmed = 4;
// The error, as a share of the time since the event before, from which an event counts as unexpected.
constexpr double kWrong = 0.1;
// A margin is kept while its share of the errors is new.
constexpr std::size_t kRenewed = 8;
// A margin: being ready costs more than it saves.
constexpr Duration kNotReady = INT64_MIN;

std::uint64_t site_key(std::uint64_t site) { return mix(6, site); }  // a nonzero one even for a nameless site
}  // namespace

// ---- learning ----

Observed AdaptivePredictor::observe(const Use& use) {
  sooner_ = 0;
  moved_.clear();
  if (use.thread >= threads_.size()) threads_.resize(use.thread + std::size_t{1});
  Thread& thread = threads_[use.thread];
  Buffer& buffer = buffer_of(use);
  if (use.continues) {
    buffer.end = std::max(buffer.end, use.end);
    return {kNever, next_use(use.buffer, use.time)};
  }
  Observed observed;
  const bool is_new = buffer.uses == 0;
  if (!is_new) {
    observed.foreseen = judge(buffer, use);
    learn_reuse(buffer, use);
    if (buffer.thread == use.thread) buffer.gap = thread.events - buffer.event;
  }
  if (buffer.site != use.site) enter_uses(sites_, buffer, true);
  ++buffer.uses_here;
  buffer.thread = use.thread;
  buffer.site = use.site;
  ++buffer.uses;
  const Duration reuse = buffer.reuse_at == kNever ? kNever : buffer.reuse_at - buffer.last;
  buffer.last = use.time;
  buffer.end = use.end;
  buffer.event = thread.events;

  arrive(thread, use, {{use.site, buffer.key}, use.buffer, is_new});
  if (is_new && profiled_) meet(thread, use.buffer);
  find_next(thread, use.buffer);
  buffer.chain_at_release = chain_next(buffer, use.time);
  const Learns next = learns_from(thread);
  if (next != Learns::all && reuse != kNever &&
      ((next == Learns::nothing && buffer.by_own && buffer.settled) || chain_leads(buffer))) {
    buffer.reuse_at = buffer.last + reuse;
    buffer.contexts = {};
  } else if (next == Learns::all || !keep_reuse(buffer)) {
    choose_reuse(thread, buffer);
  }
  thread.anchors[thread.events % thread.anchors.size()] = {use.end, thread.ahead.base(),
                                                           thread.ahead.generation(), thread.events};
  ++thread.events;
  observed.next = next_use(buffer, use.time, buffer.chain_at_release);
  return observed;
}

AdaptivePredictor::Buffer& AdaptivePredictor::buffer_of(const Use& use) {
  if (use.buffer >= buffers_.size()) buffers_.resize(use.buffer + std::size_t{1});
  Buffer& buffer = buffers_[use.buffer];
  if (buffer.live) return buffer;
  buffer.live = true;
  buffer.loss = loss_;
  // The n-th buffer of this size that this site is the first to use.
  Site& site = sites_.insert(site_key(use.site));
  do {
    buffer.key = mix(mix(mix(4, use.site), use.pages), ++site.buffers);
  } while (!by_key_.try_emplace(buffer.key, use.buffer).second);
  return buffer;
}

void AdaptivePredictor::forget(BufferId id) {
  if (id >= buffers_.size() || !buffers_[id].live) return;
  enter_uses(sites_, buffers_[id], false);
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
  const bool beyond = margin.by != kNotReady && nearest(error) < -margin.by;
  if (beyond || margin.errors == 0)
    margin = {};
  else
    --margin.errors;
  return believed_last;
}

void AdaptivePredictor::learn_reuse(Buffer& buffer, const Use& use) {
  const Duration interval = use.time - buffer.last;
  if (interval > 0 && buffer.contexts[0] != 0) {
    for (unsigned kind = 0; kind < kReuseContexts && buffer.contexts[kind] != 0; ++kind) {
      Interval& known = reuses_.insert(buffer.contexts[kind]);
      if (known.known()) reuse_records_[kind].learn(known, interval);
      known.learn(interval);
    }
  }
}

/// Enters the uses of the buffer by its last site there: all of them reused, or all but the last.
void AdaptivePredictor::enter_uses(ContextTable<Site>& sites, Buffer& buffer, bool reused) {
  if (buffer.uses_here == 0) return;
  Site& site = sites.insert(site_key(buffer.site));
  site.uses += static_cast<float>(buffer.uses_here);
  site.reused += static_cast<float>(buffer.uses_here - (reused ? 0 : 1));
  buffer.uses_here = 0;
}

/// Whether the chain expects the buffer again, and leads on both horizons.
bool AdaptivePredictor::chain_leads(const Buffer& buffer) {
  const auto leads = [&](Horizon horizon) {
    return 0.85f * buffer.loss.of(horizon, chain) <= buffer.loss.of(horizon, reuse);
  };
  return buffer.chain_at_release != kNever && leads(at_release) && leads(at_last);
}

/// The context of all the buffer's uses answers again, as it did last, and alone learns; false where another
/// one did.
bool AdaptivePredictor::keep_reuse(Buffer& buffer) {
  if (!buffer.by_own) return false;
  const std::uint64_t own = mix(5, buffer.key);
  const Interval* known = reuses_.find(own);
  if (!known || !known->known()) return false;
  buffer.contexts = {own};
  buffer.reuse_at = buffer.last + known->expected();
  buffer.settled = known->settled();
  return true;
}

void AdaptivePredictor::choose_reuse(Thread& thread, Buffer& buffer) {
  const Contexts& contexts = newest(thread).contexts;
  const auto own = [&](ContextKind kind) { return mix(contexts[static_cast<unsigned>(kind)], buffer.key); };
  buffer.contexts = {mix(5, buffer.key), own(ContextKind::current), own(ContextKind::previous),
                     own(ContextKind::run)};
  buffer.reuse_at = kNever;
  float least = 0;
  for (unsigned kind = 0; kind < kReuseContexts; ++kind) {
    const Interval* known = reuses_.find(buffer.contexts[kind]);
    if (!known || !known->known()) continue;
    const float loss = reuse_records_[kind].loss(*known);
    if (buffer.reuse_at != kNever && loss >= least) continue;
    buffer.reuse_at = buffer.last + known->expected();
    buffer.by_own = kind == 0;
    buffer.settled = known->settled();
    least = loss;
  }
}

// ---- the stream of a thread ----

void AdaptivePredictor::arrive(Thread& thread, const Use& use, const EventModel::Event& event) {
  thread.credit = std::min(thread.credit + kStepsPerEvent, kMostCredit);
  // Held events that ended before this one began are put in order now; the others stay held.
  while (!thread.held.empty() && (thread.held.front().end <= use.time || thread.held.size() >= kMostHeld))
    settle(thread);

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

void AdaptivePredictor::settle(Thread& thread) {
  const Held held = thread.held.front();
  thread.held.erase(thread.held.begin());
  // Mostly it was the only one held, and its consequences were worked out when it came.
  Newest& newest = thread.newest;
  const bool only = newest.known && thread.held.empty() && newest.learnt == model_.learnt();
  const bool surprise = only ? newest.surprise : thread.begun && surprising(thread, thread.position, held);
  newest.known = false;
  if (thread.begun) learn_event(thread, held);
  thread.begun = true;
  thread.contexts_known = only;
  if (only) {
    thread.position = newest.position;
    thread.contexts = newest.contexts;
  } else {
    thread.position.advance(held.event.name, surprise);
  }
  thread.time = held.time;
  // Earlier expected events that are still missing were left out.
  if (held.step == LookAhead::kNone || held.generation != thread.ahead.generation()) return;
  for (std::uint64_t i = held.step; i > thread.passed && held.step - i < LookAhead::kTolerance;)
    pass(thread, --i);
  thread.passed = std::max(thread.passed, held.step);
}

AdaptivePredictor::Learns AdaptivePredictor::learns_from(const Thread& thread) {
  if (thread.steady < kSteady) return Learns::all;
  const std::uint64_t drawn = mix(7, thread.events);
  return drawn % kSample == 0 ? Learns::all : drawn % kConfirmed == 1 ? Learns::one : Learns::nothing;
}

void AdaptivePredictor::learn_event(Thread& thread, const Held& held) {
  const LookAhead& ahead = thread.ahead;
  const Duration after = held.time - thread.time;
  const bool expected = held.generation == ahead.generation() && held.step == thread.passed + 1;
  thread.steady = expected ? std::min(thread.steady + 1, kSteady) : 0;
  if (thread.steady == kSteady && ahead.holds(thread.passed)) {
    const auto off = static_cast<double>(after - (ahead[held.step].at - ahead[thread.passed].at));
    if (std::abs(off) > kWrong * static_cast<double>(after)) thread.steady = 0;
  }
  const Learns learns = learns_from(thread);
  if (learns != Learns::all && ahead.holds(held.step)) {
    const LookAhead::Step& step = ahead[held.step];
    if (learns == Learns::nothing && step.settled) return;
    if (model_.confirm(step.asked, held.event, after)) return;
  }
  if (!thread.contexts_known) thread.contexts = thread.position.contexts();
  thread.contexts_known = true;
  model_.learn(thread.contexts, held.event, after);
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

/// Whether another event usually follows at `position`: as the walk found, where it came that way.
bool AdaptivePredictor::surprising(const Thread& thread, const StreamPosition& position, const Held& held) {
  const LookAhead& ahead = thread.ahead;
  if (held.step != LookAhead::kNone && held.generation == ahead.generation() && ahead.holds(held.step))
    return ahead[held.step].surprise;
  return model_.surprising(position.current(), held.event.name);
}

const AdaptivePredictor::Newest& AdaptivePredictor::newest(Thread& thread) {
  Newest& newest = thread.newest;
  if (newest.known && newest.learnt == model_.learnt()) return newest;
  newest.known = true;
  newest.learnt = model_.learnt();
  newest.position = thread.position;
  bool begun = thread.begun;
  for (const Held& held : thread.held) {
    newest.surprise = begun && surprising(thread, newest.position, held);
    newest.position.advance(held.event.name, newest.surprise);
    begun = true;
  }
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
  if (buffer.plan.generation != 0) buffer.before = buffer.plan;
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
    for (const Plan* plan : {&buffer.plan, &buffer.before}) {
      if (plan->generation != 0 && plan->generation == anchor.generation) return anchor.base + plan->at;
    }
    return kNever;
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
  // In doubt the chain: it sees more than the buffer's own past.
  return buffer.loss.of(horizon, reuse) < 0.85f * buffer.loss.of(horizon, chain) ? reuse_says : chain_says;
}

Time AdaptivePredictor::next_use(BufferId id, Time after) const {
  if (id >= buffers_.size() || buffers_[id].uses == 0) return kNever;
  return next_use(buffers_[id], after, chain_next(buffers_[id], after));
}

Time AdaptivePredictor::next_use(const Buffer& buffer, Time after, Time chain_says) const {
  return believed(buffer, horizon_of(buffer), chain_says, reuse_next(buffer, after));
}

const AdaptivePredictor::Margin& AdaptivePredictor::margin_of(const Buffer& buffer, Duration worth) const {
  Margin& margin = buffer.margin;
  if (margin.worth == worth) return margin;
  // While a buffer has few errors of its own, those of all others count, in proportion to its interval.
  std::array<float, kEnoughErrors> of_others, mixed;
  std::span<const float> errors = buffer.errors.sorted();
  std::size_t n = errors.size();
  if (n < kEnoughErrors && !shares_.empty() && buffer.reuse_at != kNever) {
    const auto shares = shares_.sorted();
    const auto interval = static_cast<float>(buffer.reuse_at - buffer.last);
    const std::size_t borrowed = std::min(kEnoughErrors - n, shares.size());  // each once
    for (std::size_t i = 0; i < borrowed; ++i)
      of_others[i] = interval * shares[(2 * i + 1) * shares.size() / (2 * borrowed)];
    std::merge(errors.begin(), errors.end(), of_others.begin(),
               of_others.begin() + static_cast<std::ptrdiff_t>(borrowed), mixed.begin());
    n += borrowed;
    errors = {mixed.data(), n};
  }
  margin = {worth, 0, 0.5, 0};
  if (n == 0) return margin;
  // Giving up readiness costs as much as being late for certain.
  margin = {worth, kNotReady, 1, buffer.errors.size() / kRenewed};
  const auto late = static_cast<double>(worth);
  double least = late, best = 0;
  const auto consider = [&](double by, double risk, double held) {
    const double cost = held + risk * late;
    if (cost >= least) return;
    least = cost;
    best = by;
    margin.risk = risk;
  };
  const auto chosen = [&]() -> const Margin& {
    if (least < late) margin.by = nearest(best);
    return margin;
  };
  // Being ready for all but the k earliest of them; of those that are to come, one in 2 n is earlier still,
  // and the further beyond the fewer. Held in vain, in the mean: from then to the use.
  const double one_of_all = 1 / (static_cast<double>(n) + 0.5), mean = 1 / static_cast<double>(n);
  // A use that comes later than that is waited for in vain, and late all the same.
  const double most = 2 * late;
  double sum = 0;  // of the errors from the k-th on
  std::size_t k = n;
  // For all of these the margin is zero.
  const auto cut = static_cast<float>(most);
  for (; k > 1 && errors[k - 2] > 0; --k) sum += static_cast<double>(std::min(errors[k - 1], cut));
  while (k-- > 0) {
    const double error = std::min(static_cast<double>(errors[k]), most), by = std::max(0.0, -error);
    sum += error;
    const double held = std::max(0.0, sum + by * static_cast<double>(n - k)) * mean;
    if (held >= least) return chosen();  // and from here on it only grows
    consider(by, (static_cast<double>(k) + 0.5) * one_of_all, held);
  }
  const double reach = std::max(-errors[0], errors[n / 2] - errors[0]);
  double beyond = 0.5;
  for (double further = 1; further <= 4; further *= 2) {
    beyond /= 4;
    const double by = (1 + further) * reach;
    consider(by, beyond * one_of_all, std::max(0.0, by + sum * mean));
  }
  return chosen();
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
  estimate.early = margin.by == kNotReady ? kNever : estimate.time - margin.by;
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
  ContextTable<Site> sites = sites_;
  for (Buffer buffer : buffers_) enter_uses(sites, buffer, false);
  sites.for_each([&](std::uint64_t key, const Site& site) {
    profile.sites.push_back(
        {key, static_cast<double>(site.uses), static_cast<double>(std::min(site.uses, site.reused))});
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
  for (const auto& site : profile.sites) {
    // Weighs as much as a few uses of this run.
    const double weight = std::min(1.0, 4 / std::max(site.uses, 1.0));
    Site& known = sites_.insert(site.site);
    known.uses = static_cast<float>(site.uses * weight);
    known.reused = static_cast<float>(site.reused * weight);
  }
  return {};
}

}  // namespace pinion
