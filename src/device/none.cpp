#include "device/none.h"

#include <cerrno>

namespace pinion {

namespace {

class NoDevice final : public Device {
 public:
  const char* name() const override { return "none"; }
  std::string description() const override { return "registers nothing"; }
  DeviceCapabilities capabilities() const override {
    DeviceCapabilities can;
    can.registers = can.pins = false;
    return can;
  }
  Registration register_range(Range, Access, Actor) override {
    return {Error::make(ENODEV, "nothing is registered: transfers are only measured"), {}, {}};
  }
  Error deregister(const RegistrationKey&, Actor) override { return {}; }
  void abandon_after_fork() override {}
};

}  // namespace

std::unique_ptr<Device> make_no_device() { return std::make_unique<NoDevice>(); }

}  // namespace pinion
