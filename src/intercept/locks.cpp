// mlock(), mlock2() and mlockall(), before the C library's. Where io_uring is refused, device `pin` locks the
// pages that it registers (device/kernel/pin.h), which counts against RLIMIT_MEMLOCK as the program's own
// locks do. So idle registrations make way for a lock that the limit has no room for.
//
// Owns the pointers to libc's functions. Any thread. A program's lock in a signal handler goes on as it is,
// as long as there is room.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "device/kernel/memlock.h"
#include "intercept/exports.h"
#include "lease/lease.h"

namespace {

constinit pinion::NextFunction<int(const void*, std::size_t)> next_mlock{"mlock"};
constinit pinion::NextFunction<int(const void*, std::size_t, unsigned)> next_mlock2{"mlock2"};
constinit pinion::NextFunction<int(int)> next_mlockall{"mlockall"};

/// Whether a refusal may be due to locks of ours. `bytes`: to be locked.
bool is_for_want_of_room(std::size_t bytes) {
  if (errno != ENOMEM && errno != EAGAIN) return false;
  const pinion::Memlock state = pinion::memlock();
  return state.limited() && state.locked != 0 && bytes > state.limit - std::min(state.limit, state.locked);
}

/// Lets idle registrations go. False: there are none.
bool make_room() {
  pinion::LeasePath* const leases = pinion::LeasePath::running();
  pinion::ThreadContext* const thread = leases != nullptr ? pinion::this_thread() : nullptr;
  return thread != nullptr && leases->make_room(*thread);
}

template <class Function, class... Arguments>
int lock(std::size_t bytes, Function next, Arguments... arguments) {
  const int result = next(arguments...);
  if (result == 0) return 0;
  const int error = errno;
  if (is_for_want_of_room(bytes) && make_room()) return next(arguments...);
  errno = error;
  return result;
}

}  // namespace

extern "C" {

PINION_EXPORT int mlock(const void* address, std::size_t bytes) noexcept {
  return lock(bytes, next_mlock.get(), address, bytes);
}

PINION_EXPORT int mlock2(const void* address, std::size_t bytes, unsigned flags) noexcept {
  return lock(bytes, next_mlock2.get(), address, bytes, flags);
}

PINION_EXPORT int mlockall(int flags) noexcept { return lock(SIZE_MAX, next_mlockall.get(), flags); }
}
