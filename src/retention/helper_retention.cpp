#include "retention/helper_retention.h"

#include <algorithm>

namespace pinion {

namespace {
// Waking for each transfer pays only where buffers are idle for longer than that takes.
constexpr Duration kLeastIdle = 250 * kMicrosecond;
// The helper looks so long after a transfer should be over.
constexpr Duration kOver = 10 * kMicrosecond;
// A use that is later than that is left to the looks.
constexpr Duration kLongestOver = kMillisecond;
// Memory that is cheap to keep goes after a rest of that length.
constexpr Duration kLongRest = 10 * kSecond;
// A region whose uses are unknown stays until keeping it has cost so many late uses.
constexpr int kUnknown = 8;
// A collapse may make registrations late that take so small a part of its time.
constexpr Duration kLateCollapse = 8;

/// Returns how many of the region's translation entries `pages` in it have.
std::size_t entries_under(const Region* region, Range pages) {
  const std::size_t entries = region->entries.load(std::memory_order_relaxed);
  if (region->range() == pages) return std::max<std::size_t>(1, entries);  // mostly
  const std::size_t all = region->range().pages();
  return std::max<std::size_t>(1, (entries * pages.pages() + all - 1) / all);
}

/// Returns how long the helper and the buffer, whose collapse takes so long, will be idle.
Duration idle_for_collapse(const RegistrationPlan& plan, Duration longest, const Estimate& next, Time now) {
  if (longest == 0) return 0;
  return std::min({next.early, next.time, plan.free_until(longest / kLateCollapse)}) - now;
}
}  // namespace

HelperRetention::HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs,
                                 Settings settings)
    : domain_(domain),
      predictor_(predictor),
      settings_(std::move(settings)),
      costs_(costs),
      ledger_(settings_.budget, costs, buffers_),
      forecast_(predictor, buffers_, ledger_),
      plan_(costs, buffers_),
      collapse_(settings_.collapse),
      settled_(domain, buffers_, ledger_) {}

// ---- learning ----

bool HelperRetention::use(const runlog::Event& lease, RegionRef region, Duration delayed) {
  const Time time = lease.begin_ns;
  delayed = forecast_.delayed_before(lease.thread, time, delayed);
  const Range pages = domain_.unit_of({lease.address, lease.address + lease.bytes});
  // The event came before its end, and so before this record: this memory is gone.
  if (lease.flags & runlog::kMemoryGone) {
    memory_event(pages);
    return false;
  }
  const BufferId id = buffer_of(pages);
  Buffer& buffer = buffers_[id];
  buffer.thread = lease.thread;
  // Several transfers of one buffer at a time are one use of it.
  const bool continues = time < buffer.busy_until;
  const auto may_settle = !settings_.act || !predictor_.samples_runs() ? SettledRegions::May::never
                          : keeps_all_                                 ? SettledRegions::May::at_once
                                                                       : SettledRegions::May::after_a_run;
  settled_.note(buffer, lease, region, may_settle);
  const bool reuse = buffer.last_use != kNotYet && !continues;
  const Time last_use = buffer.last_use, at_release = buffer.expected.at_release;
  const Duration interval = time - last_use;
  if (reuse) {
    // A settled buffer is predicted to go on as before.
    const Time paced = last_use + buffer.pace;
    if (buffer.settled.by_last_use && !keeps_all_) score_.count(time, interval, paced, paced);
    buffer.pace = interval;
    buffer.longest_interval = std::max(buffer.longest_interval, interval);
    buffer.reused = true;
  }
  if (SettledRegions::passes_over(buffer)) {
    buffer.last_use = std::max(buffer.last_use, time);
    buffer.busy_until = std::max({buffer.busy_until, lease.end_ns, time});
    return false;
  }
  const bool late =
      buffer.reused && (lease.outcome == runlog::Outcome::miss || lease.outcome == runlog::Outcome::wait);
  score_.late += late;
  if (lease.outcome == runlog::Outcome::miss) collapse_.registers();
  buffer.late = late;
  if (lease.outcome == runlog::Outcome::bounced) out_of_room_ = time;
  note_use(id, lease, region);
  const Observed observed = learn(id, lease, delayed, last_use, continues);
  if (reuse && !buffer.settled.by_last_use) score_.count(time, interval, at_release, observed.foreseen);
  buffer.expected.at_release = observed.next;
  follow_predictor(id);
  // Victims may be chosen before the decision that follows.
  if (domain_.pressed() && registered(region))
    expect(region, forecast_.earliest_time(buffers_.in(region.region->range()), time, id, observed.next));
  undecided_.push_back(id);
  return late;
}

