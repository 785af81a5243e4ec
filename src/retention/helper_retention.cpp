#include "retention/helper_retention.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pinion {

namespace {
constexpr Duration kLeastPatience = 10 * kMillisecond;
// A machine that others begin to use too makes intervals twice as long as any before.
constexpr int kPatience = 3;
// Waking for each transfer pays only where buffers are idle for longer than that takes.
constexpr Duration kLeastIdle = 250 * kMicrosecond;
// How long after a transfer should be over the helper looks whether it is.
constexpr Duration kOver = 10 * kMicrosecond;
// A use that is later than that is left to the looks.
constexpr Duration kLongestOver = kMillisecond;
// Letting a buffer go that was used once only is an experiment: it may cost this part of the budget.
constexpr Duration kExperiment = 4;
// A limit that was too low so long ago still is.
constexpr Duration kShortage = kSecond;
// The set of buffers counts as complete after so many times the uses by the newest one's first.
constexpr std::uint64_t kSettled = 4;
// Uses of a thread in a row that each came too soon for a decision, until their buffers are settled. Then one
// in so many of a buffer's is learnt from.
constexpr unsigned kRun = 16;
constexpr std::uint32_t kOfRun = 16;
// The longer a buffer has been settled, the later is the next look whether it still is: after that part of
// the time, so late at most.
constexpr Duration kOfSettled = 16;
constexpr Duration kLongestSettled = 250 * kMillisecond;
constexpr std::size_t kMostSettled = 64;
// An always kept region is let go for a trial when keeping it has cost so many late uses.
constexpr int kTrial = 8;

/// Its four highest bits, so that small changes of the price leave the margins as they are.
Duration rounded(double value) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(value, 0.0, 1e17));
  const int rest = std::max(0, static_cast<int>(std::bit_width(whole)) - 4);
  return static_cast<Duration>(whole >> rest << rest);
}

/// A predictor's time as the program's: its thread has waited so long for registrations before.
Time delayed_by(Time predicted, Duration delay) { return predicted == kNever ? kNever : predicted + delay; }

bool registered(const RegionRef& ref) { return ref.current() && ref.region->word.load().leasable(); }

/// Of the region's translation entries, those of `pages` in it.
std::size_t entries_under(const Region* region, Range pages) {
  const std::size_t entries = region->entries.load(std::memory_order_relaxed);
  const std::size_t all = region->range().pages();
  return std::max<std::size_t>(1, (entries * pages.pages() + all - 1) / all);
}
}  // namespace

HelperRetention::HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs,
                                 Settings settings)
    : domain_(domain), predictor_(predictor), settings_(std::move(settings)), costs_(costs) {}

HelperRetention::HelperRetention(Domain& domain, std::unique_ptr<Predictor> predictor, CostEstimates& costs,
                                 Settings settings)
    : domain_(domain),
      own_predictor_(std::move(predictor)),
      predictor_(*own_predictor_),
      settings_(std::move(settings)),
      costs_(costs) {}

// ---- learning ----

Duration HelperRetention::delayed_before(std::uint16_t thread, Time call, Duration delayed) {
  if (thread >= threads_.size()) threads_.resize(thread + std::size_t{1});
  Thread& last = threads_[thread];
  if (call == last.call) return std::min(delayed, last.delayed);
  last.call = call;
  last.delayed = delayed;
  return delayed;
}

