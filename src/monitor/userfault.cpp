#include "monitor/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>

#include "base/kept_file.h"
#include "base/loaded_objects.h"
#include "base/process_mutex.h"
#include "monitor/hook_self_test.h"
#include "monitor/mapping_reader.h"
#include "monitor/own_threads.h"
#include "monitor/programs_userfaultfd.h"
#include "monitor/system_call.h"

namespace pinion {

constinit std::atomic<std::uint32_t> detail::userfault_sequence{0};

namespace {

using detail::userfault_sequence;

// Younger than the oldest headers that this is built with (Linux 5.15, Ubuntu 22.04).
constexpr std::uint64_t kWriteProtectShared = 1u << 12;    // UFFD_FEATURE_WP_HUGETLBFS_SHMEM, Linux 5.19
constexpr unsigned long kNewFromDevice = _IO(0xAA, 0x00);  // USERFAULTFD_IOC_NEW, Linux 6.1
constexpr std::uint64_t kWriteProtectAnyMemory = std::uint64_t{1} << 15;  // UFFD_FEATURE_WP_ASYNC, Linux 6.7
constexpr unsigned kOwnFileTable = 1u << 1;                               // CLOSE_RANGE_UNSHARE, Linux 5.9

constexpr std::uint64_t kNeeded = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP |
                                  UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE;
constexpr std::uint64_t kUseful = kWriteProtectShared | kWriteProtectAnyMemory;

template <class... T>
long kernel(long number, T... arguments) {
  return raw_system_call(number, arguments_of(arguments...));
}

// ---- Opening ----

/// A new userfaultfd before its handshake, or -errno. Only faults of user mode would be served by it, which
/// every process may ask for.
long open_userfaultfd() {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  long fd = kernel(SYS_userfaultfd, kFlags | UFFD_USER_MODE_ONLY);
  if (fd == -EINVAL) fd = kernel(SYS_userfaultfd, kFlags);  // before Linux 5.11
  if (!is_error(fd)) return fd;
  // A seccomp profile that refuses the call may have let the device in.
  const long device = kernel(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (is_error(device)) return fd;
  const long from_device = kernel(SYS_ioctl, device, kNewFromDevice, kFlags | UFFD_USER_MODE_ONLY);
  kernel(SYS_close, device);
  return is_error(from_device) ? fd : from_device;
}

/// Requests features and returns the available ones; the handshake can be made once for a userfaultfd.
long shake_hands(long fd, std::uint64_t& features) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = features;
  const long result = kernel(SYS_ioctl, fd, UFFDIO_API, &api);
  features = api.features;
  return result;
}

struct Channel {
  long fd = -1;
  std::uint64_t features = 0;
  Error error;
};

/// Whether valgrind runs the program: its tools load a library of that name into it.
bool under_valgrind() {
  return for_each_loaded_object([](const LoadedObject& object) {
    const char* const slash = std::strrchr(object.file(), '/');
    return slash != nullptr && std::strncmp(slash, "/vgpreload_", 11) == 0;
  });
}

/// The features that this kernel has.
Channel probe() {
  Channel channel;
  if (under_valgrind()) {
    channel.error = Error::make(
        EDEADLK,
        "valgrind runs one thread at a time: an unmap would wait for the reader of userfaultfd, and "
        "the reader for the thread that unmaps");
    return channel;
  }
  channel.fd = open_userfaultfd();
  if (is_error(channel.fd)) {
    const int code = static_cast<int>(-channel.fd);
    channel.error =
        Error::make(code,
                    "userfaultfd is refused (%s): by a seccomp profile of the container, by sysctl "
                    "vm.unprivileged_userfaultfd=0 before Linux 5.11, or the kernel has none",
                    std::strerror(code));
    return channel;
  }
  const long result = shake_hands(channel.fd, channel.features);
  kernel(SYS_close, channel.fd);
  channel.fd = -1;
  if (is_error(result) || (channel.features & kNeeded) != kNeeded) {
    channel.error =
        Error::make(ENOTSUP,
                    "this kernel's userfaultfd has no write-protect mode, without which each page "
                    "would have to be served (Linux 5.7 on x86-64, 6.10 on aarch64)");
  } else if (kernel(SYS_close_range, ~0u, ~0u, 0) == -ENOSYS) {
    channel.error = Error::make(ENOSYS, "the kernel has no close_range (Linux 5.9)");
  }
  return channel;
}

/// A userfaultfd that serves.
Error open_channel(KeptFile& opened) {
  Channel channel = probe();
  if (channel.error) return channel.error;
  channel.features &= kNeeded | kUseful;
  long result = open_userfaultfd();
  if (!is_error(result)) {
    opened = KeptFile(static_cast<int>(result));
    result = shake_hands(opened.get(), channel.features);
  }
  if (!is_error(result)) return {};
  opened.close();
  return Error::make(static_cast<int>(-result), "userfaultfd: %s", std::strerror(static_cast<int>(-result)));
}

// ---- The reader ----

std::atomic<Answer (*)(const MemoryChange&)> callback_begin{nullptr};
std::atomic<void (*)(Range)> callback_end{nullptr};
std::atomic<bool (*)(Range)> hooks_have{nullptr};
std::atomic<void (*)()> lose_sight{nullptr};

void begin(Range range) {
  if (const auto call = callback_begin.load(std::memory_order_acquire)) static_cast<void>(call({range}));
  event_watch.note_begin(range);
}
void end(Range range) {
  event_watch.note_end(range);
  if (const auto call = callback_end.load(std::memory_order_acquire)) call(range);
}

/// Brackets of dropped memory, which stay open for a while. The reader's own.
class OpenDrops {
 public:
  void add(Range range, Time now) {
    begin(range);
    if (count_ == drops_.size())
      join(range);
    else
      drops_[count_++] = {range, now + kDropTime};
  }
  void close_until(Time now) {
    while (count_ > 0 && drops_[0].until <= now) {
      end(drops_[0].range);
      std::copy(drops_.begin() + 1, drops_.begin() + count_, drops_.begin());
      --count_;
    }
  }
  /// The drops are in order of time: the first closes first.
  bool empty() const { return count_ == 0; }
  Time next() const { return drops_[0].until; }

