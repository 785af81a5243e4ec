#include "device/kernel/fixed_buffers.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <numeric>

#include "base/units.h"
#include "device/kernel/io_uring_abi.h"
#include "monitor/system_call.h"

namespace pinion {

namespace {

/// The number of tries for a slot, a millisecond apart, while the kernel still charges for the old ring.
constexpr int kTriesAfterLoss = 100;

void report_loss(std::size_t unpinned) {
  static std::atomic<bool> reported{false};
  if (reported.exchange(true)) return;
  if (unpinned == 0) {
    std::fprintf(stderr,
                 "pinion: the program has closed the descriptor by which Pinion pins memory; all of it is "
                 "pinned anew (said once)\n");
  } else {
    std::fprintf(stderr,
                 "pinion: the program has closed the descriptor by which Pinion pins memory; %s could not be "
                 "pinned anew (said once)\n",
                 format_size(unpinned).c_str());
  }
}

}  // namespace

// ---- the ring ----

int FixedBuffers::Ring::open(std::uint32_t slots) {
  io_uring_params params{};
  const int fd = static_cast<int>(syscall(__NR_io_uring_setup, 1, &params));
  if (fd < 0) return errno;
  file = KeptFile(fd);
  IoUringTable table{};
  table.nr = slots;
  table.flags = kSparseTable;
  int error = 0;
  if (syscall(__NR_io_uring_register, file.get(), IORING_REGISTER_BUFFERS2, &table, sizeof table) != 0)
    error = errno;
  // No memory event: only Pinion's own memory comes or goes.
  const long mapped = raw_system_call(
      SYS_mmap, arguments_of(0L, page_size(), PROT_READ, MAP_SHARED, file.get(), IORING_OFF_SQES));
  if (!is_error(mapped)) {
    mapping = reinterpret_cast<void*>(mapped);
    raw_system_call(SYS_madvise, arguments_of(mapping, page_size(), MADV_DONTFORK));
  } else if (error == 0) {
    error = static_cast<int>(-mapped);
  }
  if (error != 0) close();
  return error;
}

int FixedBuffers::Ring::update(std::uint32_t slot, const iovec& buffer) const {
  io_uring_rsrc_update2 update{};
  update.offset = slot;
  update.data = reinterpret_cast<std::uintptr_t>(&buffer);
  update.nr = 1;
  for (;;) {
    const int fd = file.get();
    if (fd < 0) return EBADF;
    const long updated =
        syscall(__NR_io_uring_register, fd, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update);
    if (updated == 1) return 0;
    if (updated == 0) return EIO;
    if (errno != EINTR) return errno;
  }
}

void FixedBuffers::Ring::close() {
  if (mapping) raw_system_call(SYS_munmap, arguments_of(mapping, page_size()));
  mapping = nullptr;
  file.close();
}

// ---- the table ----

std::unique_ptr<FixedBuffers> FixedBuffers::open(std::uint32_t slots, int& error) {
  Ring ring;
  error = ring.open(slots);
  if (error != 0) return nullptr;
  return std::unique_ptr<FixedBuffers>(new FixedBuffers(std::move(ring), slots));
}

FixedBuffers::FixedBuffers(Ring&& ring, std::uint32_t slots)
    : slots_(slots),
      ring_(std::move(ring)),
      contents_(static_cast<iovec*>(std::calloc(slots, sizeof(iovec))), std::free),
      free_{0, slots},
      next_(slots) {
  if (!contents_) throw std::bad_alloc();
  std::iota(next_.begin(), next_.end(), 1u);
}

FixedBuffers::~FixedBuffers() { ring_.close(); }

int FixedBuffers::pin(std::span<const Range> ranges, Chain& chain) {
  chain.length = 0;
  for (const Range range : ranges)
    chain.length += static_cast<std::uint32_t>((range.bytes() + kSlotBytes - 1) / kSlotBytes);
  if (!take_slots(chain)) return ENOSPC;
  std::uint32_t slot = chain.first;
  for (const Range range : ranges) {
    for (Address begin = range.begin; begin < range.end; begin += kSlotBytes) {
      if (const int error = update(slot, {begin, std::min(begin + kSlotBytes, range.end)})) {
        unpin(chain);
        return error;
      }
      slot = next_[slot];
    }
  }
  return 0;
}

int FixedBuffers::unpin(Chain chain) {
  std::uint32_t slot = chain.first;
  for (std::uint32_t i = 0; i < chain.length; ++i) {
    if (const int error = update(slot, {})) return error;
    slot = next_[slot];
  }
  give_slots(chain);
  return 0;
}

int FixedBuffers::update(std::uint32_t slot, Range range) {
  const iovec buffer{reinterpret_cast<void*>(range.begin), range.bytes()};
  for (;;) {
    std::uint32_t generation;
    {
      const ReaderLock lock(ring_mutex_);
      if (range.empty() && contents_[slot].iov_len == 0) return 0;
      const int error = ring_.update(slot, buffer);
      if (error == 0) contents_[slot] = buffer;
      if (error != EBADF) return error;
      generation = generation_;
    }
    if (const int error = replace_ring(generation)) return error;
  }
}

int FixedBuffers::replace_ring(std::uint32_t generation) {
  const WriterLock lock(ring_mutex_);
  if (generation_ != generation) return 0;
  Ring ring;
  if (const int error = ring.open(slots_)) return error;
  std::vector<std::uint32_t> refused;
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    if (contents_[slot].iov_len != 0 && ring.update(slot, contents_[slot]) != 0) refused.push_back(slot);
  }
  ring_.close();
  ring_ = std::move(ring);
  ++generation_;
  std::size_t unpinned = 0;
  int tries = kTriesAfterLoss;
  for (const std::uint32_t slot : refused) {
    int error = ring_.update(slot, contents_[slot]);
    for (; error == ENOMEM && tries > 0; --tries) {
      ::usleep(1000);
      error = ring_.update(slot, contents_[slot]);
    }
    if (error == 0) continue;
    // Memory that has gone is doomed already.
    if (error != EFAULT) unpinned += contents_[slot].iov_len;
    contents_[slot] = {};
  }
  report_loss(unpinned);
  return 0;
}

bool FixedBuffers::take_slots(Chain& chain) {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  next_[last] = free_.first;
  free_.first = chain.first;
  free_.length += chain.length;
}

}  // namespace pinion