bool HelperRetention::use(const runlog::Event& lease, RegionRef region, Duration delayed) {
  const Time time = lease.begin_ns, end = std::max(lease.end_ns, time);
  const auto waited = static_cast<Duration>(lease.wait_ns);
  delayed = delayed_before(lease.thread, time, delayed);
  const Range pages = Range{lease.address, lease.address + lease.bytes}.to_pages();
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
  const bool settled = settles(buffer, lease, region);
  if (settled && !buffer.settled) buffer.settled_since = time;
  if (!settled && buffer.settled && registered(buffer.region))
    buffer.region.region->settled_until.store(0, std::memory_order_relaxed);
  buffer.settled = settled;
  const bool reuse = buffer.last_use != kNotYet && !continues;
  const Time last_use = buffer.last_use, at_release = buffer.predicted_at_release;
  const Duration interval = time - last_use;
  if (reuse) {
    // Of a settled buffer: that it goes on as before.
    const Time paced = last_use + buffer.pace;
    if (settled) keep_score(time, interval, paced, paced);
    buffer.pace = interval;
    buffer.longest_interval = std::max(buffer.longest_interval, interval);
    buffer.reused = true;
  }
  if (buffer.settled && buffer.passed++ % kOfRun != 0) {
    buffer.last_use = std::max(buffer.last_use, time);
    buffer.busy_until = std::max(buffer.busy_until, end);
    return false;
  }
  const bool late =
      buffer.reused && (lease.outcome == runlog::Outcome::miss || lease.outcome == runlog::Outcome::wait);
  score_.late += late;
  buffer.late = late;
  if (lease.outcome == runlog::Outcome::bounced) out_of_room_ = time;
  note_use(id, lease, region);

  Use use;
  use.buffer = id;
  use.site = settings_.site_name ? settings_.site_name(lease.site) : lease.site;
  use.address = lease.address;
  use.kind = static_cast<CallKind>(lease.call);
  use.thread = lease.thread;
  use.time = time - delayed;
  use.end = std::max(end - waited, time) - delayed;
  use.pages = pages.pages();
  use.continues = continues;
  use.delayed = delayed;
  use.lead = lead(buffer.entries);
  use.last = last_use - delayed;
  ++learnt_;
  const Observed observed = predictor_.observe(use);
  if (reuse && !settled) keep_score(time, interval, at_release, delayed_by(observed.foreseen, delayed));
  buffer.predicted_at_release = delayed_by(observed.next, delayed);
  follow_predictor(id);
  // Victims may be chosen before the decision that follows.
  if (domain_.pressed() && registered(region))
    expect(region, earliest_time(region.region->range(), time, id, buffer.predicted_at_release));
  undecided_.push_back(id);
  return late;
}

Duration HelperRetention::away(const Buffer& buffer) const {
  return costs_.deregistration.upper(buffer.entries) + lead(buffer.entries);
}

bool HelperRetention::settles(const Buffer& buffer, const runlog::Event& lease, RegionRef region) {
  const bool soon = buffer.reused && lease.outcome == runlog::Outcome::hit &&
                    buffer.region.region == region.region && registered(region) &&
                    lease.begin_ns - buffer.last_use <= away(buffer);
  unsigned& in_a_row = threads_[lease.thread].soon;
  in_a_row = soon ? std::min(in_a_row + 1, kRun) : 0;
  return in_a_row == kRun && settings_.act && predictor_.samples_runs();
}

void HelperRetention::ran(const runlog::Event& run) {
  const Range pages = Range{run.address, run.address + run.bytes}.to_pages();
  const auto at = by_begin_.find({pages.begin, pages.end});
  if (at == by_begin_.end()) return;  // its memory has changed since
  Buffer& buffer = buffers_[at->second];
  buffer.last_use = std::max(buffer.last_use, run.end_ns);
  buffer.busy_until = std::max(buffer.busy_until, run.end_ns);
  buffer.passed = 0;  // the next one is learnt from
}

Time HelperRetention::rested_at(RegionRef ref, Time now) const {
  Time rested = kNotYet, since = kNever;
  for (const BufferId id : buffers_in(ref.region->range())) {
    if (!buffers_[id].settled) continue;
    rested = std::max(rested, buffers_[id].last_use + kLeastPatience);
    since = std::min(since, buffers_[id].settled_since);
  }
  if (rested == kNotYet || now < rested) return rested;
  // The uses of a run leave their record when it ends.
  const Ticks used = ref.region->last_use.load(std::memory_order_relaxed);
  if (used <= domain_.clock().ticks_at(now - kLeastPatience)) return rested;
  return now + std::clamp((now - since) / kOfSettled, kLeastPatience, kLongestSettled);
}

