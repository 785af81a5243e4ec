// Other libraries that patch libc make the code of its entries writable first, by our own mprotect. Until it
// is closed, they may write over our patches at any moment. Owns a bit for each entry that is open so. Any
// thread, any signal handler; no locks.
//
// Our own patching closes the page when it is done, under whoever has opened it meanwhile: their write would
// end the process. So it takes turns with them (OwnPatching).
#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "base/range.h"
#include "monitor/system_call.h"

namespace pinion {

/// Sets the function to call when an entry is opened or mapped over; null: none. Ordinary code.
void report_exposure_to(void (*exposed)());
/// Adds the code of an entry that is about to be patched. One thread.
void expect_exposure_of(Range code);
/// True while a patched entry may be written over.
bool hooks_exposed();

/// Our own change of entries, from the constructor to the destructor: others who open one meanwhile wait in
/// their mprotect, a second at most. Ordinary code with its signals held; one thread at a time.
class OwnPatching {
 public:
  OwnPatching();
  ~OwnPatching();
  OwnPatching(const OwnPatching&) = delete;
  OwnPatching& operator=(const OwnPatching&) = delete;
  /// False: others have an entry open now, and it is their turn.
  explicit operator bool() const { return is_ours_; }
  /// A forked child lacks the thread.
  static void forget_in_child();

 private:
  bool is_ours_;
};

/// Looks whether others have put back what they had displaced: before the hooks call their code again, which
/// may be unloaded next.
void note_restored_entries();

/// Notes that code is about to be mapped over, or changed otherwise.
void note_change_of_code(Range range);

/// An mprotect on its way: opens patched code before the call, or closes it after.
class ProtectionChange {
 public:
  explicit ProtectionChange(const SystemCallArguments& arguments);
  /// Takes the kernel's answer.
  void done(long result) const;

 private:
  std::uint32_t entries_ = 0;  ///< that it opens anew, or closes
  bool opens_ = false;
};

/// Makes the call, an mprotect of these arguments, and takes note when it opens or closes patched code.
template <class MakeCall>
long protecting(const SystemCallArguments& arguments, MakeCall&& make_call) {
  const ProtectionChange change(arguments);
  const long result = make_call();
  change.done(result);
  return result;
}

}  // namespace pinion
