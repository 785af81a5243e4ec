// A device that its owner lends to a domain and takes back. A domain is never freed, so this stands in for
// the device: while none is lent, registering fails (ENODEV) and deregistering has no effect. Owns the lent
// device. Threads as in device.h; lend() and abandon() are for the owner, while nothing is registered. They
// wait for calls under way.
#pragma once

#include <memory>
#include <utility>

#include "base/mutex.h"
#include "device/device.h"

namespace pinion {

class BorrowedDevice final : public Device {
 public:
  explicit BorrowedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  /// Lends another device; null: takes back the one that was lent.
  void lend(std::unique_ptr<Device> device) {
    const WriterLock lock(mutex_);
    device_ = std::move(device);
  }
  /// The program has closed the device under its registrations. The kernel has let them go, and the library
  /// has freed its objects, which must stay untouched. Leaked on purpose.
  void abandon() {
    const WriterLock lock(mutex_);
    static_cast<void>(device_.release());
  }

  const char* name() const override {
    const ReaderLock lock(mutex_);
    return device_ ? device_->name() : "taken back";
  }
  std::string description() const override {
    const ReaderLock lock(mutex_);
    return device_ ? device_->description() : "was taken back by the program";
  }
  DeviceCapabilities capabilities() const override {
    const ReaderLock lock(mutex_);
    return device_ ? device_->capabilities() : DeviceCapabilities{};
  }

  Registration register_range(Range pages, Access access, Actor actor) override {
    const ReaderLock lock(mutex_);
    if (!device_) return taken_back();
    return device_->register_range(pages, access, actor);
  }
  Error deregister(const RegistrationKey& key, Actor actor) override {
    const ReaderLock lock(mutex_);
    return device_ ? device_->deregister(key, actor) : Error{};
  }
  double modelled_busy_seconds() const override {
    const ReaderLock lock(mutex_);
    return device_ ? device_->modelled_busy_seconds() : 0;
  }
  double modelled_sleep_seconds() const override {
    const ReaderLock lock(mutex_);
    return device_ ? device_->modelled_sleep_seconds() : 0;
  }
  /// The child's only thread needs no lock, which a thread that is not here may hold.
  void abandon_after_fork() override NO_THREAD_SAFETY_ANALYSIS {
    mutex_.free_in_child();
    if (device_) device_->abandon_after_fork();
  }

 private:
  static Registration taken_back() {
    return {Error::make(ENODEV, "the program has taken back or closed the device"), {}, {}};
  }

  mutable SharedMutex mutex_;  ///< shared: a call under way; exclusive: changing device_
  std::unique_ptr<Device> device_ GUARDED_BY(mutex_);
};

}  // namespace pinion
