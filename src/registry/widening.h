// The range that an acquire registers: its pages, the whole large pages of its memory, or their merge with
// regions that they overlap. Owns the memory of merges that failed. Guarded by the domain's slow lock.
//
// A miss that overlaps a region by more than the page at its edge is merged with it, unless that merge failed
// before. Buffers that merely touch, or share the page at their common edge, stay separate regions: retention
// decides for each by its own reuse.
//
// In memory of larger pages (hugetlb), which the caller states in the request, a registration is of whole
// such pages, and so is a key that peers have. It is of the system's pages where the larger ones exceed a
// limit, where the device has refused them before, and where regions lie in them that have other rights, or
// that the limits leave no room to replace. The larger ones come first: a fork-safe libibverbs that has
// refused a part of a hugepage refuses the whole from then on.
//
// Where a device hides memory from forked children nothing is merged: they would lack what the program has
// released. Large pages come from callers that copy them for children.
//
// A device of byte ranges registers no large pages. Its regions never overlap, so a miss that overlaps one by
// a byte is merged with it, and leaves a mere neighbour alone.
#pragma once

#include <vector>

#include "registry/acquire.h"
#include "registry/admission.h"
#include "registry/region_table.h"

namespace pinion {

class Widening {
 public:
  Widening(const RegionTable& table, const Admission& admission) : table_(table), admission_(admission) {}

  /// Sets the attempt's range. `alone`: nothing is merged with it.
  void choose(Acquire& acquire, bool alone) const;
  /// Narrows the attempt's range, which does not fit, or which the device has refused. `remember`: the range
  /// is not tried again. False: there is no narrower one.
  bool failed(Acquire& acquire, bool remember);
  /// Begins anew with an empty domain.
  void restart();

 private:
  /// The request's pages, large or not, with the regions that they overlap.
  Range merged(const Acquire& acquire) const;
  /// Whether the request's large pages are to be registered.
  bool may_be_large(const AcquireRequest& request) const;
  /// Regions of unequal rights in one large page would replace each other at each use.
  bool meets_other_rights(const AcquireRequest& request) const;
  /// Regions within the range would go for it, and it may find no room after all.
  bool would_replace_in_vain(Range large) const;
  bool failed_before(Range want) const;
  void remember(Range want);

  const RegionTable& table_;
  const Admission& admission_;
  std::vector<Range> failed_;
  std::size_t next_failed_ = 0;
};

}  // namespace pinion
