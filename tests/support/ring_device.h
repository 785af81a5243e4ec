// A device for tests that really transfers: an io_uring of its own whose fixed buffers are the registrations.
// Fixed-buffer I/O uses the pages that were pinned when the buffer was registered, whatever is mapped at the
// address by now. As far as stale registrations are concerned that is what a NIC does, so the contents of a
// transfer tell whether the registration was still right.
//
// Owns the ring, its slots (at most 16 MiB of a registration each) and the keys. Any thread; a mutex for the
// keys, another for the ring's queues; none is held while the test's `at` runs.
#pragma once

#include <gtest/gtest.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
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

class RingDevice final : public Device {
 public:
  static constexpr unsigned kSlots = 8192;
  static constexpr std::size_t kSlotBytes = std::size_t{16} << 20;

  /// Moments of a device call at which `at` may stop it.
  enum class Moment {
    registering,    ///< nothing is pinned yet
    registered,     ///< the pages are pinned, the caller does not know it yet
    deregistering,  ///< the pages are pinned still
    deregistered    ///< they are not any more, the caller does not know it yet
  };
  std::function<void(Moment, Range, Actor)> at = [](Moment, Range, Actor) {};

  RingDevice() {
    if (const int error = ::io_uring_queue_init(kQueue, &ring_, 0)) {
      ADD_FAILURE() << "no io_uring: " << std::strerror(-error);
      std::abort();
    }
    if (::io_uring_register_buffers_sparse(&ring_, kSlots) != 0) std::abort();
    for (unsigned slot = kSlots; slot-- > 0;) free_.push_back(slot);
  }
  ~RingDevice() override {
    EXPECT_TRUE(live_.empty()) << "registrations were left behind";
    ::io_uring_queue_exit(&ring_);
  }

  /// Whether this process may have an io_uring and pin what a test needs.
  static bool available() {
    io_uring probe;
    if (::io_uring_queue_init(kQueue, &probe, 0) != 0) return false;
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const iovec buffer{memory, kBytes};
    const bool pins = ::io_uring_register_buffers(&probe, &buffer, 1) == 0;
    ::io_uring_queue_exit(&probe);
    ::munmap(memory, kBytes);
    return pins;
  }

  const char* name() const override { return "ring"; }
  std::string description() const override { return "pins pages, and transfers from and into them"; }
  DeviceCaps caps() const override { return {}; }

  Registration register_range(Range pages, Access, Actor actor) override {
    EXPECT_EQ(pages, pages.to_pages());
    at(Moment::registering, pages, actor);
    Live live{pages, {}};
    for (Address begin = pages.begin; begin < pages.end; begin += kSlotBytes) {
      int error = ENOSPC;
      if (const auto slot = take_slot()) {
        live.slots.push_back(*slot);
        error = update(*slot, {begin, std::min(begin + kSlotBytes, pages.end)});
      }
      if (error) {
        clear(live);
        // The kernel's way to say that it does not pin this kind of mapping.
        if (error == EOPNOTSUPP) error = EFAULT;
        return {Error::make(error, "%s", std::strerror(error)), {}, {}};
      }
    }
    std::uint64_t handle;
    {
      const std::lock_guard lock(mutex_);
      handle = ++last_;
      live_.emplace(handle, std::move(live));
      ++registrations_[static_cast<int>(actor)];
    }
    at(Moment::registered, pages, actor);
    return {{}, {handle, 0, 0}, Access::all};
  }

  void deregister(DeviceKey key, Actor actor) override {
    Live live;
    {
      const std::lock_guard lock(mutex_);
      const auto found = live_.find(key.handle);
      ASSERT_NE(found, live_.end()) << "deregistered twice, or never registered";
      live = found->second;
    }
    at(Moment::deregistering, live.pages, actor);
    {
      const std::lock_guard lock(mutex_);
      live_.erase(key.handle);
      ++deregistrations_[static_cast<int>(actor)];
    }
    clear(live);
    at(Moment::deregistered, live.pages, actor);
  }

  /// A forked child has the parent's ring, which it must not touch; tests make no device calls there.
  void abandon_after_fork() override {}

  // ---- transfers, by whoever holds a lease on the key ----

  /// From the pinned pages onto the wire. 0 or an errno: EINVAL when the key does not cover the range.
  int send(DeviceKey key, Range from, const Wire& wire, std::size_t position) {
    return transfer(key, from, wire, position, true);
  }
  /// From the wire into the pinned pages.
  int receive(DeviceKey key, Range into, const Wire& wire, std::size_t position) {
    return transfer(key, into, wire, position, false);
  }

  // ---- what is registered ----

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

 private:
  static constexpr unsigned kQueue = 8;
  struct Live {
    Range pages;
    std::vector<unsigned> slots;
  };

  std::optional<unsigned> take_slot() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const unsigned slot = free_.back();
    free_.pop_back();
    return slot;
  }

  /// Puts `range` into a slot (an empty one clears it). 0 or an errno.
  int update(unsigned slot, Range range) {
    iovec buffer{reinterpret_cast<void*>(range.begin), range.bytes()};
    __u64 tag = 0;
    int updated;
    do {
      updated = ::io_uring_register_buffers_update_tag(&ring_, slot, &buffer, &tag, 1);
    } while (updated == -EINTR);
    return updated == 1 ? 0 : updated == 0 ? EIO : -updated;
  }

  void clear(const Live& live) {
    for (const unsigned slot : live.slots) update(slot, {});
    const std::lock_guard lock(mutex_);
    free_.insert(free_.end(), live.slots.begin(), live.slots.end());
  }

  int transfer(DeviceKey key, Range range, const Wire& wire, std::size_t position, bool send) {
    Live live;
    {
      const std::lock_guard lock(mutex_);
      const auto found = live_.find(key.handle);
      if (found == live_.end() || !found->second.pages.contains(range)) return EINVAL;
      live = found->second;
    }
    const std::lock_guard lock(queues_);
    while (!range.empty()) {
      const std::size_t in_buffer = range.begin - live.pages.begin;
      const unsigned slot = live.slots[in_buffer / kSlotBytes];
      const std::size_t bytes = std::min(range.bytes(), kSlotBytes - in_buffer % kSlotBytes);
      io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
      if (!entry) return EBUSY;
      void* const address = reinterpret_cast<void*>(range.begin);
      const auto length = static_cast<unsigned>(bytes);
      const auto buffer = static_cast<int>(slot);
      if (send) {
        ::io_uring_prep_write_fixed(entry, wire.fd(), address, length, position, buffer);
      } else {
        ::io_uring_prep_read_fixed(entry, wire.fd(), address, length, position, buffer);
      }
      ::io_uring_submit_and_wait(&ring_, 1);
      io_uring_cqe* completion = nullptr;
      if (const int error = ::io_uring_wait_cqe(&ring_, &completion)) return -error;
      const int moved = completion->res;
      ::io_uring_cqe_seen(&ring_, completion);
      if (moved <= 0) return moved ? -moved : EIO;
      range.begin += static_cast<std::size_t>(moved);
      position += static_cast<std::size_t>(moved);
    }
    return 0;
  }

  io_uring ring_;
  std::mutex queues_;         ///< guards the submission and completion queues
  mutable std::mutex mutex_;  ///< guards all that follows
  std::vector<unsigned> free_;
  std::map<std::uint64_t, Live> live_;
  std::uint64_t last_ = 0;
  std::size_t registrations_[2] = {};
  std::size_t deregistrations_[2] = {};
};

}  // namespace pinion::test
