// Marks a thread as being inside a call of libibverbs that Pinion has made or let pass, or of libfabric,
// whose providers call it. The library calls some of its own functions by their public names, where a preload
// stands in front of them. The front passes those calls on: the program did not make them. Owns one counter a
// thread; any thread.
#pragma once

namespace pinion {

class OwnVerbsCall {
 public:
  OwnVerbsCall() { ++depth(); }
  ~OwnVerbsCall() { --depth(); }
  OwnVerbsCall(const OwnVerbsCall&) = delete;
  OwnVerbsCall& operator=(const OwnVerbsCall&) = delete;

  static bool now() { return depth() > 0; }

 private:
  /// The thread's; one for the whole process, so it lives in libpinion.
  static int& depth();
};

}  // namespace pinion