 private:
  struct Drop {
    Range range;
    Time until;
  };

  /// No room: the newest bracket takes `range` in, whose own is open already.
  void join(Range range) {
    Drop& newest = drops_[count_ - 1];
    const Range both{std::min(newest.range.begin, range.begin), std::max(newest.range.end, range.end)};
    begin(both);
    end(newest.range);
    end(range);
    newest = {both, monotonic_now() + kDropTime};
  }

  std::array<Drop, 16> drops_;
  std::size_t count_ = 0;
};

class Reader {
 public:
  explicit Reader(long fd) : fd_(fd) {}

  [[noreturn]] void run() {
    for (;;) {
      wait();
      userfault_sequence.fetch_add(1, std::memory_order_seq_cst);
      read();
      drops_.close_until(monotonic_now());
      userfault_sequence.fetch_add(1, std::memory_order_seq_cst);
    }
  }

 private:
  void wait() {
    pollfd file{static_cast<int>(fd_), POLLIN, 0};
    timespec until_next{};
    const timespec* timeout = nullptr;
    if (!drops_.empty()) {
      until_next.tv_nsec = std::clamp<Duration>(drops_.next() - monotonic_now(), 0, kDropTime);
      timeout = &until_next;
    }
    kernel(SYS_ppoll, &file, 1, timeout, 0, 0);
  }

  void read() {
    std::array<uffd_msg, 16> messages;
    for (;;) {
      const long bytes = kernel(SYS_read, fd_, messages.data(), sizeof messages);
      if (is_error(bytes)) return;  // EAGAIN: that was all, or the waiting thread was killed
      const auto count = static_cast<std::size_t>(bytes) / sizeof messages[0];
      std::for_each_n(messages.begin(), count, [this](const uffd_msg& message) { handle(message); });
      if (count < messages.size()) return;
    }
  }

  void handle(const uffd_msg& message) {
    switch (message.event) {
      case UFFD_EVENT_UNMAP:
        return changed({message.arg.remove.start, message.arg.remove.end});
      case UFFD_EVENT_REMAP:
        return changed({message.arg.remap.from, message.arg.remap.from + message.arg.remap.len});
      case UFFD_EVENT_REMOVE:
        return dropped({message.arg.remove.start, message.arg.remove.end});
    }
  }

