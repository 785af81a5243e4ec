// Sums leases that are alike into one event (EventKind::uses), for producers that record a run of uses
// instead of each use. A value; its owner guards it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runlog/format.h"

namespace pinion::runlog {

class UseRun {
 public:
  bool empty() const { return run_.count == 0; }

  /// Adds a lease. False, without a change, where the lease differs from those before in more than its time,
  /// where its acquire waited, and where the run is full. Such a lease is an event of its own.
  bool add(const Event& lease) {
    if (lease.wait_ns != 0 || run_.count == UINT32_MAX || (!empty() && !is_alike(lease))) return false;
    const auto leased = static_cast<std::uint64_t>(lease.end_ns - lease.begin_ns);
    if (empty()) {
      run_ = lease;
      run_.kind = EventKind::uses;
    }
    run_.begin_ns = std::min(run_.begin_ns, lease.begin_ns);
    run_.end_ns = std::max(run_.end_ns, lease.end_ns);
    run_.leased_ns += leased;
    ++run_.count;
    return true;
  }

  /// The event for the log; the run is empty afterwards. Not of an empty run.
  Event take() {
    Event event = run_;
    run_ = {};
    if (event.count > 1) return event;
    event.kind = EventKind::lease;
    event.wait_ns = 0;
    event.count = 0;
    return event;
  }

 private:
  bool is_alike(const Event& e) const {
    return e.address == run_.address && e.bytes == run_.bytes && e.site == run_.site && e.peer == run_.peer &&
           e.thread == run_.thread && e.call == run_.call && e.outcome == run_.outcome &&
           e.flags == run_.flags && e.access == run_.access && e.domain == run_.domain;
  }

  Event run_{};
};

}  // namespace pinion::runlog
