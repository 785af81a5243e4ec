#include "support/made_up_cuda/pinned_pages.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

namespace pinion::made_up_cuda {
namespace {

constexpr unsigned kSlots = 8192;
constexpr std::size_t kSlotBytes = std::size_t{256} << 20;

template <class T>
T* at(void* base, unsigned offset) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}

/// An io_uring by its system calls alone: a shared liburing would be one more library in the program.
class Ring {
 public:
  Ring() {
    io_uring_params params{};
    fd_ = static_cast<int>(::syscall(__NR_io_uring_setup, 4, &params));
    if (fd_ < 0) return;
    const std::size_t bytes =
        std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                              params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    void* const queues = map(bytes, IORING_OFF_SQ_RING);
    void* const entries = map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    if (queues == MAP_FAILED || entries == MAP_FAILED || !(params.features & IORING_FEAT_SINGLE_MMAP)) return;
    submit_tail_ = at<unsigned>(queues, params.sq_off.tail);
    submit_mask_ = *at<unsigned>(queues, params.sq_off.ring_mask);
    submit_array_ = at<unsigned>(queues, params.sq_off.array);
    entries_ = static_cast<io_uring_sqe*>(entries);
    complete_head_ = at<unsigned>(queues, params.cq_off.head);
    complete_tail_ = at<unsigned>(queues, params.cq_off.tail);
    complete_mask_ = *at<unsigned>(queues, params.cq_off.ring_mask);
    completions_ = at<io_uring_cqe>(queues, params.cq_off.cqes);
    io_uring_rsrc_register table{};
    table.nr = kSlots;
    table.flags = IORING_RSRC_REGISTER_SPARSE;
    usable_ = ::syscall(__NR_io_uring_register, fd_, IORING_REGISTER_BUFFERS2, &table, sizeof table) == 0;
    for (unsigned slot = kSlots; slot-- > 0;) free_.push_back(slot);
  }

  bool usable() const { return usable_; }

  /// 0 or an errno.
  int pin(Range range, std::vector<unsigned>& slots) {
    const std::lock_guard lock(mutex_);
    for (Address begin = range.begin; begin < range.end; begin += kSlotBytes) {
      if (free_.empty()) return ENOSPC;
      slots.push_back(free_.back());
      free_.pop_back();
      if (const int error = update(slots.back(), {begin, std::min(begin + kSlotBytes, range.end)}))
        return error;
    }
    return 0;
  }
  void unpin(const std::vector<unsigned>& slots) {
    const std::lock_guard lock(mutex_);
    for (const unsigned slot : slots) {
      update(slot, {});
      free_.push_back(slot);
    }
  }

  /// The bytes moved, or a negative errno.
  int move(unsigned slot, Range range, int file, std::size_t position, bool to_file) {
    const std::lock_guard lock(mutex_);
    const unsigned tail = *submit_tail_;
    io_uring_sqe& entry = entries_[tail & submit_mask_];
    entry = {};
    entry.opcode = to_file ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
    entry.fd = file;
    entry.addr = range.begin;
    entry.len = static_cast<unsigned>(range.bytes());
    entry.off = position;
    entry.buf_index = static_cast<__u16>(slot);
    submit_array_[tail & submit_mask_] = tail & submit_mask_;
    __atomic_store_n(submit_tail_, tail + 1, __ATOMIC_RELEASE);
    unsigned submitted = 0;
    while (*complete_head_ == __atomic_load_n(complete_tail_, __ATOMIC_ACQUIRE)) {
      const auto entered =
          ::syscall(__NR_io_uring_enter, fd_, 1 - submitted, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
      if (entered < 0 && errno != EINTR) return -errno;
      if (entered > 0) submitted = 1;
    }
    const int moved = completions_[*complete_head_ & complete_mask_].res;
    __atomic_store_n(complete_head_, *complete_head_ + 1, __ATOMIC_RELEASE);
    return moved;
  }

 private:
  void* map(std::size_t bytes, off_t offset) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
  }
  /// Puts a range into a slot; an empty one clears it. 0 or an errno.
  int update(unsigned slot, Range range) {
    const iovec buffer{reinterpret_cast<void*>(range.begin), range.bytes()};
    const __u64 tag = 0;
    io_uring_rsrc_update2 change{};
    change.offset = slot;
    change.data = reinterpret_cast<__u64>(&buffer);
    change.tags = reinterpret_cast<__u64>(&tag);
    change.nr = 1;
    long updated;
    do {
      updated =
          ::syscall(__NR_io_uring_register, fd_, IORING_REGISTER_BUFFERS_UPDATE, &change, sizeof change);
    } while (updated < 0 && errno == EINTR);
    return updated == 1 ? 0 : updated == 0 ? EIO : errno;
  }