void HelperRetention::used_at_rest(const runlog::Event& lease, RegionRef region) {
  Buffer* const buffer = buffers_.find(domain_.unit_of({lease.address, lease.address + lease.bytes}));
  if (!buffer) return;
  ledger_.give_back(*buffer);
  if (!predictor_.samples_runs() || !registered(region) || buffer->served_elsewhere(region)) return;
  // To read the records would go on to cost what has been used up.
  settled_.note(*buffer, lease, region, SettledRegions::May::at_once);
  buffer->region = region;
  settled_.mark(region, lease.end_ns, kNever);
}

void HelperRetention::note_use(BufferId id, const runlog::Event& lease, RegionRef region) {
  Buffer& buffer = buffers_[id];
  const Time time = lease.begin_ns, end = std::max(lease.end_ns, time);
  buffer.last_use = std::max(buffer.last_use, time);
  buffer.busy_until = std::max(buffer.busy_until, end);
  buffer.lasts = std::max(end - time - static_cast<Duration>(lease.wait_ns), Duration{0});
  collapse_.used(buffer, time);
  ledger_.give_back(buffer);
  // Rights of the device add up, so that a buffer that is sent and received in turn is registered ahead once.
  // Peers get those of the last use alone.
  buffer.access = local_part(buffer.access) | static_cast<Access>(lease.access);
  // Regions may overlap: another one than before may have served.
  if (buffer.served_elsewhere(region)) replaced_.push_back(buffer.region);
  buffer.region = region;
  if (registered(region)) buffer.entries = entries_under(region.region, buffer.pages);
  looks_.set(id, kNever);
  overs_.set(id, kNever);
  plan_.observe(buffer.entries);
}

Observed HelperRetention::learn(BufferId id, const runlog::Event& lease, Duration delayed, Time last_use,
                                bool continues) {
  const Buffer& buffer = buffers_[id];
  const Time time = lease.begin_ns, end = std::max(lease.end_ns, time);
  return forecast_.learn({.buffer = id,
                          .site = settings_.site_name ? settings_.site_name(lease.site) : lease.site,
                          .address = lease.address,
                          .kind = static_cast<CallKind>(lease.call),
                          .thread = lease.thread,
                          .time = time - delayed,
                          .end = std::max(end - static_cast<Duration>(lease.wait_ns), time) - delayed,
                          .pages = buffer.pages.pages(),
                          .continues = continues,
                          .lead = ledger_.lead(buffer.entries),
                          .last = last_use - delayed,
                          .delayed = delayed});
}

void HelperRetention::follow_predictor(BufferId used) {
  plan_.remove(used);
  plan_.advance(predictor_.sooner());
  for (const BufferId moved : predictor_.moved()) {
    if (moved != used) reconsider(moved);
  }
}

void HelperRetention::memory_event(Range range) {
  const Ids gone = buffers_.overlapping(range);
  const Time now = gone.empty() ? 0 : domain_.clock().now();
  for (const BufferId id : gone) settled_.end(buffers_[id].region, now);
  for (const BufferId id : gone) drop(id);
}

void HelperRetention::evicted(Range pages, Time now) {
  if (!domain_.within_limits(pages)) out_of_room_ = now;
  const bool for_peak = domain_.budget().peak_goal().pursued();
  for (const BufferId id : buffers_.in(pages)) {
    if (for_peak && !registered(buffers_[id].region)) ledger_.gone_for_peak(buffers_[id]);
    reconsider(id);
  }
}

