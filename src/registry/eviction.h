// The idle regions that go where memory is short: claims the victims (victims.h) that a request needs, and no
// more. Those are claimed as by Retirement; the caller deregisters them. Guarded by the domain's slow lock.
#pragma once

#include <cstdint>
#include <vector>

#include "registry/admission.h"
#include "registry/retirement.h"

namespace pinion {

class Eviction {
 public:
  Eviction(DomainContext& context, RegionTable& table, Admission& admission, Retirement& retirement)
      : context_(context), table_(table), admission_(admission), retirement_(retirement) {}

  /// Claims idle regions until `want` fits, also below the goal for the peak, which pays for them then. All
  /// idle regions together are too few: claims none.
  std::vector<Region*> for_request(Range want);
  /// Raises the goal for the peak to what `want` needs beside the regions in use; where idle ones stay, to
  /// all of it. False: it is not the goal that is in its way.
  bool raise_peak_goal(Range want);
  /// Claims idle regions of at least so many bytes, as far as there are any.
  std::vector<Region*> of_bytes(std::uint64_t bytes);
  /// Claims idle regions until the budget holds at most so much (Domain::begin_shrink).
  std::vector<Region*> to_shrink(std::uint64_t bytes, std::uint64_t regions);
  /// Claims idle regions for pages that are needed at a time (Domain::begin_swap).
  std::vector<Region*> for_swap(Range pages, Time use, Time back);
  std::vector<Region*> for_swap(std::uint64_t bytes, Time back);
  /// Claims the first victim if more bytes are registered (Domain::begin_trim); or null.
  Region* to_trim(std::uint64_t keep_bytes);
  /// Notes that a claimed region is about to be gone.
  void retired(Region* region);
  /// Begins anew with an empty domain.
  void restart() { trimming_ = 0; }

 private:
  static constexpr Time kAnyTime = INT64_MIN;

  /// Claims idle regions without an expected use by `not_before`, until `fits(victims)` holds without them.
  /// If it never holds, no region is claimed.
  template <class Fits>
  std::vector<Region*> until(Fits&& fits, Time not_before);
  /// Claims a region that Victims gave; false (and it is back there): in use since.
  bool claim(Region* region);
  void add_of_bytes(std::uint64_t bytes, std::vector<Region*>& victims);

  DomainContext& context_;
  RegionTable& table_;
  Admission& admission_;
  Retirement& retirement_;
  std::size_t trimming_ = 0;  ///< bytes of the regions that to_trim() has claimed
};

}  // namespace pinion
