// Call sites: a 64-bit name for "where in the program was this interposed function called from". It is made
// from the return addresses of the caller's stack, at a cost that every call can bear.
//
// Owns: per thread, a cache of stack templates (CallSiteCache); per process, the frames behind each hash, for
// reports (call_site_frames).
// The first capture of a stack in the process also notes the line of Python that the thread is in. Lines that
// make the same call have one stack, and so are one site.
//
// Guards: a cache belongs to its thread; a signal handler of that thread may interrupt it at any point. The
// process table is append-only and lock-free. invalidate_call_sites() may be called by any thread, hooks
// included. Nothing here allocates or blocks, and only that first capture makes system calls, in a process
// that runs Python (see unwind.h for old C libraries).
//
// How a hit works. Unwinding a stack is a deterministic computation. Its inputs are the unwind tables,
// the caller's return address and stack pointer, the frame-pointer register if a frame on the way depends on
// it, and the words read from the stack: return addresses, saved frame pointers, and stored
// frame addresses of functions that realign their stack. A template keeps these inputs, the words in the
// order in which the unwinding read them, and its result. If all the inputs are the same again, so is the
// result.
//
// Why verifying reads only live words. The address of each word was computed from the words before it. As
// long as those have been found equal, a new unwinding would have come to the same address. It is a word of a
// live frame of the current stack. At the first difference the verification stops. So fibers and
// freed stacks stay untouched, as by an unwinding, and a stale slot ends it (alloca, other callers at the
// same depth).
//
// The tables change only where code is unmapped: invalidate_call_sites() then empties every thread's cache.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/range.h"
#include "callsite/python_place.h"
#include "callsite/unwind.h"

namespace pinion {

/// Identifies a stack by hash; equal stacks have equal hashes for as long as the process runs (not across
/// runs: code is loaded at random addresses). Never 0. That two stacks share one of 2^64 hashes is neglected.
using CallSite = std::uint64_t;

/// True if stacks are recognised by templates on this processor; where not, each capture is a full
/// unwinding with the compiler's runtime (correct, but a hundred times slower).
#if defined(__x86_64__)
constexpr bool kCallSiteTemplates = true;
#else
constexpr bool kCallSiteTemplates = false;
#endif

/// Makes all threads drop their templates. To be called when code has been unmapped
/// (dlclose), before other code can be mapped in its place.
void invalidate_call_sites();
/// Returns how often invalidate_call_sites() was called.
std::uint32_t code_generation();

/// The process-wide table of frames has this many places.
constexpr std::size_t kMaxNamedCallSites = 4096;

/// The frames of a captured call site. False when it is unknown: still to be captured, or refused by the full
/// table. Frames in code that has been unmapped since are still returned.
bool call_site_frames(CallSite site, CallFrames& frames);

/// Writes the line of Python that a site was first met at (python_place.h); empty: it was none.
void python_of(CallSite site, char (&text)[kPythonPlaceBytes]);

/// Returns how often the table was too full for a site. The hashes of these sites are as good as any, but
/// reports leave them nameless; a site counts whenever a thread meets it on a stack that is new to it.
std::uint64_t unnamed_call_sites();

/// One thread's templates. Lives in zeroed memory of its owner (about 310 KiB; only its used part is
/// touched), without construction or destruction.
class CallSiteCache {
 public:
  /// Names the stack of `entry`, the caller of the function that made it. The owning thread only. Reentrant:
  /// a signal handler that interrupts a capture unwinds without the cache. (If it leaves by
  /// siglongjmp instead of returning, this thread captures without the cache from then on: slower, as right.)
  CallSite capture(const EntryFrame& entry);

  /// Captures that had to unwind: the misses of the cache.
  std::uint64_t unwinds() const { return unwinds_; }

 private:
  std::uint64_t unwinds_;

#if defined(__x86_64__)
  static constexpr std::size_t kSetBits = 6;
  static constexpr std::size_t kWays = 8;  ///< stacks that differ only further up share a set
  static constexpr std::size_t kRuleBits = 9;
  /// A step reads a return address, and perhaps a saved frame pointer and a stored frame address.
  static constexpr std::size_t kMaxWords = 3 * (kMaxCallFrames - 1);

  struct Key {
    Address return_address;
    Address stack_pointer;
  };
  struct Template {
    CallSite site;
    Address frame_pointer_mask;  ///< all ones when a frame depended on the register, else 0
    Address frame_pointer;
    std::uint32_t word_count;
    std::uint32_t offsets[kMaxWords];  ///< of the words from the stack pointer, in the order of the unwinding
    Address words[kMaxWords];
  };
  struct Set {
    Key keys[kWays];
    std::uint32_t next_victim;
    Template templates[kWays];
  };
  struct KnownRule {
    Address return_address;
    FrameRule rule;
  };
  class Unwinding;

  static bool holds(const Template& known, const EntryFrame& entry);
  static CallSite find(const Set& set, const EntryFrame& entry);
  static CallSite capture_alone(const EntryFrame& entry);
  CallSite learn(const EntryFrame& entry, Set& set);
  FrameRule rule_at(Address return_address);
  void forget(std::uint32_t generation);

  volatile sig_atomic_t busy_;  ///< a capture of this thread is under way
  std::uint32_t generation_;    ///< of the code addresses known here
  Set sets_[std::size_t{1} << kSetBits];
  /// Keep the making of templates cheap where stacks vary a lot (alloca, fibers).
  KnownRule rules_[std::size_t{1} << kRuleBits];
#endif
};

static_assert(std::is_trivial_v<CallSiteCache>, "zeroed memory is all that its owner provides");

}  // namespace pinion
