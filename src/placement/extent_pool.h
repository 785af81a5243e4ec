// Spare records of extents. Owns them; their memory comes from the heap's page source, and stays. Guarded by
// the lock of its shard (hugepage_heap.h).
#pragma once

#include <new>

#include "base/assert.h"
#include "placement/extent_tree.h"
#include "placement/page_source.h"

namespace pinion {

class ExtentPool {
 public:
  constexpr explicit ExtentPool(PageSource& source) : source_(source) {}

  /// Whether so many records are there, or come from the source.
  bool has(unsigned count) {
    if (spares_ >= count) return true;
    auto* const more = static_cast<Extent*>(source_.map_records(kBytesAtOnce));
    if (more == nullptr) return false;
    for (std::size_t i = 0; i < kBytesAtOnce / sizeof(Extent); ++i) put(*new (more + i) Extent);
    return true;
  }
  /// After has().
  Extent& take() {
    PINION_ASSERT(spare_ != nullptr);
    Extent& extent = *spare_;
    spare_ = extent.older;
    --spares_;
    extent.older = nullptr;
    return extent;
  }
  void put(Extent& extent) {
    extent = Extent{};
    extent.older = spare_;
    spare_ = &extent;
    ++spares_;
  }

 private:
  static constexpr std::size_t kBytesAtOnce = std::size_t{64} << 10;

  PageSource& source_;
  Extent* spare_ = nullptr;
  unsigned spares_ = 0;
};

}  // namespace pinion
