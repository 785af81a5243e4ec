#include "device/kernel/pin.h"

#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/units.h"
#include "device/handle_table.h"
#include "device/kernel/fault_in.h"
#include "device/kernel/fixed_buffer_rings.h"
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

/// The pins of one registration: slots of a ring, or locks on its pages.
struct Pinned {
  FixedBuffers* ring = nullptr;
  FixedBuffers::Chain slots;
  Range locked;
};

class PinDevice final : public Device {
 public:
  PinDevice() : refused_(pin_support().io_uring_refused), state_(std::make_unique<State>(1)) {}

  ~PinDevice() override {
    while (const auto pinned = state_->table.take_any()) static_cast<void>(unpin(*pinned));
  }

  const char* name() const override { return "pin"; }

  std::string description() const override {
    if (refused_.empty()) return "pins pages by io_uring fixed buffers, no NIC";
    return "pins pages by mlock, no NIC (" + refused_ + ")";
  }

  DeviceCapabilities capabilities() const override {
    DeviceCapabilities capabilities;
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
      const int refused = state_->rings[static_cast<int>(actor)].pin(pages, pinned.ring, pinned.slots);
      if (refused == 0) return registered(pinned, Access::all);
      if (refused == ENOSPC) return {slots_error(pages.bytes()), {}, {}};
      // ENOMEM: the kernel charges the user, also for processes that have died lately. It charges locks to
      // this process alone.
    }
    return lock_range(pages, access);
  }

  Registration register_view(Range pages, Address view, Access access, Actor actor) override {
    return register_range({view, view + pages.bytes()}, access, actor);
  }

  Error deregister(const RegistrationKey& key, Actor) override {
    const auto pinned = state_->table.take(key.handle);
    if (!pinned) return {};
    const int code = unpin(*pinned);
    if (code == 0) return {};
    state_->table.restore(key.handle, *pinned);
    return Error::make(code, "memory cannot be unpinned: %s", std::strerror(code));
  }

  void abandon_after_fork() override {
    for (FixedBufferRings& rings : state_->rings) rings.abandon_after_fork();
    // Leaked on purpose: a thread that is missing here may have been in the middle of it.
    // Made anew in its place: the allocator may be locked by a thread that is not here.
    const std::uint64_t first = state_->table.next_after_fork();
    new (state_.get()) State(first);
  }

 private:
  struct State {
    explicit State(std::uint64_t first_handle) : table(first_handle) {}
    FixedBufferRings rings[2];  ///< by actor
    PageLocks locks;
    HandleTable<Pinned> table;
  };

  /// The way of mlock: slower, with a check of the memory's rights of its own.
  Registration lock_range(Range pages, Access access) {
    if (Error error = check_access(pages, writes(access))) return {error, {}, {}};
    if (const int error = state_->locks.lock(pages)) return {memlock_error(error, pages.bytes()), {}, {}};
    return registered({nullptr, {}, pages},
                      writes(access) ? Access::all : Access::read | Access::remote_read);
  }

  Registration registered(const Pinned& pinned, Access granted) {
    const std::uint64_t handle = state_->table.add(pinned);
    RegistrationKey key;
    key.handle = handle;
    key.lkey = static_cast<std::uint32_t>(handle);
    key.remote_key = key.lkey;
    return {{}, key, granted};
  }

  /// 0, or the errno for which it stays pinned.
  int unpin(const Pinned& pinned) {
    return pinned.ring ? pinned.ring->unpin(pinned.slots) : state_->locks.unlock(pinned.locked);
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
