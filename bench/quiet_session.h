// Protection of timing from other work. Where autogroups are on, the kernel shares cores between sessions by
// their weight, and niceness acts inside a session only. Single-threaded, before any thread of this command.
#pragma once

#include <string>

namespace pinion::cli {

/// Continues in a child with a session of its own, and with the greatest sensible weight where the kernel
/// allows it. This process waits for it, passes signals on, and ends as it does. Returns, in the child, a
/// note on how far timing is protected.
std::string enter_quiet_session();

}  // namespace pinion::cli
