// Whether the node has an idle core, as its kernel counts: the idle time of all processors, and how long a
// thread, the helper's, had to wait for one. Two small files of /proc, read a few times a second.
//
// Owns descriptors of both. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/clock.h"
#include "base/kept_text.h"

namespace pinion::node {

/// Between two samples.
struct LoadSample {
  double idle_cores = -1;  ///< on the average; negative: not known
  Duration delay = 0;      ///< of the thread each time that it was given a processor
};

/// `before`: the answer until now, kept in between the clear cases.
bool core_idle(const LoadSample& sample, bool before);

class Load {
 public:
  /// Opens the kernel's files, before the first call: `thread` is the one whose waits count, by the kernel's
  /// number.
  void open(pid_t thread);
  /// Looks at the time since the last call; returns `before` at the first one, and where the kernel gives no
  /// figures.
  bool core_idle(Time now, bool before);

 private:
  KeptText uptime_, schedstat_;
  Time sampled_ = 0;
  double idle_seconds_ = -1;
  std::uint64_t delay_ns_ = 0, turns_ = 0;
};

}  // namespace pinion::node