  static void changed(Range range) {
    begin(range);
    end(range);
  }

  void dropped(Range range) {
    const auto hooks_have_it = hooks_have.load(std::memory_order_acquire);
    if (hooks_have_it != nullptr && hooks_have_it(range)) return changed(range);
    drops_.add(range, monotonic_now());
  }

  const long fd_;
  OpenDrops drops_;
};

// ---- Starting and stopping ----

constinit ProcessMutex control;  // guards starting and stopping
/// Never freed: threads may be inside watch() when the process ends. The reader, once started, stays.
KeptFile* channel = nullptr;
std::atomic<bool> watching{false};  ///< whether watch_by_userfaultfd() may use the channel
constinit std::atomic<bool> gave_way{false};
std::atomic<int> reader_state{0};  ///< 0: not yet, 1: reads, -errno: gave up

/// Leaves the reader's thread with the userfaultfd alone.
long take_own_file_table(long fd) {
  const auto number = static_cast<unsigned>(fd);
  const long below = kernel(SYS_close_range, 0, number - 1, kOwnFileTable);
  return is_error(below) ? below : kernel(SYS_close_range, number + 1, ~0u, 0);
}

void read_events(long fd) {
  const long error = take_own_file_table(fd);
  reader_state.store(is_error(error) ? static_cast<int>(error) : 1, std::memory_order_release);
  reader_state.notify_all();
  if (!is_error(error)) Reader(fd).run();
}

Error start_reader(int fd) {
  reader_state.store(0, std::memory_order_relaxed);
  try {
    start_own_thread("pinion-events", [fd] { read_events(fd); }).detach();
  } catch (const std::exception&) {
    return Error::make(EAGAIN, "no thread can be started to read userfaultfd's events");
  }
  reader_state.wait(0, std::memory_order_acquire);
  if (const int state = reader_state.load(std::memory_order_acquire); state < 0)
    return Error::make(-state, "close_range for the reader of userfaultfd: %s", std::strerror(-state));
  return {};
}

/// Forgets the parent's reader and watched memory, in a child.
void forget_parent() {
  watching.store(false, std::memory_order_relaxed);
  if (channel) channel->close();
  callback_begin.store(nullptr, std::memory_order_relaxed);
  userfault_sequence.store(0, std::memory_order_relaxed);
  reader_state.store(0, std::memory_order_relaxed);
}

long watch(long fd, Range pages, std::size_t granule) {
  const Address begin = pages.begin / granule * granule;
  uffdio_register request{};
  request.range = {begin, (pages.end + granule - 1) / granule * granule - begin};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  return kernel(SYS_ioctl, fd, UFFDIO_REGISTER, &request);
}

/// Memory that is watched already stays so, by the reader's own descriptor.
Error lost_channel() {
  static std::atomic<bool> reported{false};
  const Error lost = Error::make(EBADF,
                                 "the program has closed Pinion's userfaultfd: memory that is not "
                                 "watched yet is registered for one transfer at a time");
  if (!reported.exchange(true)) std::fprintf(stderr, "pinion: %s (said once)\n", lost.message);
  return lost;
}

bool is_mapped(Address page) {
  unsigned char resident;
  return !is_error(kernel(SYS_mincore, page, page_size(), &resident));
}

void unwatch(long fd, Range mapping) {
  uffdio_range range{mapping.begin, mapping.bytes()};
  kernel(SYS_ioctl, fd, UFFDIO_UNREGISTER, &range);
}

/// Only the kernel has a record of watched memory. Mappings of other userfaultfds are refused, rightly.
void unwatch_all(long fd) {
  MappingReader reader;
  for (Mapping mapping; reader.is_open() && reader.next(mapping);) unwatch(fd, mapping.range);
}

/// Looks for a userfaultfd among the open files.
void look_for_programs(Look look) {
  static constinit std::atomic<Time> next{0};
  if (look == Look::at_times && monotonic_now() < next.load(std::memory_order_relaxed)) return;
  const Duration begin = thread_cpu_now();
  if (program_has_userfaultfd(channel != nullptr ? channel->get() : -1)) userfaultfd_gives_way();
  constexpr int kRest = 50;
  next.store(monotonic_now() + kRest * (thread_cpu_now() - begin), std::memory_order_relaxed);
}

}  // namespace

Error userfaultfd_gave_way() {
  if (!gave_way.load(std::memory_order_acquire)) return {};
  return Error::make(EBUSY, "the program has a userfaultfd of its own, and Pinion's gives way to it");
}

bool program_serves_faults(Look look) {
  if (gave_way.load(std::memory_order_acquire)) return true;
  const ProcessLock lock(control);  // one that Pinion tries is no program's
  look_for_programs(look);
  return gave_way.load(std::memory_order_acquire);
}

void userfaultfd_gives_way() {
  gave_way.store(true, std::memory_order_seq_cst);
  if (!watching.load(std::memory_order_seq_cst)) return;
  if (const auto call = lose_sight.load(std::memory_order_acquire)) call();
  if (const long fd = channel->get(); fd >= 0) unwatch_all(fd);
}

Error userfaultfd_refused() {
  const ProcessLock lock(control);
  if (Error way = userfaultfd_gave_way()) return way;
  return channel && channel->is_open() ? Error{} : probe().error;
}

Error start_userfaultfd(const HookCallbacks& callbacks) {
  const ProcessLock lock(control);
  if (!channel) channel = new KeptFile;
  if (!channel->is_open()) {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_parent); });
    static_cast<void>(page_size());
    if (Error error = open_channel(*channel)) return error;
    if (Error error = start_reader(channel->get())) {
      channel->close();
      return error;
    }
  }
  if (channel->get() < 0) return lost_channel();
  look_for_programs(Look::at_times);
  if (Error way = userfaultfd_gave_way()) return way;
  lose_sight.store(callbacks.exposed, std::memory_order_release);
  hooks_have.store(callbacks.bracketed, std::memory_order_relaxed);
  callback_end.store(callbacks.end, std::memory_order_relaxed);
  callback_begin.store(callbacks.begin, std::memory_order_release);
  watching.store(true, std::memory_order_release);
  return {};
}

