#include "registry/domain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

namespace pinion {

namespace {
constexpr std::size_t kFailedMerges = 64;
/// A thread waits for a registration ahead at least so long: a wake-up's time.
constexpr Duration kLeastPatience = 100 * kMicrosecond;
/// Between two tries to deregister memory: the first, and the longest.
constexpr Duration kFirstRetry = 10 * kMillisecond, kLastRetry = kSecond;
}  // namespace

Domain::Domain(Device& device, Budget& budget, const Brackets& brackets, Clock& clock,
               RegisteredListener* listener)
    : device_(&device), budget_(&budget), brackets_(brackets), clock_(clock), listener_(listener) {
  take_capabilities(device);
}

Domain::~Domain() = default;

void Domain::reopen(Device& device, Budget& budget) {
  std::lock_guard lock(slow_);
  device_ = &device;
  budget_ = &budget;
  take_capabilities(device);
  pressed_.store(false, std::memory_order_relaxed);
  failed_merges_.clear();
  next_failed_merge_ = 0;
  waited_in_vain_ = false;
  retry_wait_ = 0;
  trimming_ = 0;
  victims_ = Victims();
}

void Domain::device_changed() {
  std::lock_guard lock(slow_);
  take_capabilities(*device_);
}

void Domain::take_capabilities(const Device& device) {
  const DeviceCapabilities capabilities = device.capabilities();
  exact_rights_ = capabilities.remote;
  caps_ = capabilities.caps;
  const std::size_t most = caps_.max_region_bytes;
  most_in_a_region_.store(most == 0 ? ~std::size_t{0} : std::max(page_floor(most), page_size()),
                          std::memory_order_relaxed);
}

// ---- steps ----

Domain::Step Domain::begin(Ticket& ticket) {
  ticket.over_limit = ticket.room_is_coming = false;
  ticket.victims.clear();
  while (Region* doomed = begin_reap()) ticket.victims.push_back(doomed);
  if (!ticket.victims.empty()) return Step::deregister;

  std::lock_guard lock(slow_);
  const auto sight = brackets_.sight.look();
  if (sight.blind() && !ticket.lease) {
    ticket.error = Error::make(EAGAIN, "memory events may be missed: nothing is registered ahead");
    return Step::refused;
  }
  // A region that another thread registered blindly may be stale for all others.
  if (Region* region = sight.blind() ? nullptr : candidate_for(ticket)) {
    ticket.region = region;
    if (region->word.load().state() == RegionState::registering) {
      ticket.seen = region->transitions.load();
      ticket.overdue = region->overdue;
      return Step::wait;
    }
    if (!ticket.lease || lease(region, ticket.pages, ticket.access)) return Step::leased;
    ticket.region = nullptr;  // doomed since
  }
  // "In between nothing of the range is registered"; the caller decides whether to wait for the end. Memory
  // that has changed since the prediction of its use is not registered ahead.
  const bool crossed = brackets_.changing(ticket.pages);
  if (!crossed) waited_in_vain_ = false;
  ticket.crossed_by_another = crossed && !waited_in_vain_ && !brackets_.changed_by_caller(ticket.pages);
  if (crossed || (ticket.changed && !ticket.lease)) {
    ticket.error = Error::make(EAGAIN, "the memory is being unmapped or remapped");
    return Step::refused;
  }
  if (ticket.want.empty()) {
    ticket.as_large = may_be_large(ticket);
    ticket.want = ticket.alone();
  }
  if (sight.blind())
    ticket.want = ticket.alone();
  else if (ticket.want == ticket.alone() && !ticket.owner)
    ticket.want = merged(ticket);
  while (!within_device_caps(ticket.want, ticket.error))
    if (!ticket.narrow()) return Step::refused;

  // The part of a merge, or of a large page, beyond the request may be changing; the request goes on without
  // it.
  while (!(ticket.want == ticket.pages) && (brackets_.changing(ticket.want) || meets_permanent(ticket.want)))
    ticket.narrow();
  if (meets_permanent(ticket.want)) {
    ticket.error =
        Error::make(EBUSY,
                    "%zu bytes at %#llx are or contain memory that is registered for good, with other "
                    "rights or by another owner: they go through a bounce buffer",
                    ticket.pages.bytes(), static_cast<unsigned long long>(ticket.pages.begin));
    return Step::refused;
  }

  for (;;) {
    ticket.departures = budget_->departures().load();
    replace_nested(ticket.want, ticket.victims);
    if (!ticket.victims.empty()) return Step::deregister;
    if (!slab_.reserve(1) || !index_.reserve()) {
      ticket.error = Error::make(ENOMEM, "no memory for the registration cache itself");
      return Step::refused;
    }
    const std::size_t bytes = coverage_.would_add(ticket.want);
    const bool by_device = !device_has_room(ticket.want);
    if (!by_device && budget_->reserve(bytes, clock_.now())) break;
    if (ticket.lease && make_room(ticket.want, ticket.victims)) return Step::deregister;
    if (ticket.want == ticket.pages) {
      ticket.over_limit = !by_device;
      ticket.room_is_coming = ticket.over_limit && ticket.lease && bytes <= budget_->most_bytes() &&
                              (room_is_coming(bytes) || budget_->ask_occupants(bytes));
      ticket.error = by_device ? device_limit_error(ticket.want.bytes()) : limit_error(bytes);
      return Step::refused;
    }
    // The merge does not fit; the request alone may. Large pages are tried again: to find out costs little.
    if (!(ticket.want == ticket.alone())) remember_failed_merge(ticket.want);
    ticket.narrow();
  }

  Region* region = slab_.take();
  region->word.begin_registering(ticket.lease ? 1 : 0);
  region->begin.store(ticket.want.begin, std::memory_order_relaxed);
  region->end.store(ticket.want.end, std::memory_order_release);  // read by the index's validated walk
  region->owner.store(ticket.owner, std::memory_order_relaxed);
  region->memory_changed.store(false, std::memory_order_relaxed);
  ticket.try_access = exact_rights_ ? ticket.access : Access::all;
  region->access.store(ticket.try_access, std::memory_order_relaxed);
  region->last_use.store(clock_.ticks(), std::memory_order_relaxed);
  region->settled_until.store(0, std::memory_order_relaxed);
  region->interval.store(0, std::memory_order_relaxed);
  region->next_use.store(0, std::memory_order_relaxed);
  region->indexed = true;
  if (pressed_.load(std::memory_order_relaxed)) {
    victims_.recall(region, clock_.ticks());
    victims_.add(region);
  }
  coverage_.add(ticket.want);
  region_bytes_ += ticket.want.bytes();
  region_count_.fetch_add(1, std::memory_order_relaxed);
  ticket.asked = clock_.now();
  region->overdue =
      !ticket.lease && ticket.expected > 0 ? ticket.asked + 2 * ticket.expected + kLeastPatience : kNever;
  index_.insert(region);
  // An event, or a loss of sight, from before the region was in the index has not met it.
  ticket.unshared = !brackets_.sight.unbroken(sight);
  if (brackets_.changing(ticket.want) || (ticket.unshared && !ticket.lease)) region->word.doom();
  ticket.region = region;
  return Step::register_;
}

Domain::Step Domain::commit(Ticket& ticket, const Registration& registration) {
  Region* region = ticket.region;
  ticket.victims.clear();
  std::unique_lock lock(slow_);
  const std::uint32_t own_leases = ticket.lease ? 1 : 0;

  if (!registration.error) {
    count_registered(region->range(), ticket.asked);
    region->key = registration.key;
    region->entries.store(registration.entries_of(region->range()), std::memory_order_relaxed);
    region->access.store(registration.granted, std::memory_order_relaxed);
    using Commit = RegionWord::Commit;
    if (region->word.commit(ticket.unshared ? Commit::unshared
                            : ticket.owner  ? Commit::permanent
                                            : Commit::shared)) {
      ticket.registered_here = true;
      end_transition(region);
      return Step::leased;
    }
    // Doomed during its registration: deregister it before any use, and start over.
    region->word.abandon(own_leases);
    unindex(region);
    leaves(region);
    end_transition(region);
    ticket.victims.push_back(region);
    ticket.region = nullptr;
    ticket.changed = true;
    return Step::deregister;
  }

  if (registration.error.code == EFAULT && ticket.try_access != ticket.access) {
    ticket.try_access = ticket.access;
    region->access.store(ticket.try_access, std::memory_order_relaxed);
    return Step::register_;
  }

  // Refused: nothing is registered. Remove all traces of the region.
  unindex(region);
  // The refusal of a merge leaves open whether the request alone would fit.
  unreserve(region->range(), ticket.want == ticket.pages ? registration.error : Error{});
  region->word.abandon(own_leases);
  region->word.set_free();
  end_transition(region);
  put_slot(region);
  ticket.region = nullptr;
  if (!(ticket.want == ticket.pages)) {
    remember_failed_merge(ticket.want);
    ticket.narrow();
    return Step::deregister;  // no victims: begins again with less
  }
  const bool pressure = registration.error.code == ENOMEM || registration.error.code == ENOSPC;
  if (pressure && ticket.lease && !ticket.relieved) {
    ticket.relieved = true;
    evict(ticket.want.bytes(), ticket.victims);
    if (!ticket.victims.empty()) return Step::deregister;
  }
  ticket.error = registration.error;
  return Step::refused;
}

void Domain::overtake(const Ticket& ticket) {
  std::lock_guard lock(slow_);
  Region* const region = ticket.region;
  const auto word = region->word.load();
  if (region->transitions.load() != ticket.seen || word.state() != RegionState::registering || word.doomed())
    return;
  // The kernel counts pages once for each registration.
  const Range pages = region->range();
  if (budget_->regions() >= budget_->limits().regions ||
      budget_->bytes() + pages.bytes() > budget_->most_bytes() || !device_has_room(pages)) {
    region->overdue = kNever;
    return;
  }
  region->word.doom();  // commit() finds it so
  unindex(region);
}

void Domain::waited_in_vain() {
  std::lock_guard lock(slow_);
  waited_in_vain_ = true;
}

Region* Domain::begin_retire(RegionRef ref) {
  std::lock_guard lock(slow_);
  if (!ref.current() || !ref.region->word.try_retire()) return nullptr;
  unindex(ref.region);
  leaves(ref.region);
  return ref.region;
}

void Domain::finish_retire(Region* region) {
  std::lock_guard lock(slow_);
  const Range pages = region->range();
  const auto bytes = static_cast<std::int64_t>(registered_.remove(pages));
  registered_bytes_.store(registered_.bytes(), std::memory_order_relaxed);
  const Time now = clock_.now();
  if (listener_) listener_->registered_changed(now, now, -bytes, -1);
  unreserve(pages);
  if (std::exchange(region->trimmed, false)) trimming_ -= pages.bytes();
  if (unretired_.empty()) retry_wait_ = 0;
  left(pages);
  region->word.set_free();
  put_slot(region);
}

void Domain::fail_retire(Region* region) {
  std::lock_guard lock(slow_);
  left(region->range());
  unretired_.push_back(region);
  retry_wait_ = std::clamp(2 * retry_wait_, kFirstRetry, kLastRetry);
  retry_due_.store(clock_.now() + retry_wait_, std::memory_order_relaxed);
}

void Domain::retry_retiring() {
  std::lock_guard lock(slow_);
  if (!unretired_.empty()) retry_due_.store(0, std::memory_order_relaxed);
}

Region* Domain::begin_reap() {
  if (!reaping_due()) return nullptr;
  std::lock_guard lock(slow_);
  if (clock_.now() >= retry_due_.load(std::memory_order_relaxed)) {
    Region* const region = unretired_.back();
    unretired_.pop_back();
    if (unretired_.empty()) retry_due_.store(kNeverRetried, std::memory_order_relaxed);
    leaves(region);
    return region;
  }
  for (;;) {
    Region* region = being_reaped_.load(std::memory_order_relaxed);
    if (!region) region = doomed_.take();
    if (!region) return nullptr;
    being_reaped_.store(region->next_reaped, std::memory_order_relaxed);
    region->word.unclaim_reaping();
    if (region->word.try_retire()) {
      unindex(region);
      leaves(region);
      return region;
    }
    // A straggler's count may have come and gone in between, finding the region still queued.
    if (!region->word.load().used()) give_back(region);
  }
}

// ---- memory events ----

std::size_t Domain::doom(Range range, const void* owner) {
  std::size_t waiting = 0;
  index_.for_each_overlap(range, [&](Region* region) {
    if (owner && region->owner.load(std::memory_order_relaxed) == owner) return;
    region->memory_changed.store(true, std::memory_order_relaxed);
    const auto before = region->word.doom();
    if (!before.registered()) return;
    if (before.used()) return recall(region);
    waiting += region->range().bytes();
    give_back(region);
  });
  return waiting;
}

void Domain::recall(Region* region) {
  if (region->word.claim_recall()) recalls_.push(region);
}

std::vector<RegionRef> Domain::take_recalls() {
  std::vector<RegionRef> recalls;
  for (Region* region = recalls_.take(); region;) {
    Region* const next = region->next_recalled;
    const auto word = region->word.unclaim_recall();
    // The slot may hold another region by now.
    if (word.registered() && word.doomed() && word.used()) recalls.push_back({region, word.generation()});
    region = next;
  }
  return recalls;
}

void Domain::end_permanence(const RegionRef& ref) {
  std::lock_guard lock(slow_);
  if (!ref.current() || !ref.region->owner.load(std::memory_order_relaxed)) return;
  ref.region->owner.store(nullptr, std::memory_order_relaxed);
  ref.region->word.end_permanence();
  if (pressed_.load(std::memory_order_relaxed) && ref.region->indexed) victims_.add(ref.region);
}

// ---- retention's helpers ----

std::vector<RegionRef> Domain::idle_regions(std::size_t most) {
  std::lock_guard lock(slow_);
  std::vector<RegionRef> idle;
  index_.for_each([&](Region* region) {
    const auto word = region->word.load();
    if (word.idle()) idle.push_back({region, word.generation()});
    return idle.size() < most;
  });
  return idle;
}

bool Domain::covered(Range pages) {
  std::lock_guard lock(slow_);
  return coverage_.covers(pages);
}

void Domain::expect(const RegionRef& ref, Time next_use) {
  ref.region->next_use.store(next_use, std::memory_order_relaxed);
  if (!pressed_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(slow_);
  if (ref.current()) victims_.expect(ref.region);
}

void Domain::set_call_pages(double pages) {
  std::lock_guard lock(slow_);
  victims_.set_call_pages(pages);
}

void Domain::choose_least_recently_used() {
  std::lock_guard lock(slow_);
  victims_.set_order(Victims::Order::least_recently_used);
}

std::size_t Domain::own_bytes() {
  std::lock_guard lock(slow_);
  return slab_.bytes() + index_.bytes();
}

Region* Domain::begin_trim(std::uint64_t keep_bytes) {
  if (registered_bytes() <= keep_bytes) return nullptr;
  std::lock_guard lock(slow_);
  if (coverage_.bytes() <= keep_bytes + trimming_) return nullptr;
  std::vector<Region*> victims;
  evict(1, victims);
  if (victims.empty()) return nullptr;
  victims[0]->trimmed = true;
  trimming_ += victims[0]->range().bytes();
  return victims[0];
}

std::vector<Region*> Domain::begin_shrink(std::uint64_t bytes, std::uint64_t regions) {
  std::lock_guard lock(slow_);
  std::vector<Region*> victims;
  const std::uint64_t held = budget_->bytes();
  if (held > bytes) evict(held - bytes, victims);
  while (budget_->regions() - victims.size() > regions) {
    const std::size_t before = victims.size();
    evict(1, victims);
    if (victims.size() == before) break;
  }
  return victims;
}

std::size_t Domain::missing(Range pages) {
  std::lock_guard lock(slow_);
  return coverage_.would_add(pages);
}

bool Domain::has_room(Range pages) {
  std::lock_guard lock(slow_);
  return fits(pages, held_by_others(), {});
}

std::vector<Region*> Domain::begin_swap(Range pages, Time use, Time back) {
  std::lock_guard lock(slow_);
  std::vector<Region*> victims;
  const std::uint64_t others = held_by_others();
  if (fits(pages, others, {})) return victims;
  bool needed_soon = false;
  const auto enough = [&] {
    const Time next_use = victims.back()->next_use.load(std::memory_order_relaxed);
    needed_soon |= next_use != 0 && next_use <= back;
    // As the last candidates they would go at the use anyway.
    return fits(pages, others, victims) && (!needed_soon || victims.size() == region_count());
  };
  claim_until(enough, use, victims);
  return victims;
}

std::vector<Region*> Domain::begin_swap(std::uint64_t bytes, Time back) {
  std::lock_guard lock(slow_);
  std::vector<Region*> victims;
  const std::uint64_t others = held_by_others();
  const auto fits = [&] {
    return others + coverage_.bytes() + bytes <= budget_->most_bytes() &&
           budget_->regions() - victims.size() < budget_->limits().regions;
  };
  if (!fits()) claim_until(fits, back, victims);
  return victims;
}

// ---- under the slow lock ----

Range Domain::merged(const Ticket& ticket) const {
  const Range pages = ticket.alone();
  const std::size_t edge = ticket.as_large ? ticket.large.page_bytes : page_size();
  Range all = pages;
  index_.for_each_overlap(pages, [&](const Region* region) {
    if (region->word.load().doomed() || region->owner.load(std::memory_order_relaxed)) return;
    if (exact_rights_ && region->access.load(std::memory_order_relaxed) != ticket.access) return;
    const Range range = region->range();
    const Range common{std::max(range.begin, pages.begin), std::min(range.end, pages.end)};
    // Neighbours that share the page at their common edge are different buffers.
    if (common.bytes() <= edge && common.bytes() < std::min(range.bytes(), pages.bytes())) return;
    all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
  });
  return merge_failed_before(all) ? pages : all;
}

bool Domain::may_be_large(const Ticket& ticket) const {
  if (ticket.large.empty() || merge_failed_before(ticket.large.range)) return false;
  if (ticket.large.range.bytes() > budget_->most_bytes() || would_replace_in_vain(ticket.large.range))
    return false;
  return !exact_rights_ || !meets_other_rights(ticket);
}

bool Domain::meets_other_rights(const Ticket& ticket) const {
  bool meets = false;
  index_.for_each_overlap(ticket.large.range, [&](const Region* region) {
    meets |= !region->word.load().doomed() && region->access.load(std::memory_order_relaxed) != ticket.access;
  });
  return meets;
}

bool Domain::would_replace_in_vain(Range large) const {
  if (fits(large, held_by_others(), {})) return false;
  bool replaces = false;
  index_.for_each_overlap(large, [&](const Region* region) { replaces |= large.contains(region->range()); });
  return replaces;
}

bool Domain::merge_failed_before(Range want) const {
  return std::any_of(failed_merges_.begin(), failed_merges_.end(),
                     [&](Range failed) { return want.contains(failed); });
}

void Domain::remember_failed_merge(Range want) {
  if (failed_merges_.size() < kFailedMerges) {
    failed_merges_.push_back(want);
  } else {
    failed_merges_[next_failed_merge_++ % kFailedMerges] = want;
  }
}

namespace {

/// "64 KiB", "1.5 MiB": without an allocation, as the domain's lock is held.
struct SizeText {
  char text[24];
  explicit SizeText(std::uint64_t bytes) {
    static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
    std::snprintf(text, sizeof text, "%.*f %s", value == std::floor(value) ? 0 : 1, value, kUnits[unit]);
  }
};

}  // namespace

bool Domain::within_device_caps(Range want, Error& error) const {
  const std::size_t most = caps_.max_region_bytes;
  if (most == 0 || want.bytes() <= most) return true;
  error = Error::make(EFBIG,
                      "device %s registers at most %s in one region and %s are needed: the transfer goes "
                      "through a bounce buffer; use smaller messages or a device with a larger cap",
                      device_->name(), SizeText(most).text, SizeText(want.bytes()).text);
  return false;
}

bool Domain::device_has_room(Range want, const std::vector<Region*>& gone) const {
  const std::size_t regions = region_count_.load(std::memory_order_relaxed) - gone.size();
  if (caps_.max_regions != 0 && regions >= caps_.max_regions) return false;
  if (caps_.max_bytes == 0) return true;
  std::size_t bytes = region_bytes_ + want.bytes();
  for (const Region* region : gone) bytes -= region->range().bytes();
  return bytes <= caps_.max_bytes;
}

Region* Domain::candidate_for(const Ticket& ticket) {
  Region* ready = nullptr;
  Region* coming = nullptr;
  index_.for_each_overlap(ticket.pages, [&](Region* region) {
    if (!region->range().contains(ticket.pages)) return;
    const auto word = region->word.load();
    if (word.doomed() || (ticket.owner && region->owner.load(std::memory_order_relaxed) != ticket.owner))
      return;
    // The rights of the one that is coming are known when it is there.
    if (word.state() == RegionState::registering) coming = region;
    if (word.leasable() && serves(region, ticket.pages, ticket.access)) ready = region;
  });
  return ready ? ready : coming;
}

void Domain::replace_nested(Range want, std::vector<Region*>& victims) {
  std::vector<Region*> nested;
  index_.for_each_overlap(want, [&](Region* region) {
    const Range range = region->range();
    if (want.contains(range) || range.contains(want)) nested.push_back(region);
  });
  for (Region* region : nested) {
    if (region->word.try_retire()) {
      leaves(region);
      victims.push_back(region);
    } else {
      region->word.doom();  // retired when its last lease is returned, or when its registration ends
      const auto word = region->word.load();
      if (!word.used())
        give_back(region);
      else if (word.registered())
        recall(region);
    }
    unindex(region);
  }
}

bool Domain::meets_permanent(Range want) const {
  bool meets = false;
  index_.for_each_overlap(want, [&](const Region* region) {
    const Range range = region->range();
    meets |= region->owner.load(std::memory_order_relaxed) && !region->word.load().doomed() &&
             (want.contains(range) || range.contains(want));
  });
  return meets;
}

void Domain::feel_pressure() {
  if (pressed_.load(std::memory_order_relaxed)) return;
  pressed_.store(true, std::memory_order_relaxed);
  index_.for_each([&](Region* region) {
    victims_.add(region);
    return true;
  });
}

bool Domain::fits(Range want, std::uint64_t others, const std::vector<Region*>& gone) const {
  return others + coverage_.bytes() + coverage_.would_add(want) <= budget_->most_bytes() &&
         budget_->regions() - gone.size() < budget_->limits().regions && device_has_room(want, gone);
}

bool Domain::make_room(Range want, std::vector<Region*>& victims) {
  if (want.bytes() > budget_->most_bytes() || budget_->limits().regions == 0) return false;
  if (caps_.max_bytes != 0 && want.bytes() > caps_.max_bytes) return false;
  const std::uint64_t others = held_by_others();
  claim_until([&] { return fits(want, others, victims); }, kAnyTime, victims);
  return !victims.empty();
}

bool Domain::room_is_coming(std::size_t bytes) {
  std::uint64_t going = budget_->leaving_bytes(), regions_going = budget_->leaving_regions();
  if (regions_going == 0) return false;
  index_.for_each([&](const Region* region) {
    if (!region->word.load().idle()) return true;
    going += region->range().bytes();
    ++regions_going;
    return true;
  });
  const std::uint64_t held = budget_->bytes(), regions = budget_->regions();
  return held - std::min(held, going) + bytes <= budget_->most_bytes() &&
         regions - std::min(regions, regions_going) < budget_->limits().regions;
}

template <class Fits>
void Domain::claim_until(Fits&& fits, Time not_before, std::vector<Region*>& victims) {
  feel_pressure();
  // Regions overlap each other and the wanted range, so only the union of pages shows the gain of letting
  // them go. They leave it for the calculation.
  bool enough = false;
  do {
    Region* region = victims_.take(clock_.ticks());
    if (!region) break;
    const Time next_use = region->next_use.load(std::memory_order_relaxed);
    if (next_use != 0 && next_use <= not_before) {  // and all others are expected sooner
      victims_.put_back(region);
      break;
    }
    victims.push_back(region);
    coverage_.remove(region->range());
    enough = fits();
  } while (!enough);
  std::vector<Region*> chosen;
  chosen.swap(victims);
  for (Region* region : chosen) {
    coverage_.add(region->range());
    if (enough)
      claim_victim(region, victims);
    else
      victims_.put_back(region);
  }
}

bool Domain::claim_victim(Region* region, std::vector<Region*>& victims) {
  if (!region->word.try_retire()) {
    victims_.put_back(region);
    return false;
  }
  victims_.remember(region);
  unindex(region);
  leaves(region);
  victims.push_back(region);
  return true;
}

void Domain::evict(std::uint64_t bytes, std::vector<Region*>& victims) {
  feel_pressure();
  while (bytes > 0) {
    Region* region = victims_.take(clock_.ticks());
    if (!region) return;
    if (claim_victim(region, victims)) bytes -= std::min<std::uint64_t>(bytes, region->range().bytes());
  }
}

namespace {

std::string regions_text(std::uint64_t n) { return std::to_string(n) + (n == 1 ? " region" : " regions"); }

}  // namespace

Error Domain::limit_error(std::size_t needed) const {
  if (const Error refusal = budget_->refusal()) return refusal;
  const auto& limits = budget_->limits();
  return Error::make(ENOMEM,
                     "registered memory is limited to %s (%s)%s; %s in %s are in use and %s more are needed: "
                     "raise the limit",
                     SizeText(limits.bytes).text, limits.bytes_from.c_str(),
                     limits.regions == UINT64_MAX ? "" : (" and " + regions_text(limits.regions)).c_str(),
                     SizeText(budget_->bytes()).text, regions_text(budget_->regions()).c_str(),
                     SizeText(needed).text);
}

Error Domain::device_limit_error(std::size_t needed) const {
  return Error::make(
      ENOMEM,
      "device %s registers at most %s in %s at a time; %s in %s are in use and %s more are "
      "needed: use fewer or smaller buffers at a time, or a device with larger caps",
      device_->name(), caps_.max_bytes ? SizeText(caps_.max_bytes).text : "any number of bytes",
      caps_.max_regions ? regions_text(caps_.max_regions).c_str() : "any number of regions",
      SizeText(region_bytes_).text, regions_text(region_count_.load(std::memory_order_relaxed)).c_str(),
      SizeText(needed).text);
}

void Domain::unindex(Region* region) {
  if (!region->indexed) return;
  index_.erase(region);
  victims_.remove(region);
  region->indexed = false;
}

void Domain::leaves(Region* region) {
  leaving_.fetch_add(1, std::memory_order_relaxed);
  budget_->leaves(region->range().bytes());
}

void Domain::left(Range pages) {
  leaving_.fetch_sub(1, std::memory_order_release);
  budget_->left(pages.bytes());
}

void Domain::count_registered(Range pages, Time since) {
  const auto bytes = static_cast<std::int64_t>(registered_.add(pages));
  registered_bytes_.store(registered_.bytes(), std::memory_order_relaxed);
  budget_->registered();
  if (listener_) listener_->registered_changed(clock_.now(), since, bytes, 1);
}

void Domain::unreserve(Range pages, const Error& refusal) {
  const std::size_t bytes = coverage_.remove(pages);
  region_bytes_ -= pages.bytes();
  if (refusal.code == ENOMEM || refusal.code == EPERM)
    budget_->release_refused(bytes, refusal, clock_.now());
  else
    budget_->release(bytes, clock_.now());
  region_count_.fetch_sub(1, std::memory_order_relaxed);
}

void Domain::put_slot(Region* region) {
  if (!region->word.at_last_generation()) slab_.put(region);
}

void Domain::end_transition(Region* region) {
  transition_ended_.store(monotonic_now(), std::memory_order_relaxed);
  region->transitions.end();
}

}  // namespace pinion
