// The holdings of one MPI operation, from its call until it is known to be complete: the leases of its
// buffers, and the receive whose length is learnt then. A value; its owner guards it.
#pragma once

#include <algorithm>
#include <vector>

#include "intercept/mpi/arrivals.h"

namespace pinion::mpi {

class Operation {
 public:
  /// Without a lease, and without a length to learn.
  bool empty() const { return !first_.active && !receive.under_way(); }
  void add(const Transfer& lease) {
    if (first_.active) {
      more_.push_back(lease);
    } else {
      first_ = lease;
    }
  }
  /// The memory of a lease was changed: its transfer must be over.
  bool memory_is_gone() const {
    return memory_is_gone(first_) || std::any_of(more_.begin(), more_.end(),
                                                 [](const Transfer& lease) { return memory_is_gone(lease); });
  }
  /// `arrived`: bytes received, or negative where that is unknown.
  void complete(ThreadContext& thread, LeasePath& leases, std::int64_t arrived = -1) {
    if (receive.under_way()) receive.end(thread, leases, arrived, more_.empty() ? first_ : more_.back());
    if (first_.active) leases.release_in_line(thread, first_);
    if (more_.empty()) [[likely]]
      return;
    for (Transfer& lease : more_)
      if (lease.active) leases.release(thread, lease);
    more_.clear();
  }

  Receive receive;  ///< of the newest lease

 private:
  static bool memory_is_gone(const Transfer& lease) {
    // In the arena, other blocks' memory changes too.
    const Region* region = lease.active && !lease.in_arena() ? lease.region() : nullptr;
    return region && region->memory_changed.load(std::memory_order_relaxed);
  }

  Transfer first_;
  std::vector<Transfer> more_;  ///< almost always empty
};

/// The buffers of a persistent request, as it leases them at each start.
struct Remembered {
  struct Use {
    Range range;
    Access access = Access::read;
    int peer = -1;
    bool is_receive = false;  ///< of contiguous data, whose length at arrival can be learnt
  };
  CallKind kind = CallKind::none;
  std::vector<Use> uses;
};

}  // namespace pinion::mpi
