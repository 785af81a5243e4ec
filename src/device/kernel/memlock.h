// The system's limit on pinning for this process, and the error that names it. Owns nothing; any thread;
// reads /proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"

namespace pinion {

struct Memlock {
  std::size_t limit = SIZE_MAX;  ///< RLIMIT_MEMLOCK in bytes (SIZE_MAX: none)
  bool exempt = false;           ///< CAP_IPC_LOCK: the process is exempt from the limit
  std::size_t locked = 0;        ///< bytes locked by mlock in this process (VmLck)
  std::size_t pinned = 0;        ///< bytes pinned by io_uring, verbs and the like in this process (VmPin)

  bool limited() const { return !exempt && limit != SIZE_MAX; }
  /// Whether the kernel lets this process pin `need` bytes more for an RDMA device.
  bool has_room_for(std::size_t need) const {
    return !limited() || (pinned <= limit && need <= limit - pinned);
  }
};
Memlock memlock();

/// Raises the soft limit to the hard one, for this process and those that it starts. Returns the soft limit
/// before; nothing: no limit holds here, or it cannot be raised.
std::optional<std::size_t> raise_memlock();

/// The kernel refused with `code` to pin `need` bytes: the limit, the need and the cure.
Error memlock_error(int code, std::size_t need);

}  // namespace pinion
