#include "placement/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "monitor/memory_events.h"
#include "placement/kernel_pages.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

namespace pinion {

namespace {

/// The thread forks, and holds the mutex.
constinit thread_local bool t_forking = false;
/// The thread gives or takes the memory of granules.
constinit thread_local bool t_changing = false;

std::size_t granules_for(std::size_t bytes) { return (bytes + Arena::kGranule - 1) / Arena::kGranule; }

}  // namespace

class Arena::Locked {
 public:
  explicit Locked(std::mutex& mutex) : mutex_(mutex) {
    ++t_held_mutexes;
    if (!t_forking) mutex_.lock();
  }
  ~Locked() {
    if (!t_forking) mutex_.unlock();
    --t_held_mutexes;
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  std::mutex& mutex_;
};

/// Until its end, no mapping is laid over these granules. A mapping marks them before it looks at this; the
/// owner looks for marks when it has begun.
class Arena::Changing {
 public:
  Changing(Arena& arena, Range range)
      : arena_(arena), first_(arena.granule_of(range.begin)), last_(arena.granule_of(range.end - 1)) {
    set(true);
  }
  ~Changing() { set(false); }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  void set(bool changes) {
    t_changing = changes;
    for (std::size_t i = first_; i <= last_; ++i) arena_.in_change_[i].store(changes);
  }

