// The registration queue with the conditions of sections 3.2 and 4 on its times: when its first item has to
// be served, and whether a region may go at all. Owns the queue; costs and buffers belong to others. One
// thread, retention's.
#pragma once

#include <cstddef>

#include "retention/buffer_table.h"
#include "retention/cost_estimate.h"
#include "retention/registration_queue.h"

namespace pinion {

class RegistrationPlan {
 public:
  RegistrationPlan(const CostEstimates& costs, const BufferTable& buffers)
      : costs_(costs), buffers_(buffers) {}

  const RegistrationQueue& queue() const { return queue_; }
  void insert(BufferId id, Time deadline) { queue_.insert(id, deadline, service_time(buffers_[id].entries)); }
  void remove(BufferId id) { queue_.remove(id); }
  /// All uses are predicted so much sooner.
  void advance(Duration sooner) { queue_.advance(sooner); }
  /// A used buffer has so many translation entries: an item of the deregistration queue is like the recent
  /// ones.
  void observe(std::size_t entries) { item_entries_.observe(entries); }

  /// Returns the earliest time at which the registration condition calls for the first item; kNever: the
  /// queue is empty.
  Time first_due() const {
    if (queue_.empty()) return kNever;
    const RegistrationQueue::Item item = queue_.first();
    return item.deadline - service_time(buffers_[item.buffer].entries) - costs_.wake.value();
  }
  /// Returns until when the helper may do other work, if the items that are late then may cost so much;
  /// kNever: there are no more.
  Time free_until(Duration late) const {
    Time until = kNever;
    queue_.for_each([&](const RegistrationQueue::Item& item) {
      late -= item.service;
      if (until == kNever && late < 0) until = item.deadline - item.service - costs_.wake.value();
    });
    return until;
  }
  /// Takes the first item.
  RegistrationQueue::Item take_first() {
    const RegistrationQueue::Item item = queue_.first();
    queue_.remove(item.buffer);
    return item;
  }
  /// Puts it back, for a later time.
  void put_back(const RegistrationQueue::Item& item, Time deadline) {
    queue_.insert(item.buffer, deadline, item.service);
  }
  /// The deregistration condition for a region of so many translation entries whose earliest deadline is
  /// `deadline`.
  bool may_deregister(std::size_t entries, Time deadline, Time now) const {
    if (deadline == kNever) return true;  // used for the first time, or expected to stay away
    const Duration t_p = costs_.deregistration.upper(entries) + compares() /* insert */ +
                         costs_.registration.upper(entries) + compares() /* update */ + costs_.wake.value();
    return now + t_p <= queue_.room(deadline, service_time(entries));
  }

 private:
  Duration compares() const { return static_cast<Duration>(queue_.size() + 1) * costs_.queue.compare; }
  /// The terms of the registration condition: one item of each queue.
  Duration service_time(std::size_t entries) const {
    return costs_.queue.hash + compares() /* cache */ + costs_.deregistration.upper(item_entries_.value()) +
           compares() /* insert */ + costs_.registration.upper(entries) + compares() /* update */;
  }

  const CostEstimates& costs_;
  const BufferTable& buffers_;
  RegistrationQueue queue_;
  RecentLargest<std::size_t, 1> item_entries_{1};
};

}  // namespace pinion