void HelperRetention::settle(RegionRef ref, Time until) {
  Duration gap = kLeastPatience;
  for (const BufferId id : buffers_in(ref.region->range())) {
    if (!buffers_[id].settled) return;
    gap = std::min(gap, away(buffers_[id]));
  }
  std::erase_if(settled_, [&](const Settled& other) {
    return !registered(other.region) || other.region.region == ref.region;
  });
  if (settled_.size() >= kMostSettled) return;
  settled_.push_back({ref, until});
  // Threads count on for a while after the look that is due then: it comes late.
  Clock& clock = domain_.clock();
  const Ticks end = clock.ticks_at(until + kLeastPatience);
  ref.region->settled_gap.store(end - clock.ticks_at(until + kLeastPatience - gap),
                                std::memory_order_relaxed);
  ref.region->settled_until.store(end, std::memory_order_relaxed);
}

std::size_t HelperRetention::settled_bytes(Time now) {
  std::size_t bytes = 0;
  std::erase_if(settled_, [&](const Settled& settled) {
    if (settled.until < now || !registered(settled.region)) return true;
    bytes += settled.region.region->range().bytes();
    return false;
  });
  return bytes;
}

void HelperRetention::note_use(BufferId id, const runlog::Event& lease, RegionRef region) {
  Buffer& buffer = buffers_[id];
  const Time time = lease.begin_ns, end = std::max(lease.end_ns, time);
  if (buffer.last_use == kNotYet) buffer.kept_since = time;
  buffer.last_use = std::max(buffer.last_use, time);
  buffer.busy_until = std::max(buffer.busy_until, end);
  buffer.lasts = std::max(end - time - static_cast<Duration>(lease.wait_ns), Duration{0});
  give_back(buffer);
  buffer.by_thread = false;
  // Rights of the device add up, so that a buffer that is sent and received in turn is registered ahead once.
  // Peers get those of the last use alone.
  buffer.access = local_part(buffer.access) | static_cast<Access>(lease.access);
  // Regions may overlap: another one than before may have served.
  if (registered(buffer.region) && buffer.region.region != region.region) replaced_.push_back(buffer.region);
  buffer.region = region;
  if (registered(region)) buffer.entries = entries_under(region.region, buffer.pages);
  looks_.set(id, kNever);
  overs_.set(id, kNever);
  largest_pages_ = std::max(largest_pages_, buffer.pages.pages());
  item_entries_.observe(buffer.entries);
}

void HelperRetention::follow_predictor(BufferId used) {
  queue_.remove(used);
  queue_.advance(predictor_.sooner());
  for (const BufferId moved : predictor_.moved()) {
    if (moved != used) reconsider(moved);
  }
}

void HelperRetention::keep_score(Time time, Duration interval, Time at_release, Time at_last) {
  ++score_.reuses;
  const double whole = static_cast<double>(interval), most = 0.05 * whole, least = 0.005 * whole;
  const auto count = [&](Time predicted, std::uint64_t& within_0_5, std::uint64_t& within_5) {
    if (predicted == kNever) return;
    const double error = std::abs(static_cast<double>(predicted - time));
    within_0_5 += error <= least;
    within_5 += error <= most;
  };
  count(at_release, score_.at_release_within_0_5, score_.at_release_within_5);
  count(at_last, score_.within_0_5, score_.within_5);
}

void HelperRetention::memory_event(Range range) {
  std::vector<BufferId> gone;
  const Address reach =
      largest_pages_ * page_size();  // no buffer that begins further before can reach into the range
  const Address first = range.begin > reach ? range.begin - reach : 0;
  for (auto at = by_begin_.lower_bound({first, 0}); at != by_begin_.end() && at->first.first < range.end;
       ++at) {
    if (at->first.second > range.begin) gone.push_back(at->second);
  }
  for (const BufferId id : gone) drop(id);
}

void HelperRetention::evicted(Range pages, Time now) {
  if (!domain_.has_room(pages)) out_of_room_ = now;
  for (const BufferId id : buffers_in(pages)) reconsider(id);
}

