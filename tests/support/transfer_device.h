// A device for tests that really transfers: by the pages that were pinned at registration, even if others are
// mapped at the address now. A NIC treats stale registrations the same way, so the contents of a transfer
// show whether the registration was still right. The derived class pins and transfers.
//
// Owns the registrations, by handle. Any thread; a mutex for the handles, not held while the test's `at`
// runs.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace pinion::test {

/// A file in memory, mapped: the far end of transfers.
class Wire {
 public:
  explicit Wire(std::size_t bytes) : bytes_(bytes), fd_(::memfd_create("wire", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) std::abort();
    void* const view = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (view == MAP_FAILED) std::abort();
    view_ = static_cast<std::byte*>(view);
  }
  ~Wire() {
    ::munmap(view_, bytes_);
    ::close(fd_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int fd() const { return fd_; }
  std::size_t bytes() const { return bytes_; }
  std::byte* data() const { return view_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(view_);
  }

 private:
  const std::size_t bytes_;
  const int fd_;
  std::byte* view_;
};

class TransferDevice : public Device {
 public:
  /// Moments of a device call at which `at` may stop it.
  enum class Moment {
    registering,    ///< nothing is pinned yet
    registered,     ///< the pages are pinned, the caller does not know it yet
    refused,        ///< they cannot be pinned
    deregistering,  ///< the pages are pinned still
    deregistered    ///< they are not any more, the caller does not know it yet
  };
  std::function<void(Moment, Range, Actor)> at = [](Moment, Range, Actor) {};

  ~TransferDevice() override { EXPECT_TRUE(live_.empty()) << "registrations were left behind"; }

  DeviceCapabilities capabilities() const override { return {}; }

  Registration register_range(Range pages, Access, Actor actor) override {
    EXPECT_EQ(pages, pages.to_pages());
    at(Moment::registering, pages, actor);
    Pinned pinned{pages, {}};
    if (const Error error = pin(pinned)) {
      at(Moment::refused, pages, actor);
      return {error, {}, {}};
    }
    std::uint64_t handle;
    {
      const std::lock_guard lock(mutex_);
      handle = ++last_;
      live_.emplace(handle, std::move(pinned));
      ++registrations_[static_cast<int>(actor)];
    }
    at(Moment::registered, pages, actor);
    RegistrationKey key;
    key.handle = handle;
    return {{}, key, Access::all};
  }

  Error deregister(const RegistrationKey& key, Actor actor) override {
    Pinned pinned;
    {
      const std::lock_guard lock(mutex_);
      const auto found = live_.find(key.handle);
      EXPECT_NE(found, live_.end()) << "deregistered twice, or never registered";
      if (found == live_.end()) return {};
      pinned = found->second;
    }
    at(Moment::deregistering, pinned.pages, actor);
    {
      const std::lock_guard lock(mutex_);
      live_.erase(key.handle);
      ++deregistrations_[static_cast<int>(actor)];
    }
    unpin(pinned);
    at(Moment::deregistered, pinned.pages, actor);
    return {};
  }

  /// A forked child has the parent's registrations, which it must not touch; tests make no device calls
  /// there.
  void abandon_after_fork() override {}

  // ---- transfers, by the holder of a lease on the key ----

  /// Sends from the pinned pages onto the wire. 0 or an errno: EINVAL when the key does not cover the range.
  int send(RegistrationKey key, Range from, const Wire& wire, std::size_t position) {
    return move(key, from, wire, position, true);
  }
  /// Receives from the wire into the pinned pages.
  int receive(RegistrationKey key, Range into, const Wire& wire, std::size_t position) {
    return move(key, into, wire, position, false);
  }

  // ---- registrations ----

  std::size_t live() const {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  /// Registrations that touch `range`.
  std::size_t live(Range range) const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(
        live_.begin(), live_.end(), [&](const auto& entry) { return entry.second.pages.overlaps(range); }));
  }
  std::size_t registrations(Actor actor) const {
    const std::lock_guard lock(mutex_);
    return registrations_[static_cast<int>(actor)];
  }
  std::size_t registrations() const {
    return registrations(Actor::application) + registrations(Actor::helper);
  }
  std::size_t deregistrations(Actor actor) const {
    const std::lock_guard lock(mutex_);
    return deregistrations_[static_cast<int>(actor)];
  }

 protected:
  struct Pinned {
    Range pages;
    std::vector<std::uint64_t> by;  ///< the derived class's names for it
  };

  /// Fills in `by`. An error leaves nothing pinned.
  virtual Error pin(Pinned& pinned) = 0;
  virtual void unpin(const Pinned& pinned) = 0;
  /// `range` is within the pages. 0 or an errno.
  virtual int transfer(const Pinned& pinned, Range range, const Wire& wire, std::size_t position,
                       bool send) = 0;

 private:
  int move(RegistrationKey key, Range range, const Wire& wire, std::size_t position, bool send) {
    Pinned pinned;
    {
      const std::lock_guard lock(mutex_);
      const auto found = live_.find(key.handle);
      if (found == live_.end() || !found->second.pages.contains(range)) return EINVAL;
      pinned = found->second;
    }
    return transfer(pinned, range, wire, position, send);
  }

  mutable std::mutex mutex_;  ///< guards all that follows
  std::map<std::uint64_t, Pinned> live_;
  std::uint64_t last_ = 0;
  std::size_t registrations_[2] = {};
  std::size_t deregistrations_[2] = {};
};

}  // namespace pinion::test
