// Whether the process's libpinion is of the preload's own build. A program that links libpinion brings the
// one on its own library path, and the preload's view of its structures holds for one build only. Every way
// into libpinion's private part checks first, and stays off after a mismatch. Any thread; not from hooks.
#pragma once

namespace pinion {

bool same_build();
/// Checks like same_build(), and reports the first mismatch on standard error, in one line. For calls that
/// only Pinion's target programs make: launchers and shells have the preload too.
bool same_build_or_say_so();

}  // namespace pinion
