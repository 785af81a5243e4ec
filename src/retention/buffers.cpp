#include "retention/buffers.h"

#include <bit>

namespace pinion {

namespace {
// A settled region that rests so long is decided about.
constexpr Duration kRest = 10 * kMillisecond;

/// Keeps the four highest bits, so that small changes of the price leave the margins as they are.
Duration rounded_time(double value) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(value, 0.0, 1e17));
  const int rest = std::max(0, static_cast<int>(std::bit_width(whole)) - 4);
  return static_cast<Duration>(whole >> rest << rest);
}
}  // namespace

// ---- the table ----

std::pair<BufferId, bool> BufferTable::add(Range pages) {
  // Mostly it has a region of its own, whose buffers were asked for lately.
  if (const Found& found = found_[slot_of(pages)]; found.changes == changes_ && found.range == pages)
    for (const BufferId id : found.buffers)
      if (buffers_[id].pages == pages) return {id, false};
  const auto [at, is_new] = by_begin_.try_emplace({pages.begin, pages.end}, BufferId{0});
  if (!is_new) return {at->second, false};
  ++changes_;
  if (free_.empty()) {
    free_.push_back(static_cast<BufferId>(buffers_.size()));
    buffers_.emplace_back();
  }
  const BufferId id = at->second = free_.back();
  free_.pop_back();
  if (buffers_.size() > found_.size()) {
    found_.clear();
    found_.resize(std::bit_ceil(buffers_.size()));
    found_mask_ = found_.size() - 1;
  }
  buffers_[id].live = true;
  buffers_[id].pages = pages;
  all_pages_ += pages.pages();
  largest_pages_ = std::max(largest_pages_, pages.pages());
  return {id, true};
}

void BufferTable::remove(BufferId id) {
  Buffer& buffer = buffers_[id];
  PINION_ASSERT(buffer.live);
  all_pages_ -= buffer.pages.pages();
  ++changes_;
  by_begin_.erase({buffer.pages.begin, buffer.pages.end});
  buffer = Buffer{};
  free_.push_back(id);
}

