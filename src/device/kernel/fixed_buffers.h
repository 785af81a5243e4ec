// One io_uring that is never used for I/O: its table of fixed buffers is how an ordinary process makes the
// kernel pin pages (FOLL_LONGTERM, as a NIC's driver does). Owns the ring and its slots. Any thread; the free
// list has a short mutex, kernel calls are made outside of it and are serialised by the kernel itself, at
// most kSlotBytes each. Spoken by raw system calls: only the registration half of io_uring is needed, so the
// preload works on compute nodes that lack liburing.
//
// The program may close or overwrite the ring's descriptor. A mapping of the ring keeps the ring and all its
// pins alive until the next pin() or unpin() notices the loss; forked children lose it. That call
// opens a new ring, pins the contents of all slots there, and lets the old ring go.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/kept_file.h"
#include "base/mutex.h"
#include "base/range.h"

namespace pinion {

class FixedBuffers {
 public:
  /// The kernel's own limit.
  static constexpr std::uint32_t kSlots = 16384;
  /// Most bytes of one kernel call (the kernel takes up to 1 GiB): 0.1 to 0.3 ms on touched 4 KiB pages,
  /// after which other threads get the ring.
  static constexpr std::size_t kSlotBytes = std::size_t{16} << 20;

  /// The slots of one registration.
  struct Chain {
    std::uint32_t first = 0;
    std::uint32_t length = 0;
  };

  /// Nothing, and `error` is set, where the kernel refuses (ENOSYS, EPERM: sysctl, seccomp) or is too old
  /// (EINVAL: before 5.19). The descriptor is close-on-exec.
  static std::unique_ptr<FixedBuffers> open(std::uint32_t slots, int& error);
  ~FixedBuffers();
  FixedBuffers(const FixedBuffers&) = delete;
  FixedBuffers& operator=(const FixedBuffers&) = delete;

  /// Pins whole pages for writing; no slot holds parts of two ranges. Returns 0 or an errno, ENOSPC when the
  /// slots are used up; then nothing stays pinned.
  int pin(std::span<const Range> ranges, Chain& chain);
  /// Returns 0, or the errno for which (part of) the chain is pinned still; its owner may try again.
  int unpin(Chain chain);

  /// Lets go of the parent's ring in the child of a fork, whose only thread needs no lock. This object is
  /// then unusable.
  void abandon_after_fork() NO_THREAD_SAFETY_ANALYSIS { ring_.file.close(); }

 private:
  /// An open ring with an empty table.
  struct Ring {
    KeptFile file;
    void* mapping = nullptr;
    /// 0 or an errno.
    int open(std::uint32_t slots);
    /// The kernel's call on one slot: 0 or an errno; EBADF when the program has closed the ring's descriptor.
    int update(std::uint32_t slot, const iovec& buffer) const;
    void close();
  };

  FixedBuffers(Ring&& ring, std::uint32_t slots);
  /// Puts `range` into a slot (an empty one clears it). Returns 0 or an errno.
  int update(std::uint32_t slot, Range range);
  /// Opens a new ring with the same contents, if this is still the ring of `generation`.
  int replace_ring(std::uint32_t generation);
  bool take_slots(Chain& chain);
  void give_slots(Chain chain);

  const std::uint32_t slots_;
  SharedMutex ring_mutex_;  ///< shared: to use ring_; exclusive: to replace it
  Ring ring_ GUARDED_BY(ring_mutex_);
  std::uint32_t generation_ GUARDED_BY(ring_mutex_) = 0;
  /// The contents of each slot, written by the owner of its chain. Untouched until used.
  std::unique_ptr<iovec[], decltype(&std::free)> contents_;

  Mutex mutex_;
  Chain free_ GUARDED_BY(mutex_);
  /// The slot after this one, in its registration's chain or in the free list. The links of a taken chain
  /// belong to the chain's holder.
  std::vector<std::uint32_t> next_;
};

}  // namespace pinion
