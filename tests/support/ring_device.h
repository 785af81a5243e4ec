// A transferring device that every machine has: an io_uring of its own whose fixed buffers are the
// registrations. Fixed-buffer I/O uses the pages that were pinned when the buffer was registered.
//
// Owns the ring and its slots (at most 16 MiB of a registration each). Any thread; a mutex for the slots,
// another for the ring's queues.
#pragma once

#include <gtest/gtest.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/kernel/io_uring_abi.h"
#include "transfer_device.h"

namespace pinion::test {

class RingDevice final : public TransferDevice {
 public:
  static constexpr unsigned kSlots = 8192;
  static constexpr std::size_t kSlotBytes = std::size_t{16} << 20;
  static constexpr const char* kMissing = "no io_uring here, or too little memory may be locked (ulimit -l)";

  RingDevice() {
    if (const int error = ::io_uring_queue_init(kQueue, &ring_, 0)) {
      ADD_FAILURE() << "no io_uring: " << std::strerror(-error);
      std::abort();
    }
    // liburing has a call for it from 2.2 on.
    IoUringTable table{};
    table.nr = kSlots;
    table.flags = kSparseTable;
    if (::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_BUFFERS2, &table, sizeof table) != 0)
      std::abort();
    for (unsigned slot = kSlots; slot-- > 0;) free_.push_back(slot);
  }
  ~RingDevice() override { ::io_uring_queue_exit(&ring_); }

  /// Whether this process may have an io_uring and pin enough for a test.
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

 private:
  static constexpr unsigned kQueue = 8;

  Error pin(Pinned& pinned) override {
    const Range pages = pinned.pages;
    for (Address begin = pages.begin; begin < pages.end; begin += kSlotBytes) {
      int error = ENOSPC;
      if (const auto slot = take_slot()) {
        pinned.by.push_back(*slot);
        error = update(*slot, {begin, std::min(begin + kSlotBytes, pages.end)});
      }
      if (error) {
        unpin(pinned);
        // The kernel refuses to pin this kind of mapping so.
        if (error == EOPNOTSUPP) error = EFAULT;
        return Error::make(error, "%s", std::strerror(error));
      }
    }
    return {};
  }

  void unpin(const Pinned& pinned) override {
    for (const auto slot : pinned.by) update(static_cast<unsigned>(slot), {});
    const std::lock_guard lock(slots_);
    for (const auto slot : pinned.by) free_.push_back(static_cast<unsigned>(slot));
  }

  int transfer(const Pinned& pinned, Range range, const Wire& wire, std::size_t position,
               bool send) override {
    const std::lock_guard lock(queues_);
    while (!range.empty()) {
      const std::size_t in_buffer = range.begin - pinned.pages.begin;
      const auto buffer = static_cast<int>(pinned.by[in_buffer / kSlotBytes]);
      const std::size_t bytes = std::min(range.bytes(), kSlotBytes - in_buffer % kSlotBytes);
      io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
      if (!entry) return EBUSY;
      void* const address = reinterpret_cast<void*>(range.begin);
      const auto length = static_cast<unsigned>(bytes);
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

  std::optional<unsigned> take_slot() {
    const std::lock_guard lock(slots_);
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

  io_uring ring_;
  std::mutex queues_;  ///< guards the submission and completion queues
  std::mutex slots_;   ///< guards the free ones
  std::vector<unsigned> free_;
};

}  // namespace pinion::test