const Ids& BufferTable::find_in(Range range) const {
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

Ids BufferTable::overlapping(Range range) const {
  Ids found;
  // No buffer that begins further before can reach into the range.
  const Address reach = largest_pages_ * page_size();
  const Address first = range.begin > reach ? range.begin - reach : 0;
  for (auto at = by_begin_.lower_bound({first, 0}); at != by_begin_.end() && at->first.first < range.end;
       ++at) {
    if (at->first.second > range.begin) found.push_back(at->second);
  }
  return found;
}

Ids BufferTable::longest_unused(BufferId except) const {
  std::vector<std::pair<Time, BufferId>> by_use;
  for (const auto& [key, id] : by_begin_) {
    if (id != except && !registered(buffers_[id].region)) by_use.emplace_back(buffers_[id].last_use, id);
  }
  const auto middle = by_use.begin() + static_cast<std::ptrdiff_t>(by_use.size() / 2);
  std::nth_element(by_use.begin(), middle, by_use.end());
  Ids oldest;
  for (auto at = by_use.begin(); at != middle; ++at) oldest.push_back(at->second);
  return oldest;
}

// ---- costs ----

void Ledger::note_terms() {
  const Terms terms{budget_.price(), budget_.twice_as_dear(), buffers_.all_pages(), unseen_,
                    costs_.registration.observed()};
  if (terms == terms_) return;
  terms_ = terms;
  ++terms_number_;
}

void Ledger::learn_unseen(Buffer& buffer, Time now) {
  if (!buffer.late) return;
  buffer.late = false;
  unseen_ += (std::clamp<Duration>(now - buffer.busy_until, 0, least_patience()) - unseen_) / 8;
}

Duration Ledger::worth(std::size_t pages, std::size_t entries) const {
  const auto share = static_cast<double>(std::max(buffers_.all_pages(), pages)) / static_cast<double>(pages);
  const auto lost = static_cast<double>(costs_.registration.expected(entries));
  const double price = terms_.price * (1 + lost / terms_.twice_as_dear);
  return rounded_time(price * share * lost + static_cast<double>(unseen_));
}

Duration Ledger::worth_of_work(std::size_t pages, Duration work) const {
  const auto share = static_cast<double>(std::max(buffers_.all_pages(), pages)) / static_cast<double>(pages);
  return rounded_time(TimeBudget::kPrice * share * static_cast<double>(budget_.lost(work)));
}

bool Ledger::worth_registering(const Buffer& buffer, const Estimate& next) const {
  if (next.reuse == 1) return true;
  const double late = next.reuse * static_cast<double>(worth(buffer));
  return late >= (1 - next.reuse) * static_cast<double>(patience(buffer));
}

bool Ledger::affords(std::size_t pages, std::size_t entries, const Estimate& next, Time now) const {
  if (!budget_.binds_helper()) return true;
  const Duration goes = costs_.deregistration.expected(entries);
  // The region is not expected back.
  if (next.time == kNever) return budget_.affords(goes, kNever);
  return budget_.affords(goes + costs_.registration.expected(entries), freed(pages, gone_until(next) - now));
}

double Ledger::freed(std::size_t pages, Duration gone) const {
  const double part = static_cast<double>(pages) / static_cast<double>(std::max(buffers_.all_pages(), pages));
  return part * static_cast<double>(std::max<Duration>(gone, 0)) / kSecond;
}

Duration Ledger::worst_cost(const RegionRef& ref) const {
  Duration sum = 0;
  for (const BufferId id : buffers_.in(ref.region->range())) {
    const Buffer& buffer = buffers_[id];
    if (!buffer.served_elsewhere(ref)) sum += costs_.registration.upper(buffer.entries) - buffer.reserved;
  }
  return std::max<Duration>(sum, 0);
}

void Ledger::reserve_for(Buffer& buffer) {
  const Duration worst = costs_.registration.upper(buffer.entries);
  budget_.reserve_beyond(worst - std::exchange(buffer.reserved, worst));
}

void Ledger::gone(const RegionRef& ref) {
  for (const BufferId id : buffers_.in(ref.region->range()))
    if (!buffers_[id].served_elsewhere(ref)) reserve_for(buffers_[id]);
}

void Ledger::gone_for_peak(Buffer& buffer) {
  if (buffer.reserved == 0) reserve_for(buffer);
}

void Ledger::give_back(Buffer& buffer) { budget_.give_back(std::exchange(buffer.reserved, 0)); }

// ---- next uses ----

Duration Forecast::delayed_before(std::uint16_t thread, Time call, Duration delayed) {
  Thread& last = grown(threads_, thread);
  if (call == last.call) return std::min(delayed, last.delayed);
  last.call = call;
  last.delayed = delayed;
  return delayed;
}

Observed Forecast::learn(const Use& use) {
  ++learnt_;
  Observed observed = predictor_.observe(use);
  observed.foreseen = delayed_by(observed.foreseen, use.delayed);
  observed.next = delayed_by(observed.next, use.delayed);
  return observed;
}

const Estimate& Forecast::next_use(BufferId id, Time after) const {
  const Buffer& buffer = buffers_[id];
  const Duration worth = ledger_.worth(buffer);
  KnownUse& known = buffer.known_use;
  const bool same = after == known.after || (after > known.after && after < known.next.until);
  if (same && known.learnt == learnt_ && known.worth == worth) return known.next;
  const Duration delay = delay_of(buffer);
  known = {learnt_, after, worth, predictor_.estimate(id, after - delay, worth)};
  Estimate& next = known.next;
  next.time = delayed_by(next.time, delay);
  next.early = delayed_by(next.early, delay);
  next.until = delayed_by(next.until, delay);
  return next;
}

Estimate Forecast::earliest_use(const Ids& region, Time after) const {
  if (region.size() == 1) return next_use(region.front(), after);
  BufferId first = 0;
  Time earliest = kNever, early = kNever;
  for (const BufferId id : region) {
    const Time next = next_time(id, after);
    if (next == kNever) continue;
    earliest = std::min(earliest, next);
    if (next - buffers_[id].expected.margin >= early) continue;
    early = next - buffers_[id].expected.margin;
    first = id;
  }
  if (earliest == kNever) return {};
  Estimate estimate = next_use(first, after);
  estimate.time = earliest;
  return estimate;
}

Time Forecast::earliest_time(const Ids& region, Time after, BufferId id, Time known) const {
  Time earliest = kNever;
  for (const BufferId other : region)
    earliest = std::min(earliest, other == id ? known : next_time(other, after));
  return earliest;
}

// ---- settled regions ----

void SettledRegions::note(Buffer& buffer, const runlog::Event& lease, RegionRef region, May may) {
  const bool soon = buffer.reused && lease.outcome == runlog::Outcome::hit &&
                    buffer.region.region == region.region && registered(region) &&
                    interval(buffer, lease.begin_ns, *region.region) <= ledger_.away(buffer);
  unsigned& in_a_row = grown(soon_, lease.thread);
  in_a_row = soon ? std::min(in_a_row + 1, kRun) : 0;
  const bool settled = may == May::at_once ? registered(region) : may == May::after_a_run && in_a_row == kRun;
  if (settled && !buffer.settled.by_last_use) buffer.settled.since = lease.begin_ns;
  if (!settled && buffer.settled.by_last_use) unmark(buffer.region);
  if (settled) buffer.settled.use = lease;
  buffer.settled.by_last_use = settled;
}

Duration SettledRegions::interval(Buffer& buffer, Time begin, const Region& region) const {
  const std::uint32_t uses = region.uses.load(std::memory_order_relaxed);
  const std::uint32_t since = uses - std::exchange(buffer.settled.uses, uses);
  const Duration time = begin - buffer.last_use;
  if (!records_lost_) return time;
  const auto buffers = static_cast<Duration>(buffers_.in(region.range()).size());
  return time * buffers / (buffers + since);
}

Time SettledRegions::rested_at(RegionRef ref, const Ids& buffers, Time now) {
  const auto mark = marked_.find(ref.region);
  const bool used = mark != marked_.end() && registered(ref_of(*mark)) && look(ref.region, mark->second, now);
  Time rested = kNotYet, since = kNever;
  for (const BufferId id : buffers) {
    const Buffer& buffer = buffers_[id];
    if (!buffer.settled.by_last_use) continue;
    rested = std::max(rested, buffer.last_use + kRest);
    since = std::min(since, buffer.settled.since);
  }
  if (rested <= now)
    unmark(ref);
  else if (used)
    rested = std::max(rested, now + std::min((now - since) / kLooksPerTime, kLongestSleep));
  return rested;
}

void SettledRegions::mark(RegionRef ref, Time now, Time until) {
  for (const BufferId id : buffers_.in(ref.region->range()))
    if (!buffers_[id].settled.by_last_use) return;
  Marked& marked = marked_[ref.region];
  marked.until = until;
  if (marked.generation == ref.generation && ref.region->settled.load(std::memory_order_relaxed)) return;
  marked.generation = ref.generation;
  marked.uses = ref.region->uses.load(std::memory_order_relaxed);
  marked.looked = now;
  ref.region->settled.store(true, std::memory_order_relaxed);
}

void SettledRegions::unmark(const RegionRef& ref) {
  if (marked_.erase(ref.region) != 0 && ref.current())
    ref.region->settled.store(false, std::memory_order_relaxed);
}

bool SettledRegions::look(Region* region, Marked& marked, Time now) {
  const std::uint32_t uses = region->uses.load(std::memory_order_relaxed);
  const std::uint32_t count = uses - std::exchange(marked.uses, uses);
  const Time before = std::exchange(marked.looked, now);
  if (count == 0) return false;
  // Uses leave no time: the last one was just now, for all that is known.
  region->last_use.store(domain_.clock().ticks_at(now), std::memory_order_relaxed);
  const Ids& all = buffers_.in(region->range());
  const auto buffers = static_cast<std::uint32_t>(all.size());
  std::uint32_t left = count;
  for (std::uint32_t i = 0; i < buffers; ++i) {
    Buffer& buffer = buffers_[all[i]];
    buffer.last_use = std::max(buffer.last_use, now);
    buffer.busy_until = std::max(buffer.busy_until, now);
    buffer.settled.passed = 0;  // the next one is learnt from
    const std::uint32_t share = left / (buffers - i);
    left -= share;
    note_run(buffer, share, before, now);
  }
  return true;
}

/// The buffers of a region share its count, and each use lasts as those that left records.
void SettledRegions::note_run(const Buffer& buffer, std::uint32_t count, Time begin, Time end) {
  if (count == 0) return;
  runlog::Event run = buffer.settled.use;
  run.kind = runlog::EventKind::uses;
  run.begin_ns = begin;
  run.end_ns = end;
  run.count = count;
  run.leased_ns =
      std::min(count * static_cast<std::uint64_t>(buffer.lasts), static_cast<std::uint64_t>(end - begin));
  runs_.push_back(run);
}

std::size_t SettledRegions::bytes(Time now) {
  std::size_t bytes = 0;
  std::erase_if(marked_, [&](const Marks::value_type& mark) {
    if (!registered(ref_of(mark))) return true;
    if (mark.second.until >= now) bytes += mark.first->range().bytes();
    return false;
  });
  return bytes;
}

void SettledRegions::end(const RegionRef& ref, Time now) {
  const auto mark = marked_.find(ref.region);
  if (mark == marked_.end()) return;
  if (ref.current() && mark->second.generation == ref.generation) look(ref.region, mark->second, now);
  unmark(ref);
}

void SettledRegions::clear(Time now) {
  while (!marked_.empty()) end(ref_of(*marked_.begin()), now);
}

}  // namespace pinion
