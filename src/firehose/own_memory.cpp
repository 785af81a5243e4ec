#include "firehose/own_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "firehose/word_guard.h"
#include "pinion/firehose.h"

namespace pinion::firehose::own_memory {

namespace {

template <class Copy>
int checked(Copy&& copy, void* local, std::span<const iovec> remote, std::size_t bytes) {
  const iovec here{local, bytes};
  const ssize_t copied = copy(::getpid(), &here, 1UL, remote.data(), remote.size(), 0UL);
  if (copied < 0) return errno;
  return static_cast<std::size_t>(copied) == bytes ? 0 : EFAULT;
}

/// Whether the word may be written. The kernel adds 0 to it, atomically, and returns EFAULT where it cannot.
int probe(std::uint64_t word) {
  constexpr int kOlder = -2048;  // than any: no waiter of the program's is woken
  static std::uint32_t unused = 0;
  const int operation = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, kOlder);
  const long code = ::syscall(SYS_futex, &unused, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, 1L,
                              reinterpret_cast<void*>(word), operation);
  return code < 0 ? errno : 0;
}

template <class Word>
std::uint64_t apply_to(std::uint64_t target, unsigned operation, Word operand, Word compare) {
  std::atomic_ref<Word> word(*reinterpret_cast<Word*>(target));
  switch (operation) {
    case PINION_FIREHOSE_SET:
      return word.exchange(operand);
    case PINION_FIREHOSE_ADD:
      return word.fetch_add(operand);
    case PINION_FIREHOSE_AND:
      return word.fetch_and(operand);
    case PINION_FIREHOSE_OR:
      return word.fetch_or(operand);
    case PINION_FIREHOSE_XOR:
      return word.fetch_xor(operand);
    case PINION_FIREHOSE_COMPARE_SWAP:
      word.compare_exchange_strong(compare, operand);
      return compare;
    default:
      return word.load();
  }
}

}  // namespace

int write(std::uint64_t target, const void* from, std::size_t bytes) {
  const iovec one{reinterpret_cast<void*>(target), bytes};
  return write({&one, 1}, from, bytes);
}

int read(void* to, std::uint64_t source, std::size_t bytes) {
  const iovec one{reinterpret_cast<void*>(source), bytes};
  return read(to, {&one, 1}, bytes);
}

int write(std::span<const iovec> targets, const void* from, std::size_t bytes) {
  return checked(::process_vm_writev, const_cast<void*>(from), targets, bytes);
}

int read(void* to, std::span<const iovec> sources, std::size_t bytes) {
  return checked(::process_vm_readv, to, sources, bytes);
}

int apply(std::uint64_t target, std::size_t bytes, unsigned operation, std::uint64_t operand,
          std::uint64_t compare, std::uint64_t& old) {
  const WordGuard guard({target, target + bytes});
  if (!guard.stands()) return EBUSY;
  if (const int error = probe(target)) return error;
  old = bytes == 4 ? apply_to(target, operation, static_cast<std::uint32_t>(operand),
                              static_cast<std::uint32_t>(compare))
                   : apply_to(target, operation, operand, compare);
  return 0;
}

}  // namespace pinion::firehose::own_memory
