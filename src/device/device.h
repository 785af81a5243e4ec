// What can register memory: the interface that retention and registry know registration by.
// A device owns its registrations and whatever the system gives for them (rings, locks, keys); it decides
// nothing. register_range() and deregister() block and may allocate: never from a hook, never with a lock
// held. They may be called from any thread at the same time. Application threads and the helper name
// themselves (Actor), because a device keeps separate queues for them: one long registration stalls every
// other on the same kernel ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/access.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"

namespace pinion {

enum class Actor : std::uint8_t { application, helper };

/// Most that a device takes; 0 means that the device states no limit.
struct DeviceCaps {
  std::size_t max_regions = 0;
  std::size_t max_region_bytes = 0;
  std::size_t max_bytes = 0;
};

/// A registration as its device knows it. `handle` is opaque to everybody else.
struct DeviceKey {
  std::uint64_t handle = 0;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
  std::uint32_t system_handle = 0;  ///< what the system calls it, where it has a name (ibv_mr::handle)
};

struct Registration {
  Error error;  ///< EFAULT: memory not there or not writable; ENOMEM, EPERM, ENOSPC: a limit, named in the
                ///< message
  DeviceKey key;
  Access granted = Access::read;  ///< what the registration allows (at least what was asked)
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const char* name() const = 0;
  /// One line for reports: what registering really does here ("pins pages by io_uring", "pins and models a
  /// NIC: ...").
  virtual std::string description() const = 0;
  virtual DeviceCaps caps() const = 0;

  /// Registers the whole pages `pages` (page-aligned, not empty) for `access`. On error nothing stays
  /// registered.
  virtual Registration register_range(Range pages, Access access, Actor actor) = 0;
  /// Either actor may deregister what the other registered. The memory may be unmapped already. An
  /// unregistered or already deregistered key is ignored; debug builds stop there, for it is the caller's
  /// mistake. On error the registration stays as it is, and may be deregistered again later.
  virtual Error deregister(DeviceKey key, Actor actor) = 0;

  /// In the child of a fork, before any other thread exists: forgets every registration without touching the
  /// parent's (whose locks may be held by threads that do not exist here) and without blocking. Keys from
  /// before the fork are ignored from then on; new registrations work.
  virtual void abandon_after_fork() = 0;

  /// Whether memory may be missing in a forked child as long as it is registered.
  virtual bool hides_from_children() const { return false; }

  /// Seconds of CPU that modelled waiting burnt on application threads (a real NIC driver would have burnt
  /// them too).
  virtual double modelled_busy_seconds() const { return 0; }
};

}  // namespace pinion
