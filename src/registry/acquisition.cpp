#include "registry/acquisition.h"

#include "base/assert.h"

namespace pinion {

AcquireStep Acquisition::next(Time now) {
  PINION_ASSERT(step_ != AcquireStep::register_ && step_ != AcquireStep::leased);
  if (step_ == AcquireStep::await_region && domain_->clock().now() >= acquire_.attempt.overdue)
    domain_->overtake(acquire_.attempt);
  return follow(domain_->begin(acquire_), now);
}

AcquireStep Acquisition::registered(const Registration& registration, Time now) {
  PINION_ASSERT(step_ == AcquireStep::register_);
  return follow(domain_->commit(acquire_, registration), now);
}

bool Acquisition::serve_alone() {
  if (!acquire_.request.lease || !(range() == acquire_.alone())) return false;
  acquire_.attempt.unshared = true;
  return true;
}

void Acquisition::rested(Duration took, Duration preempted) {
  acquire_.result.rested += took;
  acquire_.result.preempted += preempted;
}

AcquireStep Acquisition::follow(AcquireStep step, Time now) {
  victims_in_ = domain_;
  if (step == AcquireStep::await_departure && !patient(room_until_, kRoomPatience, now))
    step = AcquireStep::refused;
  if (step == AcquireStep::await_event && !patient(crossing_until_, kCrossingPatience, now)) {
    domain_->waited_in_vain();
    step = AcquireStep::refused;
  }
  if (step == AcquireStep::refused && acquire_.result.over_limit && acquire_.request.lease &&
      others_make_room())
    step = AcquireStep::deregister;
  step_ = step;
  switch (step) {
    case AcquireStep::await_region:
      return await({&acquire_.attempt.region->transitions, acquire_.attempt.seen, acquire_.attempt.overdue});
    case AcquireStep::await_departure:
      return await({&domain_->budget().departures(), acquire_.attempt.departures, room_until_});
    case AcquireStep::await_event:
      return await({nullptr, 0, now + kMicrosecond});
    default:
      return step;
  }
}

AcquireStep Acquisition::await(const Awaited& what) {
  acquire_.result.waited = true;
  awaited_ = what;
  return step_;
}

bool Acquisition::patient(Time& until, Duration patience, Time now) {
  if (until == 0) until = now + patience;
  return now < until;
}

bool Acquisition::others_make_room() {
  if (domains_.size() < 2 || !idle_regions_make_room()) return false;
  const Budget& budget = domain_->budget();
  for (Domain* other : domains_) {
    if (other == domain_) continue;
    acquire_.attempt.victims =
        other->begin_shrink(budget.most_bytes() - acquire_.request.pages.bytes(), budget.most_regions() - 1);
    if (acquire_.attempt.victims.empty()) continue;
    victims_in_ = other;
    return true;
  }
  return false;
}

bool Acquisition::idle_regions_make_room() const {
  const Budget& budget = domain_->budget();
  const std::uint64_t bytes = acquire_.request.pages.bytes(), most = budget.most_bytes();
  std::uint64_t idle = 0, idle_regions = 0;
  for (Domain* domain : domains_) {
    for (const RegionRef& ref : domain->idle_regions()) {
      idle += ref.region->range().bytes();
      ++idle_regions;
    }
  }
  return bytes <= most && budget.bytes() <= most - bytes + idle &&
         budget.regions() - idle_regions < budget.most_regions();
}

}  // namespace pinion