void stop_userfaultfd() {
  const ProcessLock lock(control);
  if (!watching.exchange(false, std::memory_order_acq_rel)) return;
  // The reader stays, and closes the brackets that it has opened: only events that begin from now on are
  // ignored.
  callback_begin.store(nullptr, std::memory_order_release);
  unwatch_all(channel->get());
}

Error watch_by_userfaultfd(Range pages) {
  if (!watching.load(std::memory_order_acquire)) return Error::make(ENOTCONN, "userfaultfd was not started");
  const long fd = channel->get();
  if (fd < 0) return lost_channel();
  look_for_programs(Look::at_times);
  if (Error way = userfaultfd_gave_way()) return way;
  long result = watch(fd, pages, page_size());
  // hugetlbfs takes whole pages of its own size only.
  constexpr std::size_t kLargestPage = std::size_t{1} << 30;
  const bool may_be_huge = result == -EINVAL && is_mapped(pages.begin) && is_mapped(pages.end - page_size());
  for (std::size_t page = 2 * page_size(); may_be_huge && result == -EINVAL && page <= kLargestPage;
       page *= 2)
    result = watch(fd, pages, page);
  // Watched meanwhile, it would be in the program's way.
  if (Error way = userfaultfd_gave_way()) {
    unwatch(fd, pages);
    return way;
  }
  if (!is_error(result)) return {};
  return Error::make(ENOTSUP, "userfaultfd does not watch this memory (%s)",
                     result == -EBUSY ? "another userfaultfd of the program does"
                                      : std::strerror(static_cast<int>(-result)));
}

int userfaultfd_threads() { return reader_state.load(std::memory_order_relaxed) == 1 ? 1 : 0; }

void wait_for_userfaultfd() {
  const std::uint32_t seen = userfault_sequence.load(std::memory_order_acquire);
  if ((seen & 1) == 0) return;
  while (userfault_sequence.load(std::memory_order_acquire) == seen) sched_yield();
}

}  // namespace pinion