  Arena& arena_;
  const std::size_t first_, last_;
};

bool Arena::reserve(std::size_t bytes, bool beyond) {
  Range range = reserve_unseen(std::min(granules_for(bytes), kMostGranules) * kGranule);
  for (ChunkMarks* const marks : all_marks()) {
    if (range.empty()) break;
    void* const zeros = other_.map_records(ChunkMarks::bytes_for(range));
    if (zeros == nullptr) {
      unmap_unseen(range);
      range = {};
    }
    marks->begin(range, zeros);
  }
  range_ = range;
  beyond_ = beyond || range_.empty();
  return !range_.empty();
}

// ---- the heap ----

Pages Arena::map(std::size_t least, std::size_t wanted) {
  if (range_.empty()) return other_.map(least, wanted);
  // Room for some blocks of this size, without much memory that is registered for nothing.
  const std::size_t roomy = std::min(wanted, std::max(least, granules_for(4 * least) * kGranule));
  Pages pages = take(roomy);
  if (pages.range.empty() && least < roomy) pages = take(least);
  return pages.range.empty() && beyond_ ? other_.map(least, wanted) : pages;
}

Pages Arena::take(std::size_t bytes) {
  const Locked locked(mutex_);
  const std::size_t granules = granules_for(bytes), first = find_free(granules);
  if (first == kMostGranules) return {};
  const Address begin = range_.begin + first * kGranule;
  Pages pages{{begin, begin + bytes}, Backing::base, true};
  const Changing changing(*this, pages.range);
  if (!laid_over(pages.range).empty() || !commit(pages)) return {};
  segments_[first] = {pages.range, true, false};
  std::fill_n(first_.begin() + static_cast<std::ptrdiff_t>(first), granules,
              static_cast<std::uint16_t>(first + 1));
  figures_.bytes += bytes;
  figures_.most_segments = std::max(figures_.most_segments, ++figures_.segments);
  figures_.most_bytes = std::max(figures_.most_bytes, figures_.bytes);
  return pages;
}

bool Arena::commit(Pages& pages) { return (aliases_ && commit_aliased(pages)) || commit_unseen(pages); }

bool Arena::commit_aliased(Pages& pages) {
  const Range view = map_view_unseen(pages.range.bytes());
  if (view.empty()) return false;
  if (!view_unseen(view, pages.range)) {
    unmap_unseen(view);
    reserve_unseen_at(pages.range);  // the kernel may have emptied the addresses before it refused
    return false;
  }
  pages.backing = Backing::base;
  for (Address at = pages.range.begin; at < pages.range.end; at += kGranule)
    views_[granule_of(at)].store(view.begin + (at - pages.range.begin), std::memory_order_release);
  return true;
}

Range Arena::view_of(Range range) const {
  const Address view = views_[granule_of(range.begin)].load(std::memory_order_acquire);
  if (view == 0) return {};
  const Address begin = view + (range.begin - range_.begin) % kGranule;
  return {begin, begin + range.bytes()};
}

template <class Visit>
void Arena::for_each_granule(Range range, Visit&& visit) const {
  for (Address at = range.begin; at < range.end;) {
    const Range part{at, std::min(range.end, granule(granule_of(at)).end)};
    visit(part);
    at = part.end;
  }
}

bool Arena::has_views(Range range) const {
  return aliases_ && range_.contains(range) && !view_of(range).empty();
}

std::size_t Arena::find_free(std::size_t granules) const {
  const std::size_t all = range_.bytes() / kGranule;
  std::size_t free = 0;
  for (std::size_t i = 0; i < all; ++i) {
    free = first_[i] == 0 && laid_over(granule(i)).empty() ? free + 1 : 0;
    if (free == granules) return i + 1 - granules;
  }
  return kMostGranules;
}

void Arena::unmap(const Pages& pages) {
  if (!range_.contains(pages.range)) return other_.unmap(pages);
  bool pinned = false;
  {
    const Locked locked(mutex_);
    Segment& segment = segment_of(pages.range);
    segment.of_heap = false;
    pinned = segment.pinned;
  }
  if (!pinned) return give_back(pages.range);
  memory_events::begin({pages.range});
  memory_events::end(pages.range);
}

bool Arena::is_marked(Range range) const {
  bool marked = false;
  for (std::size_t i = granule_of(range.begin); i <= granule_of(range.end - 1); ++i)
    marked = marked || marked_[i].load(std::memory_order_acquire);
  return marked;
}

Range Arena::laid_over(Range range) const {
  if (range.empty() || !range_.contains(range) || !is_marked(range)) return {};
  const Address begin = laid_over_.find(range, true);
  return {begin, laid_over_.find({begin, range.end}, false)};
}

/// What replaced the heap's memory has gone by reclaim().
bool Arena::make_whole(Range block) {
  if (!range_.contains(block) || !is_marked(block)) return true;
  const bool pinned = is_pinned(block.begin);
  if (!pinned) replaced_.clear(block);
  withheld_.clear(block);
  if (!deprived_.any(block) && !unshared_.any(block)) return true;
  if (!make_plain_unseen(block, pinned || !view_of(block).empty())) {
    deprived_.for_each_run(block, [this](Range run) { note_replaced(run); });
    return false;
  }
  deprived_.clear(block);
  unshared_.clear(block);
  return true;
}

namespace {

void clear_view(Range view) { std::memset(reinterpret_cast<void*>(view.begin), 0, view.bytes()); }

/// Fresh memory in place of any mapping. By libc's function, so that the hooks of other libraries see it too.
bool map_over(Range range, int protection, int flags) {
  memory_events::begin({range});
  const bool mapped = ::mmap(reinterpret_cast<void*>(range.begin), range.bytes(), protection,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0) != MAP_FAILED;
  memory_events::end(range);
  return mapped;
}

}  // namespace

bool Arena::make_fresh(Range range) {
  const Range view = view_of(range);
  if (view.empty()) {
    if (!map_over(range, PROT_READ | PROT_WRITE, 0)) return false;
    advise_hugepages(range);
    return true;
  }
  // By way of addresses without memory, for the hooks of other libraries.
  if (!map_over(range, PROT_NONE, MAP_NORESERVE)) return false;
  if (!drop(range)) clear_view(view);
  return view_unseen(view, range);
}

/// Of memory with two views. Never under a registration.
bool Arena::drop(Range range) {
  const Locked locked(mutex_);
  return !segment_around(range.begin).pinned && drop_view_unseen(view_of(range));
}

/// Writes zeros to what lies in the range and is the heap's, whatever the program did to its rights.
void Arena::clear(Range range) {
  for_each_granule(range, [this](Range part) {
    for (Address at = part.begin; at < part.end;) {
      const Address end = replaced_.find({at, part.end}, true);
      if (at < end) clear_view(view_of({at, end}));
      cleared_.fetch_add(end - at, std::memory_order_relaxed);
      at = replaced_.find({end, part.end}, false);
    }
  });
}

/// A registration of the segment has other pages still, so the marks stay until the segment is new. One of
/// the second view has these again.
bool Arena::renew(Range range) {
  if (!make_fresh(range)) {
    note_replaced(range);
    return false;
  }
  laid_over_.clear(range);
  forget_wishes(range);
  const Locked locked(mutex_);
  if (segment_around(range.begin).pinned && view_of(range).empty()) return true;
  replaced_.clear(range);
  deprived_.clear(range);
  return true;
}

bool Arena::is_pinned(Address address) {
  const Locked locked(mutex_);
  return segment_around(address).pinned;
}

bool Arena::is_open() { return t_forking || comes_free(mutex_); }

bool Arena::reclaim(Range block) {
  if (!range_.contains(block) || !is_marked(block)) return true;
  if (unshared_.any(block)) {
    unshared_.clear(block);
    if (!is_pinned(block.begin)) show(block);
  }
  bool renewed = true;
  laid_over_.for_each_run(block, [&](Range run) { renewed = renew(run) && renewed; });
  return renewed;
}

/// A registration keeps its pages. Others go back to the kernel, as by munmap.
Recycled Arena::recycle(Range range) {
  if (!is_pinned(range.begin)) return renew(range) ? Recycled::zeroed : Recycled::refused;
  if (!reclaim(range)) return Recycled::refused;
  unlock(range);
  forget_wishes(range);
  if (make_plain_unseen(range, true))  // hidden, as the rest of the segment
    deprived_.clear(range);
  else
    note_deprived(range);
  return Recycled::kept;
}

/// A new mapping of a process that locks all of them is locked.
void Arena::unlock(Range range) const {
  if (!locks_future_.load(std::memory_order_relaxed)) unlock_unseen(range);
}

/// In areas of the heap the memory is free; elsewhere addresses stay reserved.
bool Arena::vacate(Range range) {
  if (laid_over(range).empty()) return false;
  for (Address at = range.begin; at < range.end;) {
    const Range part{at, std::min(range.end, granule(granule_of(at)).end)};
    const bool in_area = !segment_at(at).empty();
    at = part.end;
    if (laid_over(part).empty()) continue;
    laid_over_.for_each_run(part, [&](Range run) {
      if (in_area)
        renew(run);
      else if (map_over(run, PROT_NONE, MAP_NORESERVE))
        laid_over_.clear(run);
    });
    if (const Range left = left_segment_at(part.begin); !left.empty()) give_back(left);
  }
  return true;
}

bool Arena::lay_over(Range range) {
  const Locked locked(mutex_);
  if (is_in_change(range)) return false;
  note_replaced(range);
  return true;
}

Range Arena::take_withheld(Range block) {
  if (!range_.contains(block) || !is_marked(block)) return {};
  const Address begin = withheld_.find(block, true);
  const Range run{begin, withheld_.find({begin, block.end}, false)};
  withheld_.clear(run);
  return run;
}

bool Arena::is_in_change(Range range) const {
  if (t_changing) return false;
  bool changes = false;
  for (std::size_t i = granule_of(range.begin); i <= granule_of(range.end - 1); ++i)
    changes = changes || in_change_[i].load();
  return changes;
}

/// One that waited for its registrations, or for a mapping of the program over it.
Range Arena::left_segment_at(Address address) {
  const Locked locked(mutex_);
  const std::size_t first = first_[granule_of(address)];
  if (first == 0 || segments_[first - 1].of_heap || segments_[first - 1].pinned) return {};
  return segments_[first - 1].range;
}

void Arena::give_back(Range range) {
  std::optional<Changing> changing;
  {
    const Locked locked(mutex_);
    const Segment& segment = segment_of(range);
    if (!(segment.range == range) || segment.pinned || is_in_change(range)) return;
    changing.emplace(*this, range);
    if (!laid_over(range).empty()) return;  // the program's: the granules stay out of use as long
  }
  if (!map_over(range, PROT_NONE, MAP_NORESERVE)) return;  // they stay out of use
  unmap_unseen(view_of(range));
  const Locked locked(mutex_);
  forget(segment_of(range));
}

void Arena::forget(Segment& segment) {
  for (ChunkMarks* const marks : all_marks()) marks->clear(segment.range);
  for (std::size_t i = 0; i < granules_for(segment.range.bytes()); ++i) {
    marked_[granule_of(segment.range.begin) + i].store(false, std::memory_order_relaxed);
    views_[granule_of(segment.range.begin) + i].store(0, std::memory_order_relaxed);
  }
  std::fill_n(first_.begin() + static_cast<std::ptrdiff_t>(granule_of(segment.range.begin)),
              granules_for(segment.range.bytes()), std::uint16_t{0});
  --figures_.segments;
  figures_.bytes -= segment.range.bytes();
  segment = {};
}

// ---- devices ----

Range Arena::segment_at(Address address) {
  const Locked locked(mutex_);
  const std::size_t first = first_[granule_of(address)];
  if (first == 0 || !segments_[first - 1].of_heap) return {};
  return segments_[first - 1].range;
}

Range Arena::pin(Range range, Range request) {
  const Locked locked(mutex_);
  Segment& segment = segment_of(range);
  if (!(segment.range == range) || !segment.of_heap) return {};
  const Range part = longest_whole(range);
  if (!part.contains(request) || (!shown_.load() && !hide_unseen(part, true))) return {};
  segment.pinned = true;
  return part;
}

Range Arena::longest_whole(Range segment) const {
  Range longest{segment.begin, segment.begin};
  for (Address at = segment.begin; at < segment.end;) {
    const Range rest{at, segment.end};
    const Address end = std::min(deprived_.find(rest, true), replaced_.find(rest, true));
    if (end - at > longest.bytes()) longest = {at, end};
    // Past the marks of one kind; those of the other end an empty part.
    at = end == at ? std::max(deprived_.find(rest, false), replaced_.find(rest, false)) : end;
  }
  return longest;
}

bool Arena::unpin(Range range) {
  const Locked locked(mutex_);
  Segment& segment = segment_of(range);
  segment.pinned = false;
  if (const Range view = view_of(range); !view.empty())
    hide_unseen(view, true);  // a device may have shown it
  if (segment.of_heap) show_but_unshared(range);
  return !segment.of_heap;
}

// ---- hooks ----

void Arena::mark_granules(Range range) {
  for (std::size_t i = granule_of(range.begin); i <= granule_of(range.end - 1); ++i)
    marked_[i].store(true, std::memory_order_release);
}

void Arena::note_deprived(Range range) {
  deprived_.set(range);
  mark_granules(range);
}

/// Children get what takes the place of a hidden segment's memory from the kernel.
void Arena::note_replaced(Range range) {
  replaced_.set(range);
  laid_over_.set(range);
  forget_wishes(range);
  mark_granules(range);
  show(range);
}

/// MADV_DOFORK shows pinned memory too, until the next fork.
std::optional<int> Arena::advise(Range range, int advice, bool wish) {
  if (wish && advice == MADV_DONTFORK) {
    unshared_.set(range);
    mark_granules(range);
  } else if (wish && advice == MADV_DOFORK) {
    unshared_.clear(range);
    shown_.store(true);
  }
  return has_views(range) ? advise_viewed(range, advice) : std::nullopt;
}

/// Memory that the program takes for private memory.
std::optional<int> Arena::advise_viewed(Range range, int advice) {
  switch (advice) {
    case MADV_DONTNEED:  // the kernel would leave it its contents
    case MADV_DONTNEED_LOCKED:
      clear(range);
      return is_replaced(range) ? std::nullopt : std::optional(0);
    case MADV_DOFORK:  // children would share it
    case MADV_FREE:    // the kernel would refuse it
      return 0;
    case MADV_REMOVE:  // the kernel would carry it out, under a registration too
    case MADV_WIPEONFORK:
      return EINVAL;
    default:
      return std::nullopt;
  }
}

bool Arena::withhold(Range range) {
  if (is_replaced(range)) {
    note_replaced(range);
    return empty_unseen(range);
  }
  note_deprived(range);
  withheld_.set(range);
  withholds_.store(true);
  unlock(range);
  return protect_unseen(range, PROT_NONE);
}

// ---- figures ----

Arena::Figures Arena::figures() {
  const Locked locked(mutex_);
  Figures figures = figures_;
  figures.cleared = cleared_.load(std::memory_order_relaxed);
  return figures;
}

// ---- fork ----

void Arena::before_fork() {
  mutex_.lock();
  t_forking = true;
  if (shown_.exchange(false)) hide_pinned();
  // A child cannot begin on a stack that it lacks.
  const auto stack = reinterpret_cast<Address>(__builtin_frame_address(0));
  if (!range_.contains({stack, stack + 1}) || first_[granule_of(stack)] == 0) return;
  const Segment& segment = segment_around(stack);
  if (!segment.pinned || has_views(segment.range)) return;
  show_but_unshared(segment.range);
  of_stack_ = segment.range;
}

void Arena::show(Range range) const {
  if (!aliases_) {
    hide_unseen(range, false);
    return;
  }
  for_each_granule(range, [this](Range part) {
    if (view_of(part).empty()) hide_unseen(part, false);
  });
}

/// Children have what took the place of a segment's memory in any case.
void Arena::hide_pinned() const {
  for (const Segment& segment : segments_) {
    if (!segment.pinned) continue;
    hide_unseen(segment.range, true);
    replaced_.for_each_run(segment.range, [this](Range run) { show_but_unshared(run); });
  }
}

void Arena::show_but_unshared(Range range) const {
  show(range);
  unshared_.for_each_run(range, [](Range run) { hide_unseen(run, true); });
}

void Arena::after_fork_in_parent() {
  t_forking = false;
  if (!of_stack_.empty()) hide_pinned();
  of_stack_ = {};
  mutex_.unlock();
}

bool Arena::hides_from_children(const Pages& pages) const {
  if (!range_.contains(pages.range)) return other_.hides_from_children(pages);
  const Segment& segment = segments_[granule_of(pages.range.begin)];
  return (segment.pinned && !(segment.range == of_stack_)) || !view_of(pages.range).empty();
}

void Arena::leave_out(Range area, Range copy) const {
  if (!range_.contains(area)) return;
  for (const ChunkMarks* const marks : {&replaced_, &unshared_})
    marks->for_each_run(area, [&](Range range) {
      const Address begin = copy.begin + (range.begin - area.begin);
      unmap_unseen({begin, begin + range.bytes()});
    });
}

/// The blocks of hidden segments are there again, as copies. What the program keeps from its children is a
/// hole, which ends with its block like a mapping of the program's.
void Arena::after_fork_in_child() {
  t_forking = false;
  for (std::atomic<bool>& changes : in_change_) changes.store(false);
  for (Segment& segment : segments_) {
    if (segment.range.empty()) continue;
    const bool aliased = !view_of(segment.range).empty();
    for (Address at = segment.range.begin; at < segment.range.end; at += kGranule)
      views_[granule_of(at)].store(0, std::memory_order_relaxed);
    const bool hidden = (std::exchange(segment.pinned, false) && !(segment.range == of_stack_)) || aliased;
    if (segment.of_heap) unshared_.for_each_run(segment.range, [this](Range run) { note_replaced(run); });
    if (segment.of_heap || !laid_over(segment.range).empty()) continue;
    if (hidden ? reserve_unseen_at(segment.range) : empty_unseen(segment.range)) forget(segment);
  }
  of_stack_ = {};
  new (&mutex_) std::mutex;
}

}  // namespace pinion
