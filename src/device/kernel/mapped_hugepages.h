// Where memory lies in hugepages, transparent or hugetlb, by the page tables themselves. Linux 6.7 and later
// show it; on older kernels, and where the files of /proc are refused, all pages count as ordinary. So does
// a hugepage mapped page by page (after a partial unmap, for example).
//
// Owns the kernel's files about this process's pages, kept open. Any thread, outside of hooks. A question
// takes a system call, whose time grows with the hugepages looked at: 1.2 us for 64 MiB.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <span>

#include "base/kept_file.h"
#include "base/range.h"

namespace pinion {

/// Each file is opened at the first question that needs it (4 us). A forked child needs its own.
class PageFiles {
 public:
  const KeptFile& pagemap() const;
  const KeptFile& maps() const;
  /// Closes the parent's files in the child of a fork.
  void abandon_after_fork();

 private:
  mutable std::once_flag pagemap_opened_, maps_opened_;
  mutable KeptFile pagemap_, maps_;  ///< constant once opened
};

/// Of a transparent hugepage; the system's page where the kernel has none.
std::size_t transparent_page_size();
/// The first address of `range` that lies outside of hugepages; its end where there is none.
Address end_of_hugepages(Range range, const PageFiles& files);
/// The size of the pages under `range`; the system's where they differ.
std::size_t size_of_pages(Range range, const PageFiles& files);

/// A range, cut where hugepages and ordinary pages meet.
class PageRuns {
 public:
  /// A smaller range counts as ordinary unasked: the question would take half as long as its pin.
  static constexpr std::size_t kAskedFrom = std::size_t{256} << 10;
  /// A range of more runs counts as ordinary: what is cut so small gains nothing.
  static constexpr std::size_t kMost = 32;

  PageRuns(Range pages, const PageFiles& files);
  std::span<const Range> in_hugepages() const { return {huge_.data(), huge_count_}; }
  std::span<const Range> ordinary() const { return {ordinary_.data(), ordinary_count_}; }
  /// Pages of either kind.
  std::size_t count() const;

 private:
  /// False: there are too many runs.
  bool cut(Range pages, const PageFiles& files);

  std::array<Range, kMost> huge_, ordinary_;
  std::size_t huge_count_ = 0, ordinary_count_ = 0;
};

}  // namespace pinion
