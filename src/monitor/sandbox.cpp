#include "monitor/sandbox.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "base/atomics.h"
#include "base/kept_file.h"
#include "base/process_mutex.h"
#include "monitor/system_call.h"

namespace pinion {

namespace {

constexpr int kUnknown = -1;

constinit ProcessMutex noting;
/// Never freed: threads may ask while the process ends.
constinit std::atomic<KeptFile*> status{nullptr};
constinit std::atomic<int> filters_at_first{kUnknown};
constinit std::atomic<bool> is_asked{false};
constinit std::atomic<bool> was_forked_behind{false};

int open_status() { return ::open("/proc/self/status", O_RDONLY | O_CLOEXEC); }

int number_behind(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  return at == std::string_view::npos ? kUnknown : std::atoi(text.data() + at + name.size());
}

/// The filters of the process, or the kernel's mode of them where it does not count them. By bare system
/// calls: a thread that is being cancelled would end in libc's read(), inside malloc and with its lock.
int read_filters(const KeptFile& of) {
  static char text[4096];  // the calling thread's stack may have no room
  const int file = of.get();
  if (file < 0 || raw_system_call(SYS_lseek, arguments_of(file, 0L, SEEK_SET)) != 0) return kUnknown;
  const long bytes = raw_system_call(SYS_read, arguments_of(file, &text[0], sizeof text - 1));
  if (bytes <= 0) return kUnknown;
  text[bytes] = '\0';
  const int count = number_behind(text, "\nSeccomp_filters:");
  return count != kUnknown ? count : number_behind(text, "\nSeccomp:");
}

/// Waits for another thread that asks, and not for ever: a signal handler may have interrupted it.
int filters() {
  const KeptFile* const of = status.load(std::memory_order_acquire);
  if (of == nullptr) return kUnknown;
  constexpr int kPatience = 1'000'000;
  for (int i = 0; is_asked.exchange(true, std::memory_order_acquire); ++i) {
    if (i == kPatience) return kUnknown;
    StdAtomics::relax();
  }
  const int found = read_filters(*of);
  is_asked.store(false, std::memory_order_release);
  return found;
}

/// The child has its parent's filters, which may end it when it opens a file. The descriptor from before the
/// fork shows the parent's.
void open_in_child() {
  is_asked.store(false);
  if (has_new_filter())
    was_forked_behind.store(true);
  else
    *status.load() = KeptFile(open_status());
}

}  // namespace

void note_filters() {
  const ProcessLock lock(noting);
  if (status.load() != nullptr) return;
  status.store(new KeptFile(open_status()));
  filters_at_first.store(filters());
  pthread_atfork(nullptr, nullptr, open_in_child);
}

bool has_new_filter() { return was_forked_behind.load() || filters() > filters_at_first.load(); }

}  // namespace pinion
