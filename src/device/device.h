// The interface of everything that can register memory, for retention and registry. A device owns its
// registrations and their system resources (rings, locks, keys); its callers decide. register_range() and
// deregister() block and may allocate, so callers are outside of hooks and hold no lock. They may be called
// from any thread at the same time. Application threads and the helper name themselves (Actor), because a
// device keeps separate queues for them: one long registration stalls every other on the same kernel ring.
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

/// Most that a device takes; 0: unlimited.
struct DeviceCaps {
  std::size_t max_regions = 0;
  std::size_t max_region_bytes = 0;
  std::size_t max_bytes = 0;
};

/// The abilities and needs of a device, as it states them. Callers ask these instead of the device's name.
struct DeviceCapabilities {
  bool registers = true;        ///< false: uses of memory are recorded only
  bool pins = true;             ///< registered pages stay where they are until deregistration
  bool on_demand = false;       ///< the device faults memory in by itself as it transfers
  bool remote = false;          ///< peers can get a key
  bool needs_endpoint = false;  ///< a registration is bound to one endpoint (RegistrationKey::endpoint)
  /// Registered memory may be missing in a forked child. So a region has the memory of its request alone: a
  /// child lacks what the program has registered, and no more.
  bool hides_from_children = false;
  /// Each registration may divide a mapping of the program in three (vm.max_map_count).
  bool splits_mappings = false;
  bool slow_to_fork = false;  ///< a fork copies registered pages one by one: idle regions go before it
  /// Its library has fork handlers of its own, which may hold its locks: between those it is left alone.
  bool locks_at_fork = false;
  /// Registrations are ranges of bytes that never overlap, and must contain a whole transfer. Otherwise they
  /// are whole pages, and may overlap.
  bool byte_ranges = false;
  /// A registration that waits for its next use takes nothing but memory: no table of the device is short.
  /// So it goes where memory is short, or after a long rest.
  bool cheap_to_keep = false;
  bool spends_modelled_time = false;  ///< a cost model, instead of hardware, sets the length of its calls
  /// Sizes of its translation entries: the bit of value 2^n stands for entries of 2^n bytes. 0: the device
  /// counts none.
  std::uint64_t page_sizes = 0;
  DeviceCaps caps;
};

/// A registration as its device and the peers know it. A device fills in its own fields. Constant from the
/// registration to the deregistration; pointers in it are the device's and live as long.
struct RegistrationKey {
  std::uint64_t handle = 0;         ///< the device's own name for it, opaque to everybody else
  std::uint32_t lkey = 0;           ///< for local use (verbs)
  std::uint32_t system_handle = 0;  ///< the system's name for it, where it has one (ibv_mr::handle)
  void* descriptor = nullptr;       ///< for local use (libfabric: fi_mr_desc; verbs: the ibv_mr)
  std::uint64_t remote_key = 0;     ///< for peers: rkey (verbs), fi_mr_key (libfabric)
  /// Peers reach address `a` of the registered range at remote_base + (a - range.begin): the range's own
  /// begin where peers use virtual addresses, 0 where they use offsets.
  std::uint64_t remote_base = 0;
  const void* raw_key = nullptr;  ///< for peers, where a key is more than 64 bits (FI_MR_RAW)
  void* endpoint = nullptr;       ///< the endpoint that it is bound to, where the device needs one
  std::uint32_t raw_key_bytes = 0;
};

struct Registration {
  /// EFAULT: memory unmapped or read-only; ENOMEM, EPERM, ENOSPC: a limit, named in the message.
  Error error;
  RegistrationKey key;
  Access granted = Access::read;  ///< rights of the registration (at least those requested)
  std::size_t entries = 0;        ///< translation entries; 0: the device counts none
  Duration overslept = 0;  ///< the call slept, and woke so much later than it was to: others had its core

  /// Its entries, or its pages where the device counts none.
  std::uint32_t entries_of(Range pages) const {
    return static_cast<std::uint32_t>(entries ? entries : pages.pages());
  }
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const char* name() const = 0;
  /// One line for reports: the real effect of registering here ("pins pages by io_uring", "pins and models a
  /// NIC: ...").
  virtual std::string description() const = 0;
  virtual DeviceCapabilities capabilities() const = 0;

  /// Registers the whole pages `pages` (page-aligned, at least one; DeviceCapabilities::byte_ranges: any
  /// bytes) for `access`. On error nothing stays registered.
  virtual Registration register_range(Range pages, Access access, Actor actor) = 0;
  /// Either actor may deregister the other's registrations. The memory may be unmapped already. An
  /// unregistered or already deregistered key is ignored; debug builds stop there, for it is the caller's
  /// mistake. On error the registration stays as it is, and may be deregistered again later.
  virtual Error deregister(const RegistrationKey& key, Actor actor) = 0;

  /// In the child of a fork, before any other thread exists: forgets every registration at once, and leaves
  /// the parent's alone: their locks may be held by threads that are missing here. Keys from
  /// before the fork are ignored from then on; new registrations work.
  virtual void abandon_after_fork() = 0;

  /// Seconds of CPU that modelled waiting burnt on application threads (a real NIC driver would have burnt
  /// them too).
  virtual double modelled_busy_seconds() const { return 0; }
  /// The least duration of a call for so many translation entries, the thread's waits included.
  virtual Duration least_time(bool /*registration*/, std::uint32_t /*entries*/) const { return 0; }
  /// Seconds that the helper slept in modelled calls, instead of computing as a real NIC's driver would.
  virtual double modelled_sleep_seconds() const { return 0; }
};

}  // namespace pinion