void HelperRetention::sweep() {
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
  settled_.clear();
  memory_event({0, ~Address{0}});  // empties the queue and the list of looks
}

void HelperRetention::act_again() {
  if (settings_.act) return;
  settings_.act = true;
  sweep();
}

// ---- deciding ----

const std::vector<BufferId>& HelperRetention::find_buffers(Range range) const {
  Found& found = found_[slot_of(range)];
  found.range = range;
  found.changes = changes_;
  found.buffers.clear();
  for (auto at = by_begin_.lower_bound({range.begin, 0});
       at != by_begin_.end() && at->first.first < range.end; ++at) {
    if (at->first.second <= range.end) found.buffers.push_back(at->second);
  }
  return found.buffers;
}

Duration HelperRetention::delay_of(const Buffer& buffer) const { return threads_[buffer.thread].delayed; }

void HelperRetention::expect(RegionRef ref, Time next) { domain_.expect(ref, next == kNever ? 0 : next); }

const Estimate& HelperRetention::next_use(BufferId id, Time after) const {
  const Buffer& buffer = buffers_[id];
  const Duration worth = this->worth(buffer);
  Answer& answer = buffer.answer;
  const bool same = after == answer.after || (after > answer.after && after < answer.next.until);
  if (same && answer.learnt == learnt_ && answer.worth == worth) return answer.next;
  const Duration delay = delay_of(buffer);
  answer = {learnt_, after, worth, predictor_.estimate(id, after - delay, worth)};
  Estimate& next = answer.next;
  next.time = delayed_by(next.time, delay);
  next.early = delayed_by(next.early, delay);
  next.until = delayed_by(next.until, delay);
  return next;
}

Estimate HelperRetention::earliest_use(Range region, Time after) const {
  const std::vector<BufferId>& buffers = buffers_in(region);
  if (buffers.size() == 1) return next_use(buffers.front(), after);
  BufferId first = 0;
  Time earliest = kNever, early = kNever;
  for (const BufferId id : buffers) {
    const Time next = next_time(id, after);
    if (next == kNever) continue;
    earliest = std::min(earliest, next);
    if (next - buffers_[id].margin >= early) continue;
    early = next - buffers_[id].margin;
    first = id;
  }
  if (earliest == kNever) return {};
  Estimate estimate = next_use(first, after);
  estimate.time = earliest;
  return estimate;
}

Time HelperRetention::earliest_time(Range region, Time after, BufferId id, Time known) const {
  Time earliest = kNever;
  for (const BufferId other : buffers_in(region))
    earliest = std::min(earliest, other == id ? known : next_time(other, after));
  return earliest;
}

Time HelperRetention::next_time(BufferId id, Time after) const {
  const Duration delay = delay_of(buffers_[id]);
  return delayed_by(predictor_.next_use(id, after - delay), delay);
}

Duration HelperRetention::worth(std::size_t pages, std::size_t entries) const {
  const auto share = static_cast<double>(std::max(all_pages_, pages)) / static_cast<double>(pages);
  return rounded(price() * share * static_cast<double>(costs_.registration.expected(entries)) +
                 static_cast<double>(unseen_));
}

void HelperRetention::note_terms() {
  const Terms terms{price(), all_pages_, unseen_, costs_.registration.observed()};
  if (terms == terms_) return;
  terms_ = terms;
  ++terms_number_;
}

Duration HelperRetention::worth(const Buffer& buffer) const {
  Worth& known = buffer.worth;
  if (known.number != terms_number_ || known.entries != buffer.entries)
    known = {terms_number_, buffer.entries, worth(buffer.pages.pages(), buffer.entries)};
  return known.value;
}

Duration HelperRetention::lead(std::size_t entries) const {
  return costs_.registration.upper(entries) + costs_.wake.value();
}

