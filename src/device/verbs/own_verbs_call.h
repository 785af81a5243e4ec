// Marks a thread as being inside a call of libibverbs that Pinion has made or let pass, or of libfabric,
// whose providers call it. The library calls some of its own functions by their public names, where a preload
// stands in front of them. The front passes those calls on: the program did not make them. A call that a jump
// has left counts no more (monitor/open_frame.h). Owns one note a thread; any thread. Lives in a frame.
#pragma once

#include "monitor/open_frame.h"

namespace pinion {

class OwnVerbsCall {
 public:
  OwnVerbsCall() { frame_.open(note()); }

  static bool now();

 private:
  /// The thread's; one for the whole process, so it lives in libpinion.
  static const void*& note();

  OpenFrame frame_;
};

}  // namespace pinion
