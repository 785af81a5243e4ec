#include "firehose/pins.h"

#include <algorithm>
#include <cerrno>

#include "device/fault_in.h"
#include "engine/c_api_inside.h"

namespace pinion::firehose {

namespace {

/// So that local transfers from and to the bucket are served by its registration, too.
constexpr Access kRights = Access::all;

/// The longest run of pages that are mapped and writable; empty: none is.
Range usable_part(Range pages) {
  Range longest{}, run{pages.begin, pages.begin};
  for (Address at = pages.begin; at < pages.end; at += page_size()) {
    if (check_access({at, at + page_size()}, true))
      run = {at + page_size(), at + page_size()};
    else
      run.end = at + page_size();
    if (run.bytes() > longest.bytes()) longest = run;
  }
  return longest;
}

}  // namespace

void Pins::count(Bucket bucket, int by) {
  count_of(bucket).fetch_add(static_cast<std::uint32_t>(by), std::memory_order_seq_cst);
  all_.fetch_add(static_cast<std::uint32_t>(by), std::memory_order_seq_cst);
}

bool Pins::may_be_pinned(Range range) const {
  if (all_.load(std::memory_order_seq_cst) == 0 || range.empty()) return false;
  const BucketRange buckets = size_.touched(range);
  if (buckets.count > kCounts) return true;
  for (std::uint64_t i = 0; i < buckets.count; ++i)
    if (count_of(buckets.first + i).load(std::memory_order_seq_cst) > 0) return true;
  return false;
}

bool Pins::is_pinned(Range range) const {
  return std::any_of(holds_.begin(), holds_.end(),
                     [&](const auto& each) { return each.second.pages.overlaps(range); });
}

/// Registers first, and looks at the memory then: whatever changes it after that waits for its holders.
Error Pins::hold(Range pages, PeerHold& hold) {
  ThreadContext* const thread = this_thread();
  LeasePath* const leases = LeasePath::running();
  if (!thread || !leases) return Error::make(ENOMEM, "no memory for Pinion's state of a thread");
  if (Error error = leases->begin_hold(*thread, domain_number(domain_), pages, kRights, hold)) return error;
  Error error = check_access(pages, true);
  if (error) leases->end_hold(*thread, hold);
  return error;
}

Error Pins::pin(Bucket bucket, Range exposed, RemotePart& part) {
  count(bucket, 1);
  PeerHold held;
  Error error = hold(exposed, held);
  if (error.code == EFAULT) {
    const Range usable = usable_part(exposed);
    if (!usable.empty() && !(usable == exposed)) error = hold(usable, held);
  }
  if (error) {
    count(bucket, -1);
    return error;
  }
  const Region& region = *held.region.region;
  part = {held.pages.begin, held.pages.end,
          region.key.remote_base + (held.pages.begin - region.range().begin), region.key.remote_key};
  holds_.emplace(bucket, held);
  const std::uint64_t now = bytes_.fetch_add(held.pages.bytes()) + held.pages.bytes();
  peak_.store(std::max(peak_.load(), now));
  return {};
}

void Pins::unpin(Bucket bucket) {
  const auto found = holds_.find(bucket);
  if (found == holds_.end()) return;
  ThreadContext* const thread = this_thread();
  if (LeasePath* const leases = LeasePath::running(); leases && thread)
    leases->end_hold(*thread, found->second);
  bytes_.fetch_sub(found->second.pages.bytes());
  holds_.erase(found);
  count(bucket, -1);
}

void Pins::unpin_all() {
  while (!holds_.empty()) unpin(holds_.begin()->first);
}

}  // namespace pinion::firehose
