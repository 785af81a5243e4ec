#include "device/operations.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/options.h"
#include "device/kernel/fault_in.h"
#include "pinion/pinion.h"

namespace pinion {

namespace {

constexpr unsigned kFlags = PINION_DEVICE_PRIVATE | PINION_DEVICE_PINS_NOTHING |
                            PINION_DEVICE_NEEDS_ENDPOINT | PINION_DEVICE_HIDES_FROM_CHILDREN;

/// Calls an operation. An exception reaches the caller; on a thread of ours there is none, and it counts as a
/// failure.
template <class Operation>
int called(Actor actor, Operation&& operation) {
  if (actor == Actor::application) return std::abs(operation());
  try {
    return std::abs(operation());
  } catch (...) {
    return EIO;
  }
}

class OperationsDevice final : public Device {
 public:
  explicit OperationsDevice(const pinion_device_operations& operations) : operations_(operations) {}

  const char* name() const override { return "operations"; }
  std::string description() const override { return "registers by operations of the program's own"; }

  DeviceCapabilities capabilities() const override {
    DeviceCapabilities capabilities;
    capabilities.pins = !has(PINION_DEVICE_PINS_NOTHING);
    capabilities.remote = !has(PINION_DEVICE_PRIVATE);
    capabilities.needs_endpoint = has(PINION_DEVICE_NEEDS_ENDPOINT);
    capabilities.hides_from_children = capabilities.splits_mappings = has(PINION_DEVICE_HIDES_FROM_CHILDREN);
    capabilities.caps.max_region_bytes = operations_.max_region_bytes;
    return capabilities;
  }

  Registration register_range(Range pages, Access access, Actor actor) override {
    if (abandoned_)
      return {Error::make(ENODEV, "a forked child cannot register with its parent's device"), {}, {}};
    // Faults are dearer where memory is pinned (fault_in.h).
    if (!has(PINION_DEVICE_PINS_NOTHING))
      if (Error refused = fault_in(pages, writes(access))) return {refused, {}, {}};
    pinion_registration made{};
    made.size = sizeof made;
    made.remote_base = pages.begin;
    const int code = called(actor, [&] {
      return operations_.register_memory(operations_.context, reinterpret_cast<void*>(pages.begin),
                                         pages.bytes(), unsigned(access), &made);
    });
    if (code != 0)
      return {Error::make(code, "the program's device refuses to register %s: %s",
                          format_size(pages.bytes()).c_str(), std::strerror(code)),
              {},
              {}};
    if (has(PINION_DEVICE_NEEDS_ENDPOINT) && made.endpoint == nullptr) {
      called(actor, [&] { return operations_.deregister_memory(operations_.context, made.handle); });
      return {Error::make(EINVAL,
                          "the program's device needs an endpoint (PINION_DEVICE_NEEDS_ENDPOINT), and "
                          "its register_memory names none"),
              {},
              {}};
    }
    Registration registration;
    registration.granted = access;
    registration.entries = made.entries;
    registration.key = {.handle = made.handle,
                        .lkey = made.lkey,
                        .descriptor = made.descriptor,
                        .remote_key = made.remote_key,
                        .remote_base = made.remote_base,
                        .raw_key = made.raw_key,
                        .endpoint = made.endpoint,
                        .raw_key_bytes = made.raw_key_bytes};
    return registration;
  }

  Error deregister(const RegistrationKey& key, Actor actor) override {
    if (abandoned_) return {};
    const int code =
        called(actor, [&] { return operations_.deregister_memory(operations_.context, key.handle); });
    if (code == 0) return {};
    return Error::make(code, "the program's device refuses to deregister memory: %s", std::strerror(code));
  }

  void abandon_after_fork() override { abandoned_ = true; }

 private:
  bool has(unsigned flag) const { return (operations_.flags & flag) != 0; }

  const pinion_device_operations operations_;
  bool abandoned_ = false;  ///< in a forked child: the registrations are the parent's
};

}  // namespace

OperationsDeviceResult make_operations_device(const pinion_device_operations& operations) {
  constexpr std::size_t kLeast = sizeof(pinion_device_operations);  // of version 1
  if (operations.size < kLeast)
    return {Error::make(EINVAL, "set the field `size` to the size of the structure, at least %zu (it is %zu)",
                        kLeast, operations.size),
            nullptr};
  if (operations.version != PINION_DEVICE_VERSION)
    return {Error::make(EINVAL, "operations of version %u are unknown to this library; valid: %u",
                        operations.version, PINION_DEVICE_VERSION),
            nullptr};
  if ((operations.flags & ~kFlags) != 0)
    return {Error::make(EINVAL, "flags %#x are unknown to this library; valid: any of %#x", operations.flags,
                        kFlags),
            nullptr};
  if (operations.register_memory == nullptr || operations.deregister_memory == nullptr)
    return {Error::make(EINVAL, "register_memory and deregister_memory are needed; %s is NULL",
                        operations.register_memory == nullptr ? "the first" : "the second"),
            nullptr};
  return {{}, std::make_unique<OperationsDevice>(operations)};
}

}  // namespace pinion