bool HelperRetention::has_let_go(Range range) const {
  const Ids there = buffers_.overlapping(range);
  return std::any_of(there.begin(), there.end(), [this](BufferId id) { return buffers_[id].reserved != 0; });
}

void HelperRetention::sweep() {
  settled_.clear(domain_.clock().now());
  for (const RegionRef& ref : domain_.idle_regions()) {
    const BufferId id = buffer_of(ref.region->range());
    buffers_[id].region = ref;
    buffers_[id].access = ref.region->access.load(std::memory_order_relaxed);
    undecided_.push_back(id);
  }
}

void HelperRetention::stop_acting() {
  if (!settings_.act) return;
  settings_.act = false;
  settled_.clear(domain_.clock().now());
  memory_event({0, ~Address{0}});  // empties the queue and the list of looks
}

void HelperRetention::act_again() {
  if (settings_.act) return;
  settings_.act = true;
  sweep();
}

void HelperRetention::keep_all(bool all) {
  if (all == keeps_all_) return;
  keeps_all_ = all;
  undecided_.clear();
  sweep();
}

// ---- deciding ----

void HelperRetention::enqueue(BufferId id, Time after) {
  Buffer& buffer = buffers_[id];
  const Estimate& next = forecast_.next_use(id, after);
  if (next.early == kNever || !ledger_.worth_registering(buffer, next))
    return listen(id, after, after);  // to let it go again
  buffer.expected.margin = next.time - next.early;
  plan_.insert(id, next.early);
}

void HelperRetention::reconsider(BufferId id) {
  const Buffer& buffer = buffers_[id];
  if (!settings_.act || !buffer.live || buffer.last_use == kNotYet) return;
  if (registered(buffer.region)) {
    undecided_.push_back(id);
  } else {
    plan_.remove(id);
    enqueue(id, buffer.last_use);
  }
}

bool HelperRetention::let_go(BufferId id, Time after, Time now, Action& action) {
  const Buffer& buffer = buffers_[id];
  if (!buffer.live || !registered(buffer.region)) return false;
  const RegionRef ref = buffer.region;
  const Ids& all = buffers_.in(ref.region->range());
  if (const Time rested = settled_.rested_at(ref, all, now); now < rested) {
    looks_.set(id, rested);
    settled_.mark(ref, now, rested);
    expect(ref, forecast_.earliest_time(all, after, id, forecast_.next_time(id, after)));
    return false;
  }
  if (keeps_all_) return false;
  const Time rests_until = buffer.last_use + kLongRest;
  const bool is_short = domain_.has_been_short() || domain_.budget().memory_is_short();
  if (settings_.keeps_until_short && !is_short && now < rests_until) {
    keep(id, after, now, rests_until);
    return false;
  }
  ledger_.note_terms();
  const std::size_t pages = ref.region->range().pages();
  const std::size_t entries = ref.region->entries.load(std::memory_order_relaxed);
  const Estimate next = forecast_.earliest_use(all, after);
  const bool too_dear = !buffer.reused && next.time == kNever && !ledger_.fits(ref, kTrials);
  const bool alone = pages == buffer.pages.pages() && entries == buffer.entries;
  const Duration late = alone ? ledger_.worth(buffer) : ledger_.worth(pages, entries);
  const bool stays = next.time != kNever && !Ledger::repays(late, next, now);
  const bool refused = too_dear || stays || !plan_.may_deregister(entries, next.early, now);
  if (after < now) expect(ref, next.time);
  // Another buffer may need the room for longer than the region is away, outside of a swap.
  const bool short_of_room =
      out_of_room_ != kNotYet && now - out_of_room_ < std::max(ledger_.patience(buffer), kLongAgo);
  const bool saves = collapse_.saves_up(now) && CollapsePlan::is_dear(pages, entries) && next.time != kNever;
  const bool may_collapse = collapse_.collapses() && alone && next.time != kNever && !is_short;
  if (may_collapse) collapse_.look(buffers_[id], now);
  const Duration idle = idle_for_collapse(plan_, may_collapse ? collapse_.longest(buffer) : 0, next, now);
  action.buffer = id;
  if (short_of_room || refused || saves || !ledger_.affords(pages, entries, next, now)) {
    if (may_collapse && !short_of_room) {
      collapse_.kept_as_dear(buffers_[id], now);
      action.collapse = collapse_.part(buffer, ledger_, costs_, idle, now, false);
      if (!action.collapse.empty() && claim(ref, after, action)) return true;
      action.collapse = {};
    }
    keep(id, after, now, too_dear ? ledger_.enough_at(ref, kTrials) : next.time);
    return false;
  }
  if (may_collapse) action.collapse = collapse_.part(buffer, ledger_, costs_, idle, now, true);
  if (claim(ref, after, action)) {
    if (may_collapse) collapse_.goes_as_dear(buffers_[id], ledger_, costs_);
    return true;
  }
  action.collapse = {};
  // It is in use, and its release brings it back; or the budget refused it.
  if (ref.current() && ref.region->word.load().idle()) {
    if (alone) collapse_.kept_as_dear(buffers_[id], now);
    const Time enough = ledger_.enough_at(ref, 1);
    if (enough != kNever) looks_.set(id, std::max(now + kMillisecond, enough));
  }
  return false;
}

