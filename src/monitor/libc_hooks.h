// Interception of memory events inside libc.
//
// glibc's malloc, free, realloc and thread exit call munmap, mremap, madvise and brk through hidden aliases,
// which no preloaded function sees; but the aliases name the very code that the exported symbols name. So the
// entries of those functions are redirected in memory: one mechanism sees the program's calls and libc's own.
// A replacement classifies the call, says begin(range), makes the system call, and says end(range).
//
// Owns the patches of libc's functions and the replacements. install, uninstall, reinstall, self_test and
// hooks_intact are ordinary code, guarded by one mutex; the replacements run in every thread, in signal
// handlers and in children of vfork, and take no lock. A child of fork has the patches too; its mutex is new.
//
// What the replacements see: all of memory_calls.h, called by name or through syscall(); a call that fails is
// bracketed too, unless its arguments alone make the kernel refuse it. What they do not see:
//   - system calls made without libc (an allocator that makes its own, as the sanitizers' do; the dynamic
//     linker, which loader.h watches; io_uring's madvise);
//   - what changes memory from elsewhere: files truncated or holes punched under a mapping, userfaultfd's
//     moves, a debugger.
// A thread that leaves a replacement by a longjmp from a signal handler, and a child of vfork that is killed
// in one, never say end().
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/range.h"

namespace pinion {

/// Where memory events go. Law for both functions: never allocate, never block, take no lock that ordinary
/// code holds while it allocates, call no libc function that may do so; any thread, any signal handler, a
/// child of vfork. Every begin() is followed by the end() of the same range on the same thread, in the
/// reverse order where a call has two ranges (mremap with MREMAP_FIXED).
struct HookSink {
  void (*begin)(Range) = nullptr;  ///< before the system call: the old contents are still there
  void (*end)(Range) = nullptr;    ///< after it
  /// Somebody is about to make a hooked entry writable, or to map over it: from now on events may be missed,
  /// until hooks_exposed() says no and hooks_intact() yes. Under the same law.
  void (*exposed)() = nullptr;
  /// A mapping has appeared where the kernel had nothing: whatever was registered there is stale, unseen.
  /// Under the same law; without brackets, as nobody knows of the memory before it returns.
  void (*appeared)(Range) = nullptr;
  /// Whether a hook on another thread than this has this very bracket open. Under the same law.
  bool (*bracketed)(Range) = nullptr;
  /// The dynamic linker has unmapped code; its place is still free. Under the same law.
  void (*unloaded)() = nullptr;
  bool operator==(const HookSink&) const = default;
};

enum class HookState : std::uint8_t {
  good,       ///< in place; in the self-test: the event arrived with the right range
  chained,    ///< in place, and the next in the chain is another library's patch
  skipped,    ///< there is nothing to see here (another allocator, memory kept by libc, no such function)
  unclaimed,  ///< not seen, and the monitor does not say that it sees it
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

/// Redirects libc's functions to the sink. Those that cannot be patched are left as they were and reported.
/// There is one sink a process: a second call reports, and with another sink says EBUSY. Other threads may
/// run: each entry is changed by one atomic store of one instruction. The one danger is a thread that was
/// preempted exactly between the first two instructions of mmap, mremap, sbrk, syscall, pkey_mprotect,
/// remap_file_pages or process_madvise, whose first instruction is shorter than the branch; so install before
/// there are threads where that is possible.
HookReport install_libc_hooks(HookSink sink);

/// Whether it is this sink that the hooks tell.
bool hooks_tell(const HookSink& sink);

/// Has the replacements called by the symbols of the preloaded libpinion-symbols.so instead, and tells the
/// sink. Patches nothing. libc's own calls do not come by there.
HookReport listen_to_symbols(HookSink sink);
/// Whether that library is in the process, in front of libc.
bool symbols_are_preloaded();

/// Whether every patch that was made still is what a call meets first. Compares a few bytes.
bool hooks_intact();

/// Whether somebody has made the code of a patched entry writable and not yet unwritable again: it may be
/// overwritten at any moment. Libraries that patch do this for some microseconds. Lock-free.
bool hooks_exposed();

/// Puts back on top of those patches that others have overwritten since; theirs is called next. What cannot
/// be recognised is left and reported.
HookReport reinstall_hooks();

/// Lets memory go in every way that libc has (after install, and again whenever in doubt: valgrind, for one,
/// takes the patches and goes on with its translation of the old code) and checks that each event arrives.
/// The sink sees the events too.
HookReport self_test();

/// Silences the sink and restores the entries, if any. An entry that somebody has patched since is left; the
/// replacement then only passes calls on. A thread may still be inside a replacement: do not unmap the code.
void uninstall_libc_hooks();

}  // namespace pinion
