#include "lease/arena_leases.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/held_signals.h"
#include "monitor/memory_calls.h"
#include "placement/kernel_pages.h"

namespace pinion {

ArenaLeases::ArenaLeases(HugepageHeap& heap, Arena& arena, Access rights)
    : heap_(heap),
      arena_(arena),
      begin_(arena.range().begin),
      bytes_(arena.range().bytes()),
      granule_bits_(arena.granules().bits),
      rights_(rights),
      services_(bytes_ == 0 ? nullptr : std::make_unique<Service[]>(kMostDomains * Granules::kMost)),
      served_before_(bytes_ == 0 ? ArenaFigures{} : served_so_far()) {}

// ---- opening ----

Range ArenaLeases::begin_opening(int domain, Range request, bool ahead) {
  const Range found = arena_.devices().at(request.begin);
  if (!found.contains(request)) return {};
  if (rests(domain, found)) return {};
  // Without the mutex: a thread that forks holds the heap's mutexes, and may wait for this one.
  static_cast<void>(heap_.cut_unused(request.begin));
  const HeldSignals held;
  const MutexLock lock(mutex_);
  const Range segment = arena_.devices().at(request.begin);
  const bool is_open = std::any_of(open_.begin(), open_.end(), [&](const Open& open) {
    return open.domain == domain && open.segment == segment;
  });
  const Range pages = is_open ? Range{} : arena_.devices().pin(segment, request);
  if (pages.empty()) return {};
  open_.push_back({domain, segment, monotonic_now(), {}, ahead});
  opens_.store(open_.size(), std::memory_order_release);
  return pages;
}

void ArenaLeases::finish_opening(int domain, Range pages, Region* region) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& one) {
    return one.domain == domain && one.segment.contains(pages);
  });
  PINION_ASSERT(open != open_.end() && "begin_opening() came first");
  if (region == nullptr) {
    ++figures_.refused;
    rest(*open, monotonic_now() + kRest);
    open->refused = true;
    return;
  }
  ++figures_.registrations;
  if (open->ahead) ++figures_.ahead;
  open->region = {region, region->generation()};
  set_regions(*open, region);
}

void ArenaLeases::set_regions(const Open& open, Region* region) {
  for (Address at = open.segment.begin; at < open.segment.end; at += std::size_t{1} << granule_bits_) {
    Service& service = service_at(open.domain, at);
    service.region.store(region, std::memory_order_release);
    if (region != nullptr) service.proof.store(region->word.load().proof(), std::memory_order_release);
  }
}

// ---- closing ----

bool ArenaLeases::close_idle(std::uint64_t bytes, Duration rest) {
  if (opens_.load(std::memory_order_acquire) == 0) return false;
  const HeldSignals held;
  const MutexLock lock(mutex_);
  std::uint64_t closed = 0;
  for (Open& open : open_) {
    if (closed >= bytes) break;
    if (open.region.region == nullptr || is_closing(open)) continue;
    const std::uint16_t at = open.region.region->shared.at.load(std::memory_order_acquire);
    if (at == 0 || leases_out_at(at - 1u) != 0) continue;
    close(open, monotonic_now() + rest);
    ++figures_.let_go;
    closed += open.region.region->range().bytes();
  }
  return closed != 0;
}

void ArenaLeases::close(int domain) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (Open& open : open_)
    if (open.domain == domain && open.region.region != nullptr && !open.closing)
      close(open, monotonic_now() + kRest);
}

void ArenaLeases::make_way(int domain, Range pages, Access access) {
  if (!holds(pages.begin)) [[likely]]
    return;
  const Region* const serving = service_at(domain, pages.begin).region.load(std::memory_order_acquire);
  if (serving == nullptr) return;
  const bool has_rights = includes(serving->access.load(std::memory_order_relaxed), access);
  if (has_rights && !pages.contains(serving->range())) return;
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (Open& open : open_) {
    if (open.domain != domain || open.region.region != serving || open.closing) continue;
    close(open, kNever);
    ++figures_.refused;
  }
}

void ArenaLeases::close(Open& open, Time not_before) {
  open.closing = true;
  // A region that a hook has doomed may be gone by now.
  open.region.region->word.doom_only(open.region.generation);
  set_regions(open, nullptr);
  rest(open, not_before);
}

void ArenaLeases::rest(const Open& open, Time not_before) {
  Service& service = service_at(open.domain, open.segment.begin);
  service.closed.store(arena_.devices().number_at(open.segment.begin), std::memory_order_relaxed);
  service.not_before.store(not_before, std::memory_order_relaxed);
}

/// A segment of another number began there since: it may be opened at once.
bool ArenaLeases::rests(int domain, Range segment) {
  const Service& service = service_at(domain, segment.begin);
  return monotonic_now() < service.not_before.load(std::memory_order_relaxed) &&
         service.closed.load(std::memory_order_relaxed) == arena_.devices().number_at(segment.begin);
}

bool ArenaLeases::is_closing(const Open& open) {
  return open.closing || !open.region.current() || open.region.region->word.load().doomed() ||
         !(arena_.devices().at(open.segment.begin) == open.segment);
}

