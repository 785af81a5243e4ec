#include "device/kernel/pin.h"

#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "base/units.h"
#include "device/handle_table.h"
#include "device/kernel/fault_in.h"
#include "device/kernel/fixed_buffer_rings.h"
#include "device/kernel/mapped_hugepages.h"
#include "device/kernel/page_locks.h"

namespace pinion {

namespace {

std::string refusal(int error) {
  switch (error) {
    case 0:
      return "";
    case ENOSYS:
      return "the kernel has no io_uring";
    case EPERM:
      return "io_uring is forbidden here (kernel.io_uring_disabled, or the container's seccomp filter)";
    case EINVAL:
      return "the kernel's io_uring is older than 5.19";
    default:
      return std::string("io_uring_setup: ") + std::strerror(error);
  }
}

/// Slots of one ring.
struct Slots {
  FixedBuffers* ring = nullptr;
  FixedBuffers::Chain chain;
};

/// The pins of one registration: slots of two rings, or locks on its pages.
struct Pinned {
  Slots hugepages, ordinary;
  Range locked;
  std::size_t pages = 0;  ///< in slots, hugepages and ordinary ones; each takes as long
};

/// An actor's rings. Hugepages and ordinary pages never meet in one.
struct Rings {
  FixedBufferRings hugepages, ordinary;
};

/// 0 or an errno; then nothing stays pinned.
int pin(FixedBufferRings& rings, std::span<const Range> ranges, Slots& slots) {
  return ranges.empty() ? 0 : rings.pin(ranges, slots.ring, slots.chain);
}

/// 0, or the errno for which they stay pinned.
int unpin(Slots& slots) {
  const int error = slots.ring == nullptr ? 0 : slots.ring->unpin(slots.chain);
  if (error == 0) slots.ring = nullptr;
  return error;
}

class PinDevice final : public Device {
 public:
  PinDevice() : refused_(pin_support().io_uring_refused), state_(std::make_unique<State>(1)) {}

  ~PinDevice() override {
    while (auto pinned = state_->table.take_any()) static_cast<void>(unpin(*pinned));
  }

  const char* name() const override { return "pin"; }

  std::string description() const override {
    if (refused_.empty()) return "pins pages by io_uring fixed buffers, no NIC";
    return "pins pages by mlock, no NIC (" + refused_ + ")";
  }

  DeviceCapabilities capabilities() const override {
    DeviceCapabilities capabilities;
    capabilities.splits_mappings = !refused_.empty();  // by mlock
    if (refused_.empty()) capabilities.caps.max_regions = FixedBuffers::kSlots;
    return capabilities;
  }

  Registration register_range(Range pages, Access access, Actor actor) override {
    if (pages.empty() || pages.to_pages() != pages) {
      return {Error::make(EINVAL, "memory %#zx-%#zx is not whole pages", pages.begin, pages.end), {}, {}};
    }
    if (refused_.empty()) {
      // The pin itself faults in what is absent of one step. To look first takes as long as pinning a
      // hugepage.
      if (pages.bytes() > kFaultStep)
        if (Error error = fault_in(pages, writes(access))) return {error, {}, {}};
      Pinned pinned;
      const int refused = pin(state_->rings[static_cast<int>(actor)], pages, pinned);
      if (refused == 0) return registered(pinned, Access::all);
      if (refused == ENOSPC) return {slots_error(pages.bytes()), {}, {}};
      // ENOMEM: the kernel charges the user, also for processes that have died lately. It charges locks to
      // this process alone.
    }
    return lock_range(pages, access);
  }

  Error deregister(const RegistrationKey& key, Actor) override {
    auto pinned = state_->table.take(key.handle);
    if (!pinned) return {};
    const int code = unpin(*pinned);
    if (code == 0) return {};
    state_->table.restore(key.handle, *pinned);
    return Error::make(code, "memory cannot be unpinned: %s", std::strerror(code));
  }

  void abandon_after_fork() override {
    for (Rings& rings : state_->rings) {
      rings.hugepages.abandon_after_fork();
      rings.ordinary.abandon_after_fork();
    }
    state_->files.abandon_after_fork();
    // Leaked on purpose: a thread that is missing here may have been in the middle of it.
    // Made anew in its place: the allocator may be locked by a thread that is not here.
    const std::uint64_t first = state_->table.next_after_fork();
    new (state_.get()) State(first);
  }

 private:
  struct State {
    explicit State(std::uint64_t first_handle) : table(first_handle) {}
    Rings rings[2];  ///< by actor
    PageFiles files;
    PageLocks locks;
    HandleTable<Pinned> table;
  };

  /// The way of mlock: slower, with a check of the memory's rights of its own.
  Registration lock_range(Range pages, Access access) {
    if (Error error = check_access(pages, writes(access))) return {error, {}, {}};
    if (const int error = state_->locks.lock(pages)) return {memlock_error(error, pages.bytes()), {}, {}};
    return registered({{}, {}, pages}, writes(access) ? Access::all : Access::read | Access::remote_read);
  }

  Registration registered(const Pinned& pinned, Access granted) {
    const std::uint64_t handle = state_->table.add(pinned);
    RegistrationKey key;
    key.handle = handle;
    key.lkey = static_cast<std::uint32_t>(handle);
    key.remote_key = key.lkey;
    return {{}, key, granted, pinned.pages};
  }

  /// 0 or an errno; then nothing stays pinned.
  int pin(Rings& rings, Range pages, Pinned& pinned) {
    const PageRuns runs(pages, state_->files);
    pinned.pages = runs.count();
    if (const int error = pinion::pin(rings.hugepages, runs.in_hugepages(), pinned.hugepages)) return error;
    const int error = pinion::pin(rings.ordinary, runs.ordinary(), pinned.ordinary);
    if (error != 0) static_cast<void>(pinion::unpin(pinned.hugepages));
    return error;
  }

  /// 0, or the errno for which `pinned`, or what is left of it, stays pinned.
  int unpin(Pinned& pinned) {
    if (!pinned.locked.empty()) return state_->locks.unlock(pinned.locked);
    if (const int error = pinion::unpin(pinned.hugepages)) return error;
    return pinion::unpin(pinned.ordinary);
  }

  static Error slots_error(std::size_t need) {
    return Error::make(
        ENOSPC,
        "cannot pin %s: all %u fixed buffers of io_uring (of %s each at most) are in use; let idle "
        "registrations go (--limit-regions), or register fewer, larger ranges",
        format_size(need).c_str(), FixedBuffers::kSlots, format_size(FixedBuffers::kSlotBytes).c_str());
  }

  const std::string refused_;  ///< why io_uring cannot be used; empty where it can
  std::unique_ptr<State> state_;
};

}  // namespace

std::unique_ptr<Device> make_pin_device() { return std::make_unique<PinDevice>(); }

PinSupport pin_support() {
  int error = 0;
  PinSupport support;
  support.io_uring = FixedBuffers::open(1, error) != nullptr;
  support.io_uring_refused = refusal(error);
  support.memlock = memlock();
  return support;
}

}  // namespace pinion
