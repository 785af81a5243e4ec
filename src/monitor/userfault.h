// Memory events from the kernel itself: userfaultfd.
//
// Ranges are registered with a userfaultfd in write-protect mode as they are registered with a device. Pages
// are never write-protected, so faults do not occur. The kernel sends the events of those mappings, made by
// any code: unmapped (munmap, mmap over them, a shrinking brk or mremap), moved (mremap), dropped (madvise
// DONTNEED, FREE, REMOVE, also by io_uring and process_madvise). The kernel sends none for mprotect, shmdt,
// shmat and remap_file_pages over a mapping, MADV_GUARD_INSTALL, files truncated or punched under a mapping,
// and userfaultfd's moves.
//
// Owns the process's one userfaultfd and the thread that reads it; both last as long as the process, because
// every event of a watched range waits for the reader. The reader has a table of open files of its own, that
// holds only the userfaultfd: it survives a program that closes all its files, and the reader always reads
// this one. start, stop and watch are ordinary code, of any thread. The reader makes system calls and calls
// the callbacks, nothing else: allocation and locks are forbidden, since the thread of the event may hold any
// lock. A forked child loses the reader and all watches.
//
// A program that has a userfaultfd of its own keeps it: Pinion's gives way once that is seen, in its call of
// libc's syscall(), or among its open files when memory is about to be watched.
//
// The kernel reports an event that happens in any case: it cannot be held back or refused, and the answer of
// begin() is ignored.
//
// ORDER. The kernel lets the system call go on when its event has been *read*, before it is handled.
//
//   caller U                                 reader                          any thread that acquires
//   pages unmapped, event queued, waits
//                                            poll(): there is an event
//                                            sequence := odd
//   returns from munmap  <------------------ read()
//   mmap() gets the address anew             dooms the regions in it
//   tells others                             sequence := even
//                                                                            sequence odd? then wait until
//                                                                            even look for a region
//
// U returns after the read, which comes after the store of the odd number. So a thread that acquires after
// U's call has returned (U itself, or a thread synchronised with U) sees that odd number or a later one. If
// it is odd, the thread waits until the regions are doomed; if even, they have been, because the reader works
// off all that it has read before it stores. Hence no acquire that comes after the event meets a region from
// before it. A registration under way at the event is in the index before its device call and its watch
// begin, and is doomed there.
//
// Two windows stay; both are shorter than the reader takes to wake up.
//   - Between the kernel's unmapping and the odd number, a third thread may be given the same address by mmap
//     and acquire it without knowing of U. Hooks beside this monitor close the gap: a mapping that appears
//     over a registration proves it stale (HookCallbacks::appeared). Alone, the gap stays open.
//   - madvise is reported *before* the pages are dropped, and its end is not reported. Such an event's
//     bracket stays open for kDropTime, in which the range is not registered; a thread held up for longer
//     between the two is exposed. Where the hooks have seen the call, theirs is the bracket.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"
#include "monitor/libc_hooks.h"

namespace pinion {

/// The time after its event when an madvise is taken to be done.
constexpr Duration kDropTime = kMillisecond;

/// Why this process cannot have a userfaultfd that serves; no error where it can.
Error userfaultfd_refused();

/// Starts to call begin() and end(), on the reader's thread alone, which is not the one whose memory goes.
Error start_userfaultfd(const HookCallbacks& callbacks);
/// Ends all calls and all watches.
void stop_userfaultfd();

/// Watches events of these pages until they are unmapped. An error has the cause of a refusal (a kind of
/// memory that the kernel cannot watch, or another userfaultfd of the program watches it).
///
/// There is no way back for a single range. Memory that was registered once will be again; to watch it a
/// second time costs less than to let it go and watch it anew; and neither needs a record of watched memory.
/// The price is one slow munmap of deregistered memory.
Error watch_by_userfaultfd(Range pages);

/// Threads of this room's own that are running: 0 or 1.
int userfaultfd_threads();

// ---- the program's own userfaultfd ----

/// The program has one: two cannot have the same memory, and it must get its own. All watches end, for good,
/// and events are no longer seen (HookCallbacks::exposed). Hooks may call it.
void userfaultfd_gives_way();
/// Whether it has given way; the error says so.
Error userfaultfd_gave_way();
enum class Look {
  now,
  at_times,  ///< for at most 2 % of the time, so one that has just been made may be missed
};
/// Whether the program has one, so that a fault by a thread of Pinion's might wait for the program for ever.
/// Looks among the open files. Any thread; no hook.
bool program_serves_faults(Look look);

namespace detail {
extern constinit std::atomic<std::uint32_t> userfault_sequence;
}  // namespace detail

/// Whether an event has been read and not yet handled. Each acquire checks this first: one load.
inline bool userfaultfd_handling() {
  return (detail::userfault_sequence.load(std::memory_order_acquire) & 1) != 0;
}
/// Waits until the event that is being handled has been: some microseconds.
void wait_for_userfaultfd();

}  // namespace pinion