void ArenaLeases::end_closed() {
  if (opens_.load(std::memory_order_acquire) == 0) return;
  std::vector<Range> left;
  {
    const HeldSignals held;
    const MutexLock lock(mutex_);
    for (Open& open : open_) {
      if (open.region.region == nullptr || open.closing || !is_closing(open)) continue;
      if (arena_.devices().at(open.segment.begin) == open.segment) ++figures_.doomed;
      close(open, open.since + kRest);
    }
    left = forget_gone();
  }
  for (const Range segment : left) arena_.devices().give_back(segment);
}

/// Forgets the segments that are deregistered. Returns those whose memory may go.
std::vector<Range> ArenaLeases::forget_gone() {
  std::vector<Range> gone, left;
  // Another thread may deregister a region at this moment: each is asked once.
  std::erase_if(open_, [&gone](const Open& open) {
    const Region* const region = open.region.region;
    const bool is_gone = region == nullptr
                             ? open.refused
                             : !open.region.current() || region->word.load().state() == RegionState::free;
    if (is_gone) gone.push_back(open.segment);
    return is_gone;
  });
  opens_.store(open_.size(), std::memory_order_release);
  for (const Range segment : gone) {
    const bool is_open =
        std::any_of(open_.begin(), open_.end(), [&](const Open& open) { return open.segment == segment; });
    if (!is_open && arena_.devices().unpin(segment)) left.push_back(segment);
  }
  return left;
}

// ---- hooks ----

bool ArenaLeases::is_open(Range range) const {
  bool open = false;
  for (int domain = 0; domain < kMostDomains && !open && holds(range.begin); ++domain) {
    const Region* const region = service_at(domain, range.begin).region.load(std::memory_order_acquire);
    open = region != nullptr && region->word.load().leasable() && region->range().contains(range);
  }
  return open;
}

ArenaLeases::Met ArenaLeases::meet(const MemoryChange& change) {
  const Range arena = arena_.range();
  if (!arena.overlaps(change.range)) [[likely]]
    return {};
  if (!arena.contains(change.range)) {
    const Range common{std::max(arena.begin, change.range.begin), std::min(arena.end, change.range.end)};
    if (change.kind == ChangeKind::rights) arena_.changes().note_deprived(common);
    return {};
  }
  switch (change.kind) {
    case ChangeKind::zeros:
    case ChangeKind::lazily:
      if (clears(change)) return {Answer::done, false};
      return {};
    case ChangeKind::unmap:
      return {Answer::done, arena_.changes().is_replaced(change.range)};
    case ChangeKind::rights:
      arena_.changes().note_deprived(change.range);
      return {Answer::proceed, false};
    case ChangeKind::moves:
      // The kernel would leave a hole where other mappings lie.
      return {arena_.changes().is_whole(change.range) ? Answer::copy : change.alternative, false};
    default:
      // Otherwise the heap gives a segment back, or the change has happened already.
      if (change.alternative != Answer::refuse) return {};
      arena_.changes().note_replaced(change.range);
      return {arena_.changes().is_in_change(change.range) ? Answer::refuse : Answer::proceed};
  }
}

void ArenaLeases::withhold(Range range) {
  if (!arena_.range().contains(range) || !arena_.changes().withhold(range)) return;
  withheld_bytes_.fetch_add(range.bytes(), std::memory_order_relaxed);
}

bool ArenaLeases::clears(const MemoryChange& change) {
  if (!is_open(change.range) || !arena_.changes().is_whole(change.range) ||
      !is_private_anonymous(change.range))
    return false;
  if (change.kind == ChangeKind::lazily) return true;
  std::memset(reinterpret_cast<void*>(change.range.begin), 0, change.range.bytes());
  cleared_bytes_.fetch_add(change.range.bytes(), std::memory_order_relaxed);
  return true;
}

bool ArenaLeases::is_own(Range range) const {
  return !range.empty() && holds(range.begin) && arena_.devices().at(range.begin).contains(range) &&
         !arena_.changes().is_replaced(range);
}

// ---- figures ----

ArenaFigures ArenaLeases::figures() {
  const HeldSignals held;
  const SegmentTable::Figures of_arena = arena_.figures();
  const MutexLock lock(mutex_);
  ArenaFigures sum = figures_;
  sum.processes = bytes_ != 0;
  sum.bytes = bytes_;
  sum.segments = of_arena.most_segments;
  sum.segment_bytes = of_arena.most_bytes;
  sum.withheld_bytes = withheld_bytes_.load(std::memory_order_relaxed);
  sum.cleared_bytes = cleared_bytes_.load(std::memory_order_relaxed);
  const ArenaFigures served = bytes_ == 0 ? ArenaFigures{} : served_so_far();
  sum.served = served.served - served_before_.served;
  sum.served_bytes = served.served_bytes - served_before_.served_bytes;
  sum.requests = sum.served;
  for (const ThreadContext* thread = all_threads(); thread; thread = thread->next)
    for (const ThreadCounters& counters : thread->counters) sum.requests += counters.arena_passed.get();
  return sum;
}

ArenaFigures ArenaLeases::served_so_far() {
  ArenaFigures sum;
  for (const ThreadContext* thread = all_threads(); thread; thread = thread->next)
    for (std::size_t place = kSharedPlaces; place < kCountedPlaces; ++place) {
      const LeaseCount& count = thread->counted().at[place];
      sum.served +=
          count.taken.load(std::memory_order_relaxed) - count.refused.load(std::memory_order_relaxed);
      sum.served_bytes += count.bytes.load(std::memory_order_relaxed);
    }
  return sum;
}

}  // namespace pinion