void HelperRetention::enqueue(BufferId id, Time after) {
  Buffer& buffer = buffers_[id];
  const Estimate& next = next_use(id, after);
  if (next.early == kNever || buffer.by_thread || !worth_registering(buffer, next))
    return listen(id, after, after);  // to let it go again
  buffer.margin = next.time - next.early;
  queue_.insert(id, next.early, service_time(buffer.entries));
}

void HelperRetention::reconsider(BufferId id) {
  const Buffer& buffer = buffers_[id];
  if (!settings_.act || !buffer.live || buffer.last_use == kNotYet) return;
  if (registered(buffer.region)) {
    undecided_.push_back(id);
  } else {
    queue_.remove(id);
    enqueue(id, buffer.last_use);
  }
}

Duration HelperRetention::service_time(std::size_t entries) const {
  const auto compares = static_cast<Duration>(queue_.size() + 1) * costs_.queue.compare;
  return costs_.queue.hash + compares /* cache */ + costs_.deregistration.upper(item_entries_.value()) +
         compares /* insert */ + costs_.registration.upper(entries) + compares /* update */;
}

bool HelperRetention::may_deregister(std::size_t entries, Time deadline, Time now) const {
  if (deadline == kNever) return true;  // used for the first time, or expected to stay away
  const auto compares = static_cast<Duration>(queue_.size() + 1) * costs_.queue.compare;
  const Duration t_p = costs_.deregistration.upper(entries) + compares /* insert */ +
                       costs_.registration.upper(entries) + compares /* update */ + costs_.wake.value();
  return now + t_p <= queue_.room(deadline, service_time(entries));
}

bool HelperRetention::let_go(BufferId id, Time after, Time now, Action& action) {
  const Buffer& buffer = buffers_[id];
  if (!buffer.live || !registered(buffer.region)) return false;
  const RegionRef ref = buffer.region;
  if (const Time rested = rested_at(ref, now); now < rested) {
    looks_.set(id, rested);
    settle(ref, rested);
    expect(ref, earliest_time(ref.region->range(), after, id, next_time(id, after)));
    return false;
  }
  note_terms();
  const std::size_t pages = ref.region->range().pages();
  const std::size_t entries = ref.region->entries.load(std::memory_order_relaxed);
  const Estimate next = earliest_use(ref.region->range(), after);
  const bool too_dear = settings_.budget && !buffer.reused && next.time == kNever &&
                        !settings_.budget->fits(kExperiment * worst_cost(ref));
  // Outside a swap, a region leaves its room to any buffer, which may need it for longer than the region is
  // away.
  const bool crowded = out_of_room_ != kNotYet && now - out_of_room_ < std::max(patience(buffer), kShortage);
  const bool alone = pages == buffer.pages.pages() && entries == buffer.entries;
  const Duration late = alone ? worth(buffer) : worth(pages, entries);
  const bool refused =
      too_dear || ((!may_deregister(entries, next.early, now) || !worth_it(buffer, late, next, now)) &&
                   !worth_a_trial(buffer, late, now));
  const bool by_helper = affords(pages, entries, next, now);
  if (after < now) expect(ref, next.time);
  if (crowded || refused || !(by_helper || affords_by_thread(pages, entries, late, next, now))) {
    listen(id, after, now);
    const Time meanwhile = too_dear ? settings_.budget->enough_at(kExperiment * worst_cost(ref)) : next.time;
    // Another decision meanwhile keeps the earlier end of the wait for an overdue use.
    const bool later = meanwhile != kNever && meanwhile > now;
    const Time look = (later ? meanwhile : now) + patience(buffer);
    looks_.set(id, later ? look : std::min(look, looks_.of(id)));
    return false;
  }
  if (claim(ref, after, action)) {
    if (!by_helper) leave_to_threads(ref);
    return true;
  }
  // It is in use, and its release brings it back; or the budget refused it.
  if (settings_.budget && ref.current() && ref.region->word.load().idle()) {
    const Time enough = settings_.budget->enough_at(worst_cost(ref));
    if (enough != kNever) looks_.set(id, std::max(now + kMillisecond, enough));
  }
  return false;
}

