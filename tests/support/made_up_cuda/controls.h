// What tests set and see of the driver, apart from its calls: failures to come, counts, an observer.
//
// Owns its own state, guarded inside. Any thread; never under the driver's mutex unless a comment says so.
#pragma once

#include "support/made_up_cuda/world.h"

namespace pinion::made_up_cuda {

/// Lists an entry point at its first call.
void know_entry(Entry& entry);
/// Calls the test's observer, and waits as long as the test has set for this name.
void notice_call(const char* name);
/// A failure that the test has ordered for this call, or success.
Result take_failure(const char* name);
/// Ends the process with a line if this thread calls between the driver's own handlers at fork.
void refuse_in_fork(const char* name);
/// Sets the driver's handlers of forks and of the exit. Under the mutex, once.
void set_handlers();

}  // namespace pinion::made_up_cuda
