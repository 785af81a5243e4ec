// What the system lets this process pin, and the error that says so. Stateless; any thread; reads /proc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace pinion {

struct Memlock {
  std::size_t limit = SIZE_MAX;  ///< RLIMIT_MEMLOCK in bytes (SIZE_MAX: none)
  bool exempt = false;           ///< CAP_IPC_LOCK: the limit does not hold for this process
  std::size_t locked = 0;        ///< bytes locked by mlock in this process (VmLck)
  std::size_t pinned = 0;        ///< bytes pinned by io_uring, verbs and the like in this process (VmPin)

  bool limited() const { return !exempt && limit != SIZE_MAX; }
  /// Whether the kernel, as far as an RDMA device asks it, lets this process pin `need` bytes more.
  bool has_room_for(std::size_t need) const {
    return !limited() || (pinned <= limit && need <= limit - pinned);
  }
};
Memlock memlock();

/// The kernel refused with `code` to pin `need` bytes: the limit, the need and the cure.
Error memlock_error(int code, std::size_t need);

}  // namespace pinion
