#include "device/fixed_buffers.h"

#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "device/io_uring_abi.h"

namespace pinion {

std::unique_ptr<FixedBuffers> FixedBuffers::open(std::uint32_t slots, int& error) {
  io_uring_params params{};
  const int fd = static_cast<int>(syscall(__NR_io_uring_setup, 1, &params));
  if (fd < 0) {
    error = errno;
    return nullptr;
  }
  IoUringTable table{};
  table.nr = slots;
  table.flags = kSparseTable;
  if (syscall(__NR_io_uring_register, fd, IORING_REGISTER_BUFFERS2, &table, sizeof table) != 0) {
    error = errno;
    close(fd);
    return nullptr;
  }
  error = 0;
  return std::unique_ptr<FixedBuffers>(new FixedBuffers(fd, slots));
}

FixedBuffers::FixedBuffers(int fd, std::uint32_t slots) : fd_(fd), free_{0, slots}, next_(slots) {
  std::iota(next_.begin(), next_.end(), 1u);
}

FixedBuffers::~FixedBuffers() { close(fd_); }

int FixedBuffers::pin(Range pages, Chain& chain) {
  chain.length = static_cast<std::uint32_t>((pages.bytes() + kSlotBytes - 1) / kSlotBytes);
  if (!take_slots(chain)) return ENOSPC;
  std::uint32_t slot = chain.first;
  for (Address begin = pages.begin; begin < pages.end; begin += kSlotBytes) {
    if (const int error = update(slot, {begin, std::min(begin + kSlotBytes, pages.end)})) {
      unpin(chain);  // clearing the slots that are empty still is no harm
      return error;
    }
    slot = next_[slot];
  }
  return 0;
}

void FixedBuffers::unpin(Chain chain) {
  std::uint32_t slot = chain.first;
  for (std::uint32_t i = 0; i < chain.length; ++i) {
    update(slot, {});
    slot = next_[slot];
  }
  give_slots(chain);
}

int FixedBuffers::update(std::uint32_t slot, Range range) {
  iovec buffer{reinterpret_cast<void*>(range.begin), range.bytes()};
  io_uring_rsrc_update2 update{};
  update.offset = slot;
  update.data = reinterpret_cast<std::uintptr_t>(&buffer);
  update.nr = 1;
  for (;;) {
    const long updated =
        syscall(__NR_io_uring_register, fd_, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update);
    if (updated == 1) return 0;
    if (updated == 0) return EIO;
    if (errno != EINTR) return errno;
  }
}

bool FixedBuffers::take_slots(Chain& chain) {
  const std::lock_guard lock(mutex_);
  if (chain.length > free_.length) return false;
  chain.first = free_.first;
  for (std::uint32_t i = 0; i < chain.length; ++i) free_.first = next_[free_.first];
  free_.length -= chain.length;
  return true;
}

void FixedBuffers::give_slots(Chain chain) {
  if (chain.length == 0) return;
  std::uint32_t last = chain.first;
  for (std::uint32_t i = 1; i < chain.length; ++i) last = next_[last];
  const std::lock_guard lock(mutex_);
  next_[last] = free_.first;
  free_.first = chain.first;
  free_.length += chain.length;
}

}  // namespace pinion