void HelperRetention::keep(BufferId id, Time after, Time now, Time meanwhile) {
  listen(id, after, now);
  // Another decision meanwhile keeps the earlier end of the wait for an overdue use.
  const bool later = meanwhile != kNever && meanwhile > now;
  const Time look = (later ? meanwhile : now) + ledger_.patience(buffers_[id]);
  looks_.set(id, later ? look : std::min(look, looks_.of(id)));
}

bool HelperRetention::claim(RegionRef ref, Time after, Action& action) {
  if (!ledger_.may_go()) return false;
  action.region = domain_.begin_retire(ref);
  if (!action.region) return false;
  action.kind = Action::Kind::deregister;
  action.pages = action.region->range();
  action.entries = action.region->entries.load(std::memory_order_relaxed);
  action.after = after;
  ledger_.gone(ref);
  return true;
}

Time HelperRetention::waits_until(const Action& action) const {
  return wants(action) ? action.use + Ledger::kPatience * buffers_[action.buffer].longest_interval : 0;
}

void HelperRetention::listen(BufferId id, Time after, Time now) {
  Buffer& buffer = buffers_[id];
  if (buffer.longest_interval < kLeastIdle) return;
  const Time use = forecast_.next_time(id, after);
  buffer.expected.over = use == kNever ? kNever : std::max(use + buffer.lasts, now) + kOver;
  overs_.set(id, buffer.expected.over);
}

void HelperRetention::listen_on(BufferId id, Time now) {
  const Buffer& buffer = buffers_[id];
  const Duration waited = std::max(now - buffer.expected.over, 2 * kOver);
  const bool awaited = registered(buffer.region) && waited < kLongestOver;
  overs_.set(id, awaited ? now + waited : kNever);
}

bool HelperRetention::serve_first(Action& action) {
  const RegistrationQueue::Item item = plan_.first();
  const BufferId id = item.buffer;
  plan_.remove(id);
  const Buffer& buffer = buffers_[id];
  if (registered(buffer.region)) return false;
  // The prediction may have moved to a later time.
  const Time use = forecast_.next_time(id, buffer.last_use);
  if (use == kNever) {
    listen(id, buffer.last_use, buffer.last_use);
    return false;
  }
  if (use - buffer.expected.margin > item.asked) {
    plan_.insert(id, use - buffer.expected.margin, item.service);
    return false;
  }
  action.kind = Action::Kind::register_ahead;
  action.buffer = id;
  action.pages = buffer.pages;
  action.access = buffer.access;
  action.use = use;
  action.after = buffer.last_use;
  return true;
}

