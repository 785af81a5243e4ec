#include "transfer/endpoint/queue_wait.h"

#ifdef PINION_HAS_LIBFABRIC
#include <poll.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "base/futex.h"

namespace pinion::transfer {

namespace {

/// Time after an event in which the next is awaited awake, by giving the core to others.
constexpr Duration kAwake = 50 * kMicrosecond;
/// The longest sleep by time alone.
constexpr Duration kLongestNap = kMillisecond;

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> serial{0};
  return serial.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// The epoch at which a thread last waited, for a few endpoints.
struct Seen {
  std::uint64_t serial = 0;
  std::uint32_t epoch = 0;
};
thread_local std::array<Seen, 8> all_seen;

}  // namespace

QueueWait::QueueWait() : serial_(next_serial()), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void QueueWait::watch(fid_fabric* fabric, fid_cq* queue, int descriptor) {
  fabric_ = fabric;
  queue_ = queue;
  descriptor_ = bell_.is_open() ? descriptor : -1;
}

void QueueWait::advanced() {
  busy();
  epoch_.fetch_add(1);
  if (sleeping_.load() > 0) futex_wake(epoch_, INT_MAX);
  if (polling_.load()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
  }
}

/// Whether the queue is as it was at this thread's last wait. Notes the present.
bool QueueWait::seen() {
  Seen& seen = all_seen[serial_ % all_seen.size()];
  const std::uint32_t now = epoch_.load();
  const bool same = seen.serial == serial_ && seen.epoch == now;
  seen = {serial_, now};
  return same;
}

void QueueWait::wait(Duration at_most) {
  if (!seen()) return;
  const Time now = monotonic_now();
  const Duration silence = now - last_.load(std::memory_order_relaxed);
  if (silence < kAwake) {
    ::sched_yield();
    return;
  }
  waiting_.fetch_add(1);
  const Time until = now + std::max<Duration>(at_most, 0);
  if (descriptor_ < 0)
    sleep_until(std::min(until, now + std::min(silence / 4, kLongestNap)));
  else if (!polling_.exchange(true))
    poll_until(until);
  else
    sleep_until(until);
  waiting_.fetch_sub(1);
  seen();
}

void QueueWait::poll_until(Time until) {
  const Seen& seen = all_seen[serial_ % all_seen.size()];
  fid* queues[] = {&queue_->fid};
  // Otherwise an event lies in the queue already, and the descriptor would stay silent about it.
  if (fi_trywait(fabric_, queues, 1) == 0 && epoch_.load() == seen.epoch) {
    pollfd files[] = {{descriptor_, POLLIN, 0}, {bell_.get(), POLLIN, 0}};
    const Duration left = std::max<Duration>(until - monotonic_now(), 0);
    const timespec at_most{left / kSecond, left % kSecond};
    ::ppoll(files, 2, &at_most, nullptr);
    std::uint64_t rung;
    if (files[1].revents != 0) {
      [[maybe_unused]] const ssize_t taken = ::read(bell_.get(), &rung, sizeof rung);
    }
  }
  polling_.store(false);
  // Another thread polls from now on, if one waits.
  if (sleeping_.load() > 0) futex_wake(epoch_, 1);
}

void QueueWait::sleep_until(Time until) {
  const Seen& seen = all_seen[serial_ % all_seen.size()];
  sleeping_.fetch_add(1);
  futex_wait(epoch_, seen.epoch, until);
  sleeping_.fetch_sub(1);
}

}  // namespace pinion::transfer
#endif