bool HelperRetention::worth_a_trial(const Buffer& buffer, Duration worth, Time now) const {
  if (buffer.tried && !costs_.registration.doubted()) return false;
  if (settings_.minimize_peak && all_fit()) return false;
  return buffer.reused && now - buffer.kept_since >= kTrial * worth;
}

bool HelperRetention::claim(RegionRef ref, Time after, Action& action) {
  const Duration more = settings_.budget ? more_reserved(ref) : 0;
  if (settings_.budget && !settings_.budget->reserve(std::max<Duration>(more, 0))) return false;
  action.region = domain_.begin_retire(ref);
  if (!action.region) {
    if (settings_.budget) settings_.budget->give_back(std::max<Duration>(more, 0));
    return false;
  }
  action.kind = Action::Kind::deregister;
  action.pages = action.region->range();
  action.entries = action.region->entries.load(std::memory_order_relaxed);
  action.after = after;
  if (settings_.budget) {
    settings_.budget->give_back(std::max<Duration>(-more, 0));
    for (const BufferId id : buffers_in(action.pages)) {
      Buffer& buffer = buffers_[id];
      if (served_elsewhere(buffer, ref)) continue;
      if (buffer.by_thread) settings_.budget->leave_to_threads(-buffer.reserved);
      buffer.by_thread = false;
      buffer.reserved = costs_.registration.upper(buffer.entries);
    }
  }
  return true;
}

void HelperRetention::leave_to_threads(RegionRef ref) {
  for (const BufferId id : buffers_in(ref.region->range())) {
    Buffer& buffer = buffers_[id];
    if (served_elsewhere(buffer, ref)) continue;
    buffer.by_thread = true;
    if (settings_.budget) settings_.budget->leave_to_threads(buffer.reserved);
  }
}

bool HelperRetention::served_elsewhere(const Buffer& buffer, RegionRef than) {
  return buffer.region.region != than.region && registered(buffer.region);
}

Duration HelperRetention::more_reserved(RegionRef ref) const {
  Duration sum = 0;
  for (const BufferId id : buffers_in(ref.region->range())) {
    const Buffer& buffer = buffers_[id];
    if (!served_elsewhere(buffer, ref)) sum += costs_.registration.upper(buffer.entries) - buffer.reserved;
  }
  return sum;
}

bool HelperRetention::worth_it(const Buffer& buffer, Duration worth, const Estimate& next, Time now) const {
  if (next.time == kNever) return true;
  if (settings_.minimize_peak && all_fit()) return false;
  return static_cast<double>(std::min(next.early, next.time) - now) >= next.risk * static_cast<double>(worth);
}

bool HelperRetention::affords(std::size_t pages, std::size_t entries, const Estimate& next, Time now) const {
  if (!share_binds()) return true;
  const Duration work = costs_.deregistration.expected(entries) + costs_.registration.expected(entries);
  if (next.time == kNever) return settings_.share->affords(work, kNever);
  return settings_.share->affords(work, freed(pages, std::min(next.early, next.time) - now));
}

double HelperRetention::freed(std::size_t pages, Duration gone) const {
  const double part = static_cast<double>(pages) / static_cast<double>(std::max(all_pages_, pages));
  return part * static_cast<double>(std::max<Duration>(gone, 0)) / kSecond;
}

bool HelperRetention::affords_by_thread(std::size_t pages, std::size_t entries, Duration worth,
                                        const Estimate& next, Time now) const {
  if (next.time == kNever) return false;
  const Duration gone = std::min(next.early, next.time) - now;
  return gone >= worth &&
         settings_.share->affords(costs_.deregistration.expected(entries), freed(pages, gone));
}

bool HelperRetention::worth_registering(const Buffer& buffer, const Estimate& next) const {
  if (next.reuse == 1) return true;
  const double late = next.reuse * static_cast<double>(worth(buffer));
  return late >= (1 - next.reuse) * static_cast<double>(patience(buffer));
}

bool HelperRetention::all_fit() const {
  return all_pages_ * page_size() <= peak_ && learnt_ >= kSettled * grown_at_;
}

