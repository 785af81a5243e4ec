// Redirecting one function of another library by rewriting its first instruction.
//
// Owns the branch written over the function's entry, and the instruction that it displaced. The branch is a
// single instruction (x86-64: jmp rel32, aarch64: b) to a stub nearby, which jumps to the target anywhere. A
// single instruction can be written by one atomic store, and glibc's system call wrappers begin with one of
// the same length. So a thread that waits in the kernel inside the function returns to intact code. The usual
// patch of 13 bytes covers the return address of the system call: installing it crashes threads inside.
//
// Others may patch over the branch and keep it as "the original", and put it back when they leave. So each
// time ours is put on top of other code, it gets a stub of its own: the branch at the entry tells who lies
// beneath.
//
// Called from ordinary code, outside of hooks, but for displaced(), note_restored(), in_place() and pages(),
// which any thread may call at any time. The caller serialises the other calls for all patches of the
// process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "base/error.h"
#include "base/range.h"

namespace pinion {

/// Returns the target of a jump at `code`, for the forms that patching libraries write; null when there is no
/// such jump.
void* jump_target(const std::byte* code);
/// The size of a landing pad (endbr64, bti) at `code`, which patches leave alone; 0: there is none.
std::size_t landing_pad_bytes(const std::byte* code);

class CodePatch {
 public:
  /// Chooses where to patch `function`, whose symbol has this name: behind a landing pad (endbr64, bti), or
  /// on a jump that other code has put there. Changes no code. May be called again after the patch was
  /// overwritten. It then accepts only the function's own code and jumps of a known form. A branch of ours
  /// that lies there counts as applied: a thread of the parent's has put it there when this process was
  /// forked, or others put it back. EAGAIN: other code holds the function while it patches.
  Error aim(void* function, const char* name);

  /// The target of another library's jump at the entry, after aim(); null if there is none.
  void* displaced_target() const { return displaced_target_; }

  static constexpr std::size_t kLevels = 4;
  /// The targets of others that lie beneath, from the latest (0) on; null: none there. Any thread, any signal
  /// handler.
  void* displaced(std::size_t place) const {
    const std::size_t used = used_.load(std::memory_order_acquire);
    return place < used ? levels_[used - 1 - place].displaced.load(std::memory_order_acquire) : nullptr;
  }
  /// Looks whether others have put back a branch of ours that they had kept: they are called no more. Any
  /// thread, any signal handler; before their code can be unloaded.
  void note_restored();

  /// Makes the function jump to `target` (always the same one for one patch). On failure the code is
  /// unchanged.
  Error apply(const void* target);
  /// Puts back the instructions that apply() displaced. Refuses when other code has patched over it since.
  Error restore();
  /// Whether apply() has succeeded and restore() is still due.
  bool is_applied() const { return applied_.load(std::memory_order_acquire); }
  /// Whether a call of the function still reaches the target.
  bool in_place() const;
  /// The pages that have to be writable before other code can change the entry. Empty before aim().
  Range pages() const;

 private:
#if defined(__x86_64__)
  static constexpr std::size_t kBranchBytes = 5;
  static constexpr std::size_t kAlignment = 16;  ///< of a function whose entry one store can change
#elif defined(__aarch64__)
  static constexpr std::size_t kBranchBytes = 4;
  static constexpr std::size_t kAlignment = 4;
#else
#error "no code patch known for this processor"
#endif
  /// Bytes that are remembered of the function, and on x86-64 stored at once.
  static constexpr std::size_t kEntryBytes = 16;
  using Entry = std::array<std::byte, kEntryBytes>;

  /// What lay at the entry when our branch was put there, and the stub of that branch.
  struct Level {
    std::atomic<std::byte*> stub{nullptr};
    std::atomic<void*> displaced{nullptr};
    Entry before{};
  };

  Error write(const Entry& content);
  /// The level whose stub the entry branches to; kLevels: none of them.
  std::size_t level_at_entry() const;
  /// The level for what has been aimed at.
  std::size_t level_wanted() const;

  // Any thread reads these two while aim() writes them.
  std::atomic<std::byte*> entry_{nullptr};  ///< the function's first byte
  std::atomic<std::size_t> offset_{0};      ///< of the branch in the entry
  void* displaced_target_ = nullptr;
  Entry own_code_{};  ///< as first seen without a jump
  bool own_code_known_ = false;
  Entry before_{};                       ///< when last aimed
  std::array<Level, kLevels> levels_{};  ///< from the first on
  std::atomic<std::size_t> used_{0};     ///< of the levels; the last of them is on top
  std::atomic<bool> applied_{false};
};

}  // namespace pinion