HelperRetention::Action HelperRetention::next(Time now) {
  Action action;
  if (!settings_.act) {
    undecided_.clear();
    replaced_.clear();
    return action;
  }
  ledger_.budget().advance(now);
  while (!overs_.empty() && overs_.first().time <= now) listen_on(overs_.first().buffer, now);

  // Registrations wait as long as the first item of the queue may.
  Time due = plan_.first_due();
  for (; due <= now; due = plan_.first_due())
    if (serve_first(action)) return action;

  while (!replaced_.empty()) {
    const RegionRef ref = replaced_.back();
    replaced_.pop_back();
    if (claim(ref, now, action)) return action;
  }

  // A deadline that has passed since the use is a use that should come at any moment: it counts.
  while (!undecided_.empty()) {
    const BufferId id = undecided_.front();
    undecided_.pop_front();
    ledger_.learn_unseen(buffers_[id], now);
    if (awaits_first_use(id, now)) continue;
    if (let_go(id, buffers_[id].last_use, now, action)) return action;
  }

  // Here a passed deadline is left out: the wait for the use was long enough.
  while (!looks_.empty() && looks_.first().time <= now) {
    const BufferId id = looks_.first().buffer;
    looks_.set(id, kNever);
    if (let_go(id, now, now, action)) return action;
  }

  action.wake_at = next_deadline(due);
  return action;
}

bool HelperRetention::awaits_first_use(BufferId id, Time now) {
  const Buffer& buffer = buffers_[id];
  if (buffer.last_use != kNotYet || !registered(buffer.region)) return false;
  for (const BufferId other : buffers_.in(buffer.region.region->range()))
    if (buffers_[other].last_use != kNotYet) return false;
  if (looks_.of(id) == kNever) looks_.set(id, now + kUnknown * ledger_.worth(buffer));
  return true;
}

Time HelperRetention::next_deadline(Time due) const {
  Time wake = due;
  if (ledger_.budget().resting()) return wake;
  if (!overs_.empty()) wake = std::min(wake, overs_.first().time);
  if (!looks_.empty()) wake = std::min(wake, looks_.first().time);
  return wake;
}

void HelperRetention::done(const Action& action, RegionRef region, bool ok, Duration took, Time now) {
  if (action.kind == Action::Kind::deregister) {
    costs_.deregistration.observe(action.entries, took);
    if (!action.collapse.empty() && buffers_.is_live(action.buffer) &&
        buffers_[action.buffer].pages == action.pages)
      collapse_.collapsed(buffers_[action.buffer], action, costs_.registration.expected(action.entries), now);
    for (const BufferId id : buffers_.in(action.pages)) enqueue(id, action.after);
    return;
  }
  if (!ok || !buffers_[action.buffer].live) return;
  Buffer& buffer = buffers_[action.buffer];
  if (registered(region)) buffer.entries = entries_under(region.region, action.pages);
  if (took > 0) costs_.registered(action.pages.pages(), buffer.entries, took);
  if (took > 0) collapse_.registered(buffer, took);
  buffer.region = region;
  if (!registered(region)) return;
  const Ids& all = buffers_.in(region.region->range());
  for (const BufferId id : all) ledger_.give_back(buffers_[id]);
  // The use that it is registered for, even if that is overdue: it is still to come.
  const Time own = forecast_.next_time(action.buffer, now);
  const Time next = std::min(action.use, forecast_.earliest_time(all, now, action.buffer, own));
  expect(region, next);
  listen(action.buffer, buffer.last_use, now);
  looks_.set(action.buffer, (next == kNever ? now : next) + ledger_.patience(buffer));
}

// ---- buffers ----

BufferId HelperRetention::buffer_of(Range pages) {
  const auto [id, is_new] = buffers_.add(pages);
  if (!is_new) return id;
  buffers_[id].entries = costs_.entries_a_page.of(pages.pages());
  buffers_.forget_oldest(id, [this](BufferId old) { drop(old); });
  return id;
}

void HelperRetention::drop(BufferId id) {
  plan_.remove(id);
  looks_.set(id, kNever);
  overs_.set(id, kNever);
  ledger_.give_back(buffers_[id]);
  predictor_.forget(id);
  buffers_.remove(id);
}

}  // namespace pinion