void HelperRetention::give_back(Buffer& buffer) {
  if (buffer.reserved && buffer.by_thread) settings_.budget->leave_to_threads(-buffer.reserved);
  if (buffer.reserved) settings_.budget->give_back(buffer.reserved);
  buffer.reserved = 0;
}

Time HelperRetention::waits_until(const Action& action) const {
  return wants(action) ? action.use + kPatience * buffers_[action.buffer].longest_interval : 0;
}

Duration HelperRetention::patience(const Buffer& buffer) const {
  return std::max(std::min(kPatience * buffer.longest_interval, worth(buffer)), kLeastPatience);
}

void HelperRetention::listen(BufferId id, Time after, Time now) {
  Buffer& buffer = buffers_[id];
  if (buffer.longest_interval < kLeastIdle) return;
  if (share_binds() && !settings_.share->affords(0, freed(buffer.pages.pages(), kLongestOver))) {
    overs_.set(id, kNever);
    return;
  }
  const Time use = next_time(id, after);
  buffer.over = use == kNever ? kNever : std::max(use + buffer.lasts, now) + kOver;
  overs_.set(id, buffer.over);
}

void HelperRetention::listen_on(BufferId id, Time now) {
  const Buffer& buffer = buffers_[id];
  const Duration waited = std::max(now - buffer.over, 2 * kOver);
  const bool affordable = !share_binds() || settings_.share->affords(0, freed(buffer.pages.pages(), waited));
  const bool awaited = registered(buffer.region) && waited < kLongestOver && affordable;
  overs_.set(id, awaited ? now + waited : kNever);
}

Time HelperRetention::first_due() const {
  if (queue_.empty()) return kNever;
  const RegistrationQueue::Item item = queue_.first();
  return item.deadline - service_time(buffers_[item.buffer].entries) - costs_.wake.value();
}

