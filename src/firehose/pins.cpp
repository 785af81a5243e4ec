#include "firehose/pins.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

#include "device/kernel/fault_in.h"
#include "engine/c_api_inside.h"

namespace pinion::firehose {

namespace {

/// All rights: local transfers from and to the bucket are served by its registration, too.
constexpr Access kRights = Access::all;

/// The longest runs of pages that are mapped and writable, kMostParts at most.
std::vector<Range> usable_parts(Range pages) {
  std::vector<Range> runs;
  for (Address at = pages.begin; at < pages.end; at += page_size()) {
    const Range page{at, at + page_size()};
    if (check_access(page, true)) continue;
    if (!runs.empty() && runs.back().end == page.begin)
      runs.back().end = page.end;
    else
      runs.push_back(page);
  }
  std::sort(runs.begin(), runs.end(), [](Range a, Range b) { return a.bytes() > b.bytes(); });
  if (runs.size() > kMostParts) runs.resize(kMostParts);
  return runs;
}

}  // namespace

std::uint64_t Pins::bytes_of(const Holds& holds) {
  std::uint64_t bytes = 0;
  for (const PeerHold& hold : holds) bytes += hold.pages.bytes();
  return bytes;
}

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
  for (const auto& [bucket, holds] : holds_)
    if (std::any_of(holds.begin(), holds.end(),
                    [&](const PeerHold& each) { return each.pages.overlaps(range); }))
      return true;
  return false;
}

/// Registers first, and looks at the memory then: a change after that waits for its holders.
Error Pins::hold(Range pages, Holds& holds, RemoteParts& parts) {
  ThreadContext* const thread = this_thread();
  LeasePath* const leases = LeasePath::running();
  if (!thread || !leases) return Error::make(ENOMEM, "no memory for Pinion's state of a thread");
  PeerHold hold;
  if (Error error = leases->peer_holds().begin(*thread, domain_number(domain_), pages, kRights, hold)) return error;
  if (Error error = check_access(pages, true)) {
    leases->peer_holds().end(*thread, hold);
    return error;
  }
  const Region& region = *hold.region.region;
  holds.add(hold);
  parts.add({pages.begin, pages.end, region.key.remote_base + (pages.begin - region.range().begin),
             region.key.remote_key});
  return {};
}

Error Pins::pin(Bucket bucket, Range exposed, RemoteParts& parts) {
  if (exposed.empty()) return Error::make(EPERM, "no memory of the bucket is exposed");
  count(bucket, 1);
  Error error;
  try {
    Holds& holds = holds_[bucket];
    error = hold(exposed, holds, parts);
    if (error.code == EFAULT)
      for (const Range usable : usable_parts(exposed)) error = hold(usable, holds, parts);
  } catch (const std::bad_alloc&) {
    error = Error::make(ENOMEM, "no memory to register a bucket for peers");
  }
  const auto made = holds_.find(bucket);
  const std::uint64_t bytes = made == holds_.end() ? 0 : bytes_of(made->second);
  if (bytes == 0) {
    holds_.erase(bucket);
    count(bucket, -1);
    return error;
  }
  const std::uint64_t now = bytes_.fetch_add(bytes) + bytes;
  peak_.store(std::max(peak_.load(), now));
  return {};
}

bool Pins::would_pin(Range exposed, Range memory) {
  const std::vector<Range> parts = usable_parts(exposed);
  return std::any_of(parts.begin(), parts.end(), [&](Range part) { return part.contains(memory); });
}

void Pins::unpin(Bucket bucket) {
  const auto found = holds_.find(bucket);
  if (found == holds_.end()) return;
  ThreadContext* const thread = this_thread();
  if (LeasePath* const leases = LeasePath::running(); leases && thread)
    for (const PeerHold& hold : found->second) leases->peer_holds().end(*thread, hold);
  bytes_.fetch_sub(bytes_of(found->second));
  holds_.erase(found);
  count(bucket, -1);
}

void Pins::unpin_all() {
  while (!holds_.empty()) unpin(holds_.begin()->first);
}

}  // namespace pinion::firehose
