// Interception of memory events inside libc.
//
// glibc's malloc, free, realloc and thread exit call munmap, mremap, madvise and brk through hidden aliases,
// which bypass preloaded functions; but the aliases name the very code that the exported symbols name. So the
// entries of those functions are redirected in memory: one mechanism sees the program's calls and libc's own.
// A replacement classifies the call, calls begin(), makes the system call, and calls end(). Where begin()
// answers so, the system call is left out, and the caller is given its result: success or ENOMEM.
//
// Owns the patches of libc's functions and the replacements. install, uninstall, reinstall and
// hooks_intact are ordinary code, guarded by one mutex; the replacements run in every thread, in signal
// handlers and in children of vfork, and take no lock. A child of fork has the patches too; its mutex is new.
//
// The replacements see all of memory_calls.h, called by name or through syscall(). A call that fails is
// bracketed too, unless its arguments alone make the kernel refuse it. They miss:
//   - system calls that bypass libc (an allocator that makes its own, as the sanitizers' do; the dynamic
//     linker, which loader.h watches; io_uring's madvise);
//   - changes from elsewhere: mapped files that other processes or open(O_TRUNC) cut, userfaultfd's moves, a
//     debugger.
// end() is missing for a thread that leaves a replacement by a longjmp from a signal handler, and for a child
// of vfork that is killed in one.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/range.h"
#include "monitor/memory_change.h"

namespace pinion {

/// Callbacks of the hooks. Law for all of it: never allocate, block, take a lock that ordinary code holds
/// while it allocates, or call a libc function that may do so. Callers: any thread, any signal handler, a
/// child of vfork. Every begin() is followed by the end() of the same range on the same thread; a call with
/// two ranges (mremap with MREMAP_FIXED) ends them in reverse order.
struct HookCallbacks {
  /// Called before the system call: the old contents are still there. The replacement follows the answer if
  /// it is `refuse` or the change's alternative.
  Answer (*begin)(const MemoryChange&) = nullptr;
  void (*end)(Range) = nullptr;  ///< after it
  /// Other code is about to make a hooked entry writable, or to map over it: from now on events may be
  /// missed, until hooks_exposed() is false and hooks_intact() true.
  void (*exposed)() = nullptr;
  /// A plain mapping of so many bytes is about to appear.
  MappingWish (*wish)(std::size_t bytes) = nullptr;
  /// A mapping has appeared where the kernel had none: a registration there is stale. Without brackets,
  /// because only the caller has the memory's address.
  void (*appeared)(const NewMapping&) = nullptr;
  /// Whether a hook on another thread than this has this very bracket open.
  bool (*bracketed)(Range) = nullptr;
  /// The dynamic linker has unmapped code; its place is still free.
  void (*unloaded)() = nullptr;
  bool operator==(const HookCallbacks&) const = default;
};

enum class HookState : std::uint8_t {
  good,       ///< in place; in the self-test: the event arrived with the right range
  chained,    ///< in place, and the next in the chain is another library's patch
  skipped,    ///< the event does not occur here (another allocator, memory kept by libc, missing function)
  unclaimed,  ///< unseen, outside of the monitor's claims
  failed,
};

/// One row for each function patched, or for each way memory goes in the self-test.
struct HookStatus {
  const char* name;
  HookState state;
  Error error;  ///< why it failed or was skipped
};

struct HookReport {
  bool complete = false;  ///< no row failed: every event through libc is seen
  Error error;            ///< the first failure
  std::vector<HookStatus> rows;
};

/// Redirects libc's functions. Those that cannot be patched are left as they were and reported. The callbacks
/// are one set a process: a second call reports, with EBUSY where its callbacks are others. Other threads may
/// run: each entry is changed by one atomic store of one instruction. One danger remains. In mmap, mremap,
/// sbrk, syscall, pkey_mprotect, remap_file_pages and process_madvise the first instruction is shorter than
/// the branch, and a thread may be preempted right after it. So install before threads start, if possible.
HookReport install_libc_hooks(HookCallbacks callbacks);

/// Whether these are the callbacks that the hooks call.
bool hooks_call(const HookCallbacks& callbacks);

/// Has the replacements called by the symbols of the preloaded libpinion-symbols.so instead. Patches nothing.
/// libc's own calls bypass the symbols.
HookReport install_symbols(HookCallbacks callbacks);
/// Whether that library is in the process, in front of libc.
bool symbols_are_preloaded();

/// Makes a munmap that was held back, as its replacement would have made it: other libraries' hooks beneath
/// see it. Without callbacks. Whether it succeeded. Ordinary code.
bool unmap_held_back(Range memory);
/// Puts addresses without memory in place of a mapping, by libc's mmap, so that other libraries' hooks see
/// it. Without callbacks: the caller's brackets are open. Whether it succeeded. Hooks may call it.
bool empty_heard(Range memory);

/// Whether calls still reach every applied patch first. Compares a few bytes.
bool hooks_intact();

/// Whether a call of mremap may meet another library's replacement. UCX's passes four arguments on, and loses
/// the destination of a move: the kernel then takes what a register holds. Takes the dynamic linker's lock.
bool others_replace_mremap();

/// Puts back on top those patches that others have overwritten since; theirs is called next. Unknown code is
/// left and reported. EAGAIN: others are patching now, so that a later call may succeed.
HookReport reinstall_hooks();

/// Takes the callbacks away and restores the entries, if any. An entry that others have patched since is
/// left; the replacement then only passes calls on. A thread may still be inside a replacement: do not unmap
/// the code.
void uninstall_libc_hooks();

}  // namespace pinion
