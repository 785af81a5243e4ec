// The source of the heap's hugepages: the kernel (kernel_pages.h); in tests, a source that fails at will.
//
// map(), map_records() and unmap_records() are called under a shard's lock: they concern only memory that the
// program never saw, and make their system calls directly. discard(), offer() and unmap() are called without
// any lock of the heap: they end what the program had, and run other libraries' hooks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace pinion {

/// Areas are multiples of this, and aligned to it.
constexpr std::size_t kHugepage = std::size_t{2} << 20;

enum class Backing : std::uint8_t {
  transparent,  ///< advised: hugepages where the kernel has them at first touch
  base,         ///< the system's page size
};
constexpr std::size_t kBackings = 2;

/// Whole hugepages of one backing, or an empty range.
struct Pages {
  Range range;
  Backing backing = Backing::base;
  bool whole = false;  ///< goes back to the source as a whole only
};

class PageSource {
 public:
  /// Maps `wanted` bytes of zeros, or fewer, `least` at least. Both are whole hugepages.
  virtual Pages map(std::size_t least, std::size_t wanted) = 0;
  /// Gives the contents back to the kernel; the range then reads as zeros. False: it is as before.
  virtual bool discard(Range hugepages) = 0;
  /// The kernel may take the contents when memory is short: each page then reads as before or as zeros, until
  /// it is written to. False: all is as before.
  virtual bool offer(Range hugepages) = 0;
  virtual void unmap(const Pages& pages) = 0;

  /// Whether the system charges memory that may be written, touched or not (vm.overcommit_memory=2). Then
  /// private memory from map() and discard() has no rights, and costs nothing, until charge(); offer() is
  /// refused.
  virtual bool charges_untouched() const { return false; }
  /// Makes such memory readable and writable. False: the system has no room for it. Called like map().
  virtual bool charge(Range /*hugepages*/) { return true; }

  /// Maps zeros for the heap's own records; null: memory is short.
  virtual void* map_records(std::size_t bytes) = 0;
  virtual void unmap_records(void* records, std::size_t bytes) = 0;

 protected:
  constexpr PageSource() = default;
  ~PageSource() = default;
};

}  // namespace pinion
