// Whether the libpinion that the process has is this preload's own. A program that links libpinion decides by
// its own library path which one that is; what the preload knows of its structures holds for one build only.
// Every way into libpinion's private part asks first, and does without Pinion where the answer is no. Any
// thread; not from hooks.
#pragma once

namespace pinion {

bool same_build();
/// The same, and the first no is told on standard error, in one line: for what only programs do that Pinion
/// is for. Launchers and shells have the preload too.
bool same_build_or_say_so();

}  // namespace pinion
