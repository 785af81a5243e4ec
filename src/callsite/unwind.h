// Steps from a stack frame to its caller's: the processor's unwind tables (.eh_frame), read one code address
// at a time. Owns nothing. Every function may be called from any thread, from hooks and from signal handlers:
// on glibc 2.35+ the table of a code address is found without a lock, nothing is allocated and no system call
// is made. Older C libraries take the loader's lock for the search. The code at a given address must stay
// mapped during the call, as it does for an address that is on the caller's stack.
//
// An unwinding library returns the frames, but hides the registers and memory words that they depend on. A
// call-site template is right only if it checks every one of those (call_site.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace pinion {

/// A stack is identified by this many of its innermost frames.
constexpr std::size_t kMaxCallFrames = 16;

/// A function's entry, from which its caller is found. `stack_pointer` is the caller's after the return, that
/// is the canonical frame address (CFA) of the function; `frame_pointer` is the caller's frame-pointer
/// register (rbp).
struct EntryFrame {
  Address return_address;
  Address stack_pointer;
  Address frame_pointer;

  /// The entry frame of the function that this is inlined into, an interposed function; the result is valid
  /// until that function returns.
  [[gnu::always_inline]] static inline EntryFrame here() {
    return {reinterpret_cast<Address>(__builtin_return_address(0)),
            reinterpret_cast<Address>(__builtin_dwarf_cfa()),
            *static_cast<const Address*>(__builtin_frame_address(0))};
  }
};

/// The frames of a stack, innermost first, as return addresses.
struct CallFrames {
  std::size_t depth = 0;
  Address return_addresses[kMaxCallFrames];
};

/// Unwinds with the compiler's runtime (libgcc), a microsecond or more per stack. The stack ends at an
/// outermost function, at code without unwind tables, or above a signal handler: the interrupted code did not
/// make the call. A handler's last frame is the trampoline it returns to.
CallFrames unwind_with_runtime(const EntryFrame& entry);

#if defined(__x86_64__)

/// The way from a frame to its caller, for one return address into that frame's function: the canonical frame
/// address (CFA) and the whereabouts of the frame pointer. The caller's return address is at CFA − 8; the CFA
/// is also the caller's stack pointer.
struct FrameRule {
  enum class Cfa : std::uint8_t {
    none,           ///< end of the stack: outermost function, signal trampoline, or beyond these rules
    stack_pointer,  ///< rsp + cfa_offset
    frame_pointer,  ///< rbp + cfa_offset
    stored_at_frame_pointer,  ///< the word at rbp + cfa_offset: functions that realign their stack (AVX code)
  };
  enum class FramePointer : std::uint8_t {
    unchanged,                ///< the caller's is still in the register
    stored_at_cfa,            ///< saved at CFA + frame_pointer_offset
    stored_at_frame_pointer,  ///< saved at rbp + frame_pointer_offset: functions that realign their stack
    lost,                     ///< beyond recovery here
  };

  Cfa cfa;
  FramePointer frame_pointer;
  std::int32_t cfa_offset;
  std::int32_t frame_pointer_offset;
};

/// Reads the rule for a return address from the unwind tables.
FrameRule find_frame_rule(Address return_address);

#endif

}  // namespace pinion
