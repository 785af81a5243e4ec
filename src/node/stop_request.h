// A request to a running process, by `pinion stop`: Pinion lets go of everything in it and stands aside. The
// request is a file in the process's /dev/shm, which its helper looks for, and writes its answer into.
//
// The process believes a file of its own user alone. Root gives its file to that user, so that requests reach
// processes in containers too, where root may be nobody. The file names the process by number and start time,
// so that one left behind means nothing to a later process of that number.
//
// StopRequest: one thread, outside of hooks. The functions for the other side: any ordinary code.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/error.h"

namespace pinion::node {

/// Requests to the calling process.
class StopRequest {
 public:
  /// Whether the process has been asked; from then on always, also in the processes that it forks.
  bool asked();
  /// Tells those who ask how many bytes are still registered.
  void answer(std::uint64_t registered);
  /// The answer was that nothing is. What is registered from then on goes with its transfer.
  bool is_done() const { return answered_ == 0; }
  /// The process ends: removes the file.
  void remove() const;

 private:
  std::optional<std::uint64_t> answered_;
};

struct StopAnswer {
  std::uint64_t registered;  ///< bytes, by leases that are out
};

/// Asks a process of this user, or, as root, of any. EPERM: it is another user's. ESRCH: there is none. A
/// process that was asked before is left as it is.
Error ask_to_stop(pid_t process);
/// The answer of a process that was asked; nothing: not yet.
std::optional<StopAnswer> stop_answer(pid_t process);

}  // namespace pinion::node