  std::mutex mutex_;
  int fd_ = -1;
  bool usable_ = false;
  unsigned *submit_tail_ = nullptr, *submit_array_ = nullptr, *complete_head_ = nullptr,
           *complete_tail_ = nullptr;
  unsigned submit_mask_ = 0, complete_mask_ = 0;
  io_uring_sqe* entries_ = nullptr;
  io_uring_cqe* completions_ = nullptr;
  std::vector<unsigned> free_;
};

Ring& ring() {
  // Kept for ever: streams may use it while the process exits.
  static Ring& made = *new Ring;
  return made;
}

/// Moves bytes by their addresses, without a fault where there is no memory.
bool move_by_address(Range range, int file, std::size_t position, bool to_file) {
  std::vector<char> bytes(range.bytes());
  const iovec here{bytes.data(), bytes.size()};
  const iovec there{reinterpret_cast<void*>(range.begin), range.bytes()};
  const auto all = static_cast<ssize_t>(range.bytes());
  const auto offset = static_cast<off_t>(position);
  if (to_file)
    return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == all &&
           ::pwrite(file, bytes.data(), bytes.size(), offset) == all;
  return ::pread(file, bytes.data(), bytes.size(), offset) == all &&
         ::process_vm_writev(::getpid(), &here, 1, &there, 1, 0) == all;
}

/// Whether each page of the range may be read.
bool readable(Range range) {
  char byte;
  for (Address page = page_floor(range.begin); page < range.end; page += page_size()) {
    const iovec here{&byte, 1};
    const iovec there{reinterpret_cast<void*>(page), 1};
    if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != 1) return false;
  }
  return true;
}

}  // namespace

bool can_pin() {
  static const bool possible = [] {
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Pins pins;
    const bool pinned = pin(Range::of(memory, kBytes), false, pins) && !pins.by_address;
    unpin(pins);
    ::munmap(memory, kBytes);
    return pinned;
  }();
  return possible;
}

bool pin(Range range, bool read_only, Pins& pins) {
  pins.range = range;
  const int error = ring().usable() ? ring().pin(range, pins.slots) : ENOMEM;
  if (!error) return true;
  unpin(pins);
  pins.range = range;
  // A ring writes into what it pins. The kernel may also bound what it pins (RLIMIT_MEMLOCK).
  pins.by_address = (read_only && error == EFAULT) || error == ENOMEM || error == ENOSPC;
  return pins.by_address && readable(range);
}

void unpin(Pins& pins) {
  if (!pins.slots.empty()) ring().unpin(pins.slots);
  pins = {};
}

bool move_pinned(const Pins& pins, Range range, int file, std::size_t position, bool to_file) {
  if (pins.by_address) return move_by_address(range, file, position, to_file);
  while (!range.empty()) {
    const std::size_t inside = range.begin - pins.range.begin;
    const std::size_t bytes = std::min(range.bytes(), kSlotBytes - inside % kSlotBytes);
    const int moved = ring().move(pins.slots[inside / kSlotBytes], {range.begin, range.begin + bytes}, file,
                                  position, to_file);
    if (moved <= 0) return false;
    range.begin += static_cast<std::size_t>(moved);
    position += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace pinion::made_up_cuda
