#include "registry/registering.h"

#include <algorithm>
#include <iterator>

#include "base/assert.h"

namespace pinion {

namespace {
/// A thread waits for a registration ahead at least so long: a wake-up's time.
constexpr Duration kLeastPatience = 100 * kMicrosecond;
}  // namespace

// ---- begin ----

AcquireStep Registering::begin(Acquire& acquire) {
  auto& [request, attempt, result] = acquire;
  PINION_ASSERT(attempt.victims.empty() && !request.pages.empty());
  const Look sight = context_.brackets.sight.look();
  if (sight.blind() && !request.lease)
    return acquire.refuse(Error::make(EAGAIN, "memory events may be missed: nothing is registered ahead"));
  // A region that another thread registered blindly may be stale for all others.
  if (!sight.blind())
    if (const auto step = use_existing(acquire)) return *step;
  if (const auto step = stop_at_change(acquire)) return *step;
  if (const auto step = choose_range(acquire, sight.blind())) return *step;
  if (const auto step = reserve(acquire)) return *step;
  place(acquire, sight);
  return AcquireStep::register_;
}

std::optional<AcquireStep> Registering::use_existing(Acquire& acquire) {
  auto& [request, attempt, result] = acquire;
  Region* const region = candidate_for(request);
  if (!region) return {};
  if (region->word.load().state() == RegionState::registering) {
    attempt.region = region;
    attempt.seen = region->transitions.load();
    attempt.overdue = region->overdue;
    return request.lease ? AcquireStep::await_region : AcquireStep::busy;
  }
  if (request.lease && !leases_.lease(region, request.pages, request.access)) return {};  // doomed since
  result.region = region;
  return AcquireStep::leased;
}

Region* Registering::candidate_for(const AcquireRequest& request) const {
  Region* ready = nullptr;
  Region* coming = nullptr;
  table_.for_each_overlap(request.pages, [&](Region* region) {
    if (!region->covers(request.pages)) return;
    const auto word = region->word.load();
    if (word.doomed() || (request.owner && region->owner.load(std::memory_order_relaxed) != request.owner))
      return;
    // The rights of the one that is coming are known when it is there.
    if (word.state() == RegionState::registering) coming = region;
    if (word.leasable() && region->serves(request.pages, request.access)) ready = region;
  });
  return ready ? ready : coming;
}

std::optional<AcquireStep> Registering::stop_at_change(Acquire& acquire) {
  auto& [request, attempt, result] = acquire;
  const Brackets& brackets = context_.brackets;
  const bool crossed = brackets.changing(request.pages);
  if (!crossed) waited_in_vain_ = false;
  if (!crossed && (!attempt.changed || request.lease)) return {};
  result.error = Error::make(EAGAIN, "the memory is being unmapped or remapped");
  // An event of another thread ends soon, which is worth waiting for.
  const bool ends_soon =
      crossed && request.lease && !waited_in_vain_ && !brackets.changed_by_caller(request.pages);
  return ends_soon ? AcquireStep::await_event : AcquireStep::refused;
}

std::optional<AcquireStep> Registering::choose_range(Acquire& acquire, bool alone) {
  auto& [request, attempt, result] = acquire;
  widening_.choose(acquire, alone);
  while (!admission_.within_caps(attempt.want, result.error))
    if (!acquire.narrow()) return AcquireStep::refused;
  // The part of a merge, or of a large page, beyond the request may be changing; the request goes on without
  // it.
  while (!(attempt.want == request.pages) &&
         (context_.brackets.changing(attempt.want) || meets_permanent(attempt.want)))
    acquire.narrow();
  if (!meets_permanent(attempt.want)) return {};
  return acquire.refuse(
      Error::make(EBUSY,
                  "%zu bytes at %#llx are or contain memory that is registered for good, with "
                  "other rights or by another owner: they go through a bounce buffer",
                  request.pages.bytes(), static_cast<unsigned long long>(request.pages.begin)));
}

std::optional<AcquireStep> Registering::reserve(Acquire& acquire) {
  auto& [request, attempt, result] = acquire;
  for (;;) {
    attempt.departures = context_.budget->departures().load();
    if (admission_.byte_ranges()) {
      if (const auto step = clear_overlaps(acquire)) return *step;
    } else {
      replace_nested(attempt.want, attempt.victims);
    }
    if (!attempt.victims.empty()) return AcquireStep::deregister;
    if (!table_.reserve())
      return acquire.refuse(Error::make(ENOMEM, "no memory for the registration cache itself"));
    const std::size_t bytes = table_.unreserved(attempt.want);
    const bool by_device = !admission_.device_has_room(attempt.want);
    if (!by_device && admission_.reserve(bytes)) return {};
    if (request.lease) attempt.victims = eviction_.for_request(attempt.want);
    if (!attempt.victims.empty()) return AcquireStep::deregister;
    if (request.lease && !by_device && eviction_.raise_peak_goal(attempt.want)) continue;
    // A merge may not fit where the request alone does. Large pages are tried again: to find out costs
    // little.
    if (!widening_.failed(acquire, !(attempt.want == acquire.alone())))
      return refuse_for_limit(acquire, by_device, bytes);
  }
}

AcquireStep Registering::refuse_for_limit(Acquire& acquire, bool by_device, std::size_t bytes) const {
  auto& [request, attempt, result] = acquire;
  result.over_limit = !by_device;
  result.error =
      by_device ? admission_.device_limit_error(request.pages.bytes()) : admission_.limit_error(bytes);
  return !by_device && request.lease && admission_.room_is_coming(bytes) ? AcquireStep::await_departure
                                                                         : AcquireStep::refused;
}

void Registering::replace_nested(Range want, std::vector<Region*>& victims) {
  std::vector<Region*> nested;
  table_.for_each_overlap(want, [&](Region* region) {
    const Range range = region->range();
    if (want.contains(range) || range.contains(want)) nested.push_back(region);
  });
  for (Region* region : nested) {
    if (retirement_.claim(region)) {
      victims.push_back(region);
      continue;
    }
    region->word.doom();  // retired when its last lease is returned, or when its registration ends
    if (!region->word.load().used()) doomed_.add(region);
    table_.hide(region);
  }
}

std::optional<AcquireStep> Registering::clear_overlaps(Acquire& acquire) {
  AcquireAttempt& attempt = acquire.attempt;
  do {
    bool in_use = false;
    std::vector<Region*> idle;
    table_.for_each_overlap(attempt.want, [&](Region* region) {
      const auto word = region->word.load();
      in_use |= word.used() || !word.registered();
      idle.push_back(region);
    });
    if (!in_use)
      std::copy_if(idle.begin(), idle.end(), std::back_inserter(attempt.victims),
                   [this](Region* region) { return retirement_.claim(region); });
    if (!attempt.victims.empty()) return AcquireStep::deregister;
    // Regions on their way out are in no index, but their bytes are counted.
    if (table_.unreserved(attempt.want) == attempt.want.bytes()) return {};
  } while (acquire.narrow());
  return acquire.refuse(Error::make(EBUSY, "%zu bytes at %#zx overlap a registration that is in use",
                                    acquire.request.pages.bytes(), acquire.request.pages.begin));
}

bool Registering::meets_permanent(Range want) const {
  bool meets = false;
  table_.for_each_overlap(want, [&](const Region* region) {
    const Range range = region->range();
    meets |= region->owner.load(std::memory_order_relaxed) && !region->word.load().doomed() &&
             (want.contains(range) || range.contains(want));
  });
  return meets;
}

void Registering::place(Acquire& acquire, const Look& sight) {
  auto& [request, attempt, result] = acquire;
  Region* region = table_.take(attempt.want, request.lease ? 1 : 0);
  attempt.try_access = admission_.exact_rights() ? request.access : Access::all;
  attempt.asked = context_.clock.now();
  const Ticks ticks = context_.clock.ticks();
  region->owner.store(request.owner, std::memory_order_relaxed);
  region->memory_changed.store(false, std::memory_order_relaxed);
  region->access.store(attempt.try_access, std::memory_order_relaxed);
  region->last_use.store(ticks, std::memory_order_relaxed);
  region->serves_parts.store(!admission_.whole_requests() || attempt.as_large || request.owner,
                             std::memory_order_relaxed);
  region->settled.store(false, std::memory_order_relaxed);
  region->uses.store(0, std::memory_order_relaxed);
  region->interval.store(0, std::memory_order_relaxed);
  region->next_use.store(0, std::memory_order_relaxed);
  region->overdue = request.expected > 0 ? attempt.asked + 2 * request.expected + kLeastPatience : kNever;
  table_.insert(region, ticks);
  // An event, or a loss of sight, from before the region was in the index has not met it.
  attempt.unshared = !context_.brackets.sight.unbroken(sight);
  if (context_.brackets.changing(attempt.want) || (attempt.unshared && !request.lease)) region->word.doom();
  attempt.region = region;
}

// ---- commit ----

AcquireStep Registering::commit(Acquire& acquire, const Registration& registration) {
  auto& [request, attempt, result] = acquire;
  PINION_ASSERT(attempt.region->word.load().state() == RegionState::registering);
  attempt.victims.clear();
  if (!registration.error) return finish_registered(acquire, registration);
  if (registration.error.code == EFAULT && attempt.try_access != request.access) {
    attempt.try_access = request.access;
    attempt.region->access.store(attempt.try_access, std::memory_order_relaxed);
    return AcquireStep::register_;
  }
  return finish_refused(acquire, registration.error);
}

AcquireStep Registering::finish_registered(Acquire& acquire, const Registration& registration) {
  auto& [request, attempt, result] = acquire;
  Region* region = attempt.region;
  const auto bytes = static_cast<std::int64_t>(table_.count_registered(region->range()));
  context_.budget->registered();
  if (context_.listener) context_.listener->registered_changed(context_.clock.now(), attempt.asked, bytes, 1);
  region->key = registration.key;
  region->entries.store(registration.entries_of(region->range()), std::memory_order_relaxed);
  region->access.store(registration.granted, std::memory_order_relaxed);
  using Commit = RegionWord::Commit;
  if (region->word.commit(attempt.unshared ? Commit::unshared
                          : request.owner  ? Commit::permanent
                                           : Commit::shared)) {
    result.region = region;
    result.registered_here = true;
    end_transition(region);
    return AcquireStep::leased;
  }
  // Doomed during its registration: deregister it before any use, and start over.
  region->word.abandon(request.lease ? 1 : 0);
  retirement_.claimed(region);
  end_transition(region);
  attempt.victims.push_back(region);
  attempt.region = nullptr;
  attempt.changed = true;
  return AcquireStep::deregister;
}

AcquireStep Registering::finish_refused(Acquire& acquire, const Error& refusal) {
  auto& [request, attempt, result] = acquire;
  // Nothing is registered. Remove all traces of the region.
  Region* region = attempt.region;
  table_.hide(region);
  // The refusal of a merge leaves open whether the request alone would fit.
  admission_.unreserve(region->range(), attempt.want == request.pages ? refusal : Error{});
  region->word.abandon(request.lease ? 1 : 0);
  region->word.set_free();
  end_transition(region);
  table_.put(region);
  attempt.region = nullptr;
  // Without victims, begins again with less.
  // Bytes that another call is using are free soon.
  const bool passing = admission_.byte_ranges() && refusal.code == EBUSY;
  if (widening_.failed(acquire, !passing)) return AcquireStep::deregister;
  const bool pressure = refusal.code == ENOMEM || refusal.code == ENOSPC;
  if (pressure && request.lease && !attempt.relieved) {
    attempt.relieved = true;
    attempt.victims = eviction_.of_bytes(attempt.want.bytes());
    if (!attempt.victims.empty()) return AcquireStep::deregister;
  }
  return acquire.refuse(refusal);
}

void Registering::end_transition(Region* region) {
  context_.times.transition_ended.store(monotonic_now(), std::memory_order_relaxed);
  region->transitions.end();
}

// ---- waits ----

void Registering::overtake(const AcquireAttempt& attempt) {
  Region* const region = attempt.region;
  const auto word = region->word.load();
  if (region->transitions.load() != attempt.seen || word.state() != RegionState::registering || word.doomed())
    return;
  if (admission_.byte_ranges() || !admission_.fits_twice(region->range())) {
    region->overdue = kNever;
    return;
  }
  region->word.doom();  // commit() finds it so
  table_.hide(region);
}

void Registering::restart() {
  widening_.restart();
  waited_in_vain_ = false;
}

}  // namespace pinion
