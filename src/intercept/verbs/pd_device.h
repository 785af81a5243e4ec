// The device of a domain that registers in a protection domain of the program's. As device.h says of all
// devices; and aim() and abandon() are for its owner (protection_domains.h), while nothing is registered in
// the domain and nobody is in a call.
#pragma once

#include <memory>
#include <utility>

#include "device/device.h"
#include "intercept/verbs/inside.h"

namespace pinion::verbs {

class PdDevice final : public Device {
 public:
  /// A domain is never freed: when the program has freed its protection domain, it serves another.
  void aim(std::unique_ptr<Device> target) { target_ = std::move(target); }
  /// The program has closed the device under its registrations. The kernel has let them go, and the library
  /// has freed what they were: nothing of them may be touched. Leaked on purpose.
  void abandon() { static_cast<void>(target_.release()); }

  const char* name() const override { return "verbs"; }
  std::string description() const override { return "registers in the program's protection domain"; }
  DeviceCaps caps() const override { return target_ ? target_->caps() : DeviceCaps{}; }

  Registration register_range(Range pages, Access access, Actor actor) override {
    const Inside inside;
    if (!target_) return {Error::make(ENODEV, "the program has closed the RDMA device"), {}, {}};
    return target_->register_range(pages, access, actor);
  }
  Error deregister(DeviceKey key, Actor actor) override {
    const Inside inside;
    return target_ ? target_->deregister(key, actor) : Error{};
  }
  bool hides_from_children() const override { return true; }
  void abandon_after_fork() override {
    if (target_) target_->abandon_after_fork();
  }

 private:
  std::unique_ptr<Device> target_;
};

}  // namespace pinion::verbs