HelperRetention::Action HelperRetention::next(Time now) {
  Action action;
  if (!settings_.act) {
    undecided_.clear();
    replaced_.clear();
    return action;
  }
  if (settings_.budget) settings_.budget->advance(now);
  while (!overs_.empty() && overs_.first().time <= now) listen_on(overs_.first().buffer, now);
  if (settings_.minimize_peak) look_at_peak();

  // Registration condition: while it holds, the first item of the RQ may wait.
  Time due;
  while ((due = first_due()) <= now) {
    const RegistrationQueue::Item item = queue_.first();
    const BufferId id = item.buffer;
    queue_.remove(id);
    const Buffer& buffer = buffers_[id];
    if (registered(buffer.region)) continue;
    // The prediction may have moved to a later time.
    const Time use = next_time(id, buffer.last_use);
    if (use == kNever) {
      listen(id, buffer.last_use, buffer.last_use);
      continue;
    }
    if (use - buffer.margin > item.asked) {
      queue_.insert(id, use - buffer.margin, item.service);
      continue;
    }
    action.kind = Action::Kind::register_ahead;
    action.buffer = id;
    action.pages = buffer.pages;
    action.access = buffer.access;
    action.use = use;
    action.after = buffer.last_use;
    return action;
  }

  while (!replaced_.empty()) {
    const RegionRef ref = replaced_.back();
    replaced_.pop_back();
    if (claim(ref, now, action)) return action;
  }

  // A deadline that has passed since the use is a use that should come at any moment: it counts.
  while (!undecided_.empty()) {
    const BufferId id = undecided_.front();
    undecided_.pop_front();
    learn_unseen(buffers_[id], now);
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
  for (const BufferId other : buffers_in(buffer.region.region->range()))
    if (buffers_[other].last_use != kNotYet) return false;
  if (looks_.of(id) == kNever) looks_.set(id, now + kTrial * worth(buffer));
  return true;
}

void HelperRetention::learn_unseen(Buffer& buffer, Time now) {
  if (!buffer.late) return;
  buffer.late = false;
  unseen_ += (std::clamp<Duration>(now - buffer.busy_until, 0, kLeastPatience) - unseen_) / 8;
}

/// When the buffers together stop fitting, the regions kept till then are looked at again.
void HelperRetention::look_at_peak() {
  peak_ = std::max(peak_, domain_.registered_bytes());
  const bool fit = all_fit();
  if (fitted_ && !fit) {
    for (const Deadlines::Item& look : looks_.in_order()) undecided_.push_back(look.buffer);
  }
  fitted_ = fit;
}

Time HelperRetention::next_deadline(Time wake) const {
  if (!overs_.empty()) wake = std::min(wake, overs_.first().time);
  if (!looks_.empty()) wake = std::min(wake, looks_.first().time);
  return wake;
}

void HelperRetention::done(const Action& action, RegionRef region, bool ok, Duration took, Time now) {
  if (action.kind == Action::Kind::deregister) {
    costs_.deregistration.observe(action.entries, took);
    for (const BufferId id : buffers_in(action.pages)) {
      buffers_[id].tried = true;
      buffers_[id].kept_since = now;
      enqueue(id, action.after);
    }
    return;
  }
  if (!ok || !buffers_[action.buffer].live) return;
  Buffer& buffer = buffers_[action.buffer];
  if (registered(region)) buffer.entries = entries_under(region.region, action.pages);
  if (took > 0) costs_.registered(action.pages.pages(), buffer.entries, took);
  buffer.region = region;
  if (!registered(region)) return;
  for (const BufferId id : buffers_in(region.region->range())) give_back(buffers_[id]);
  // The use that it is registered for, even if that is overdue: it is still to come.
  const Time own = next_time(action.buffer, now);
  const Time next = std::min(action.use, earliest_time(region.region->range(), now, action.buffer, own));
  expect(region, next);
  listen(action.buffer, buffer.last_use, now);
  looks_.set(action.buffer, (next == kNever ? now : next) + patience(buffer));
}

// ---- buffers ----

BufferId HelperRetention::buffer_of(Range pages) {
  const auto [at, is_new] = by_begin_.try_emplace({pages.begin, pages.end}, BufferId{0});
  if (!is_new) return at->second;
  ++changes_;
  BufferId id;
  if (free_ids_.empty()) {
    id = static_cast<BufferId>(buffers_.size());
    buffers_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  at->second = id;
  if (buffers_.size() > found_.size()) {
    found_.clear();
    found_.resize(std::bit_ceil(buffers_.size()));
  }
  buffers_[id] = Buffer{};
  buffers_[id].live = true;
  buffers_[id].pages = pages;
  all_pages_ += pages.pages();
  grown_at_ = learnt_ + 1;
  buffers_[id].entries = costs_.entries_a_page.of(pages.pages());
  if (by_begin_.size() > forget_beyond_) forget_oldest(id);
  return id;
}

void HelperRetention::drop(BufferId id) {
  queue_.remove(id);
  looks_.set(id, kNever);
  overs_.set(id, kNever);
  give_back(buffers_[id]);
  all_pages_ -= buffers_[id].pages.pages();
  predictor_.forget(id);
  ++changes_;
  by_begin_.erase({buffers_[id].pages.begin, buffers_[id].pages.end});
  buffers_[id] = Buffer{};
  free_ids_.push_back(id);
}

void HelperRetention::forget_oldest(BufferId except) {
  // Half of those that lack a region at once, so that a stream of buffers used only once costs O(1)
  // amortized.
  std::vector<std::pair<Time, BufferId>> by_use;
  for (const auto& [key, id] : by_begin_) {
    if (id != except && !registered(buffers_[id].region)) by_use.emplace_back(buffers_[id].last_use, id);
  }
  const auto middle = by_use.begin() + static_cast<std::ptrdiff_t>(by_use.size() / 2);
  std::nth_element(by_use.begin(), middle, by_use.end());
  for (auto at = by_use.begin(); at != middle; ++at) drop(at->second);
  // Where most have a region, the next attempt waits for more new buffers.
  forget_beyond_ = std::max(kMostBuffers, by_begin_.size() + kMostBuffers / 4);
}

}  // namespace pinion
