// Parts that the provider carries out: leases their local memory, posts them, and keeps those that find the
// endpoint's queue full or that may not register here. Owns the parts from by_provider() to their end.
//
// Any thread; a mutex guards the parts that wait.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "firehose/call.h"
#include "firehose/ways.h"

namespace pinion::firehose {

class RemoteAccess {
 public:
  explicit RemoteAccess(Ways& ways) : ways_(ways) {}

  /// Posts the part, with part.target as its remote memory. Strategy::ended() follows, perhaps before this
  /// returns. If its local memory cannot be registered, it goes by message after that.
  void by_provider(Part& part);
  /// Tries those that wait, outside of handlers. True: none is left.
  bool flush();
  /// The provider has carried the part out, or has failed.
  void done(Part& part, const Error& error);

 private:
  bool post(Part& part);

  Ways& ways_;
  Mutex mutex_;
  Parts waiting_ GUARDED_BY(mutex_);
  std::atomic<bool> has_waiting_{false};
};

}  // namespace pinion::firehose
