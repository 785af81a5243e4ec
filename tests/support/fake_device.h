// A device for tests of the registry: registers nothing, keeps a list of registrations with their rights, and
// refuses or stops where the test wants it. Any thread; one mutex, never held while a hook of the test
// runs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/coverage.h"
#include "device/device.h"

namespace pinion::test {

class FakeDevice final : public Device {
 public:
  DeviceCaps limits;
  bool remote = false;
  bool byte_ranges = false;  ///< registrations that overlap are the test's failure
  bool locks_at_fork = false;
  bool hides_from_children = false;
  /// Decides each registration before it is made: an errno value, or 0. May block.
  std::function<int(Range, Access)> refuse = [](Range, Access) { return 0; };
  /// The refusal of each deregistration.
  std::function<int(RegistrationKey)> refuse_deregistration = [](RegistrationKey) { return 0; };

  const char* name() const override { return "fake"; }
  std::string description() const override { return "registers nothing"; }
  DeviceCapabilities capabilities() const override {
    DeviceCapabilities capabilities;
    capabilities.remote = remote;
    capabilities.byte_ranges = byte_ranges;
    capabilities.locks_at_fork = locks_at_fork;
    capabilities.slow_to_fork = locks_at_fork;
    capabilities.hides_from_children = capabilities.splits_mappings = hides_from_children;
    capabilities.caps = limits;
    return capabilities;
  }

  Registration register_range(Range pages, Access access, Actor) override {
    EXPECT_TRUE(byte_ranges || pages == pages.to_pages());
    EXPECT_FALSE(pages.empty());
    const int code = refuse(pages, access);
    std::lock_guard lock(mutex_);
    ++calls_;
    if (code != 0) return {Error::make(code, "refused by the test"), {}, {}};
    EXPECT_TRUE(union_.add(pages) == pages.bytes() || !byte_ranges) << "two registrations overlap";
    peak_ = std::max(peak_, union_.bytes());
    live_.emplace(++last_, Live{pages, access});
    RegistrationKey key;
    key.handle = last_;
    return {{}, key, access};
  }
  Error deregister(const RegistrationKey& key, Actor) override {
    const int code = refuse_deregistration(key);
    if (code != 0) return Error::make(code, "deregistration refused by the test");
    std::lock_guard lock(mutex_);
    const auto found = live_.find(key.handle);
    EXPECT_NE(found, live_.end()) << "deregistered twice, or never registered";
    if (found == live_.end()) return {};
    union_.remove(found->second.pages);
    live_.erase(found);
    return {};
  }
  void abandon_after_fork() override {}

  /// Whether `key` is registered now and allows `access` on `range`.
  bool serves(RegistrationKey key, Range range, Access access) const {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(key.handle);
    return found != live_.end() && found->second.pages.contains(range) &&
           includes(found->second.access, access);
  }
  /// The view of the latest registration by a second view.
  std::size_t calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  std::size_t live() const {
    std::lock_guard lock(mutex_);
    return live_.size();
  }
  /// Bytes of the union of the registrations, now and at most.
  std::size_t bytes() const {
    std::lock_guard lock(mutex_);
    return union_.bytes();
  }
  std::size_t peak() const {
    std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  struct Live {
    Range pages;
    Access access;
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Live> live_;
  Coverage union_;
  std::size_t peak_ = 0;
  std::size_t calls_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace pinion::test
