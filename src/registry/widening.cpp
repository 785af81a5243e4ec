#include "registry/widening.h"

#include <algorithm>

namespace pinion {

namespace {
constexpr std::size_t kMostFailed = 64;
}  // namespace

void Widening::choose(Acquire& acquire, bool alone) const {
  Range& want = acquire.attempt.want;
  if (want.empty()) {
    acquire.attempt.as_large = may_be_large(acquire.request);
    want = acquire.alone();
  }
  if (alone)
    want = acquire.alone();
  else if (want == acquire.alone() && !acquire.request.owner && !admission_.whole_requests())
    want = merged(acquire);
}

bool Widening::failed(Acquire& acquire, bool remembered) {
  if (acquire.attempt.want == acquire.request.pages) return false;
  if (remembered) remember(acquire.attempt.want);
  return acquire.narrow();
}

void Widening::restart() {
  failed_.clear();
  next_failed_ = 0;
}

Range Widening::merged(const Acquire& acquire) const {
  const Range pages = acquire.alone();
  const std::size_t edge = acquire.attempt.as_large ? acquire.request.large.page_bytes : page_size();
  Range all = pages;
  table_.for_each_overlap(pages, [&](const Region* region) {
    if (region->word.load().doomed() || region->owner.load(std::memory_order_relaxed)) return;
    if (admission_.exact_rights() && region->access.load(std::memory_order_relaxed) != acquire.request.access)
      return;
    const Range range = region->range();
    const Range common{std::max(range.begin, pages.begin), std::min(range.end, pages.end)};
    // Neighbours that share the page at their common edge are different buffers.
    if (!admission_.byte_ranges() && common.bytes() <= edge &&
        common.bytes() < std::min(range.bytes(), pages.bytes()))
      return;
    all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
  });
  return failed_before(all) ? pages : all;
}

bool Widening::may_be_large(const AcquireRequest& request) const {
  if (admission_.byte_ranges() || request.large.empty() || failed_before(request.large.range)) return false;
  if (!admission_.could_ever_fit(request.large.range) || would_replace_in_vain(request.large.range))
    return false;
  return !admission_.exact_rights() || !meets_other_rights(request);
}

bool Widening::meets_other_rights(const AcquireRequest& request) const {
  bool meets = false;
  table_.for_each_overlap(request.large.range, [&](const Region* region) {
    meets |=
        !region->word.load().doomed() && region->access.load(std::memory_order_relaxed) != request.access;
  });
  return meets;
}

bool Widening::would_replace_in_vain(Range large) const {
  if (admission_.fits(large)) return false;
  bool replaces = false;
  table_.for_each_overlap(large, [&](const Region* region) { replaces |= large.contains(region->range()); });
  return replaces;
}

bool Widening::failed_before(Range want) const {
  return std::any_of(failed_.begin(), failed_.end(), [&](Range failed) { return want.contains(failed); });
}

void Widening::remember(Range want) {
  if (failed_.size() < kMostFailed) {
    failed_.push_back(want);
  } else {
    failed_[next_failed_++ % kMostFailed] = want;
  }
}

}  // namespace pinion
