#include "monitor/fabric_monitor.h"

#ifdef PINION_HAS_LIBFABRIC
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <rdma/fi_ext.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/held_signals.h"
#include "base/own_loading.h"
#include "base/process_mutex.h"
#include "monitor/memory_events.h"
#include "monitor/own_threads.h"
#include "monitor/subscriptions.h"
#include "monitor/system_call.h"

namespace pinion::fabric_monitor {

namespace {

/// The first release in which importing a monitor does not deadlock by itself.
constexpr std::uint32_t kOldest = FI_VERSION(1, 14);
/// Between an event and its notification of libfabric: others may follow at once.
constexpr std::chrono::milliseconds kGather{2};

/// The monitor of libc's functions, or the automatic one kept to it. Set before the import.
MemoryMonitor* watching = nullptr;

class Monitor final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    post(change.range);
    return Answer::proceed;
  }
  void appeared(const NewMapping& mapping) override { post(mapping.range); }

  void abandon_after_fork() {
    subscriptions_.abandon_after_fork();
    new (&teller_) std::thread;  // it stayed with the parent
  }

  // libfabric calls these; start and stop under a mutex of their own, the others under the one of all caches.

  void start() {
    stopping_.store(false);
    try {
      teller_ = start_own_thread("pinion-tell", [this] { tell(); });
    } catch (const std::exception&) {
      // valid() works without it; stale registrations then stay pinned until libfabric makes room.
    }
  }

  void stop() {
    if (!teller_.joinable()) return;
    stopping_.store(true);
    wake();
    teller_.join();
  }

  int subscribe(Range range) {
    try {
      subscriptions_.subscribe(range);
      return 0;
    } catch (const std::bad_alloc&) {
      return -FI_ENOMEM;
    }
  }

  void unsubscribe(Range range) { subscriptions_.unsubscribe(range); }

  bool valid(Range range) {
    if (blind_for_good_) return false;
    try {
      blind_for_good_ = static_cast<bool>(memory_events::regain_sight(*watching));
    } catch (const std::bad_alloc&) {
      return false;
    }
    return !blind_for_good_ && subscriptions_.valid(range);
  }

  fid_mem_monitor fid{};

 private:
  /// Hooks.
  void post(Range range) {
    if (subscriptions_.post(range) && asleep_.load(std::memory_order_seq_cst) != 0) wake();
  }

  void tell() {
    ::prctl(PR_SET_NAME, "pinion-fabric");
    while (!stopping_.load()) {
      asleep_.store(1, std::memory_order_seq_cst);
      const std::vector<Range> stale = subscriptions_.take_stale();
      if (stale.empty() && !stopping_.load()) {
        ::syscall(SYS_futex, &asleep_, FUTEX_WAIT_PRIVATE, 1, nullptr);
        std::this_thread::sleep_for(kGather);
      }
      asleep_.store(0, std::memory_order_relaxed);
      for (const Range& range : stale) {
        fid.import_ops->notify(&fid, reinterpret_cast<void*>(range.begin), range.bytes());
        subscriptions_.forget_stale(range);
      }
    }
  }

  /// Callable from hooks.
  void wake() {
    asleep_.store(0, std::memory_order_seq_cst);
    raw_system_call(SYS_futex, arguments_of(&asleep_, FUTEX_WAKE_PRIVATE, 1));
  }

  Subscriptions subscriptions_{memory_events::brackets()};
  bool blind_for_good_ = false;  ///< guarded by libfabric's mutex of all caches
  std::thread teller_;           ///< from start() to stop()
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> asleep_{0};
};

/// Never freed: hooks may be inside it.
std::atomic<Monitor*> the_monitor{nullptr};
constinit ProcessMutex importing;
bool is_imported GUARDED_BY(importing) = false;

fi_ops_mem_monitor operations = {
    .size = sizeof(fi_ops_mem_monitor),
    .start =
        [](fid_mem_monitor*) {
          the_monitor.load()->start();
          return 0;
        },
    .stop = [](fid_mem_monitor*) { the_monitor.load()->stop(); },
    .subscribe = [](fid_mem_monitor*, const void* address,
                    size_t bytes) { return the_monitor.load()->subscribe(Range::of(address, bytes)); },
    .unsubscribe = [](fid_mem_monitor*, const void* address,
                      size_t bytes) { the_monitor.load()->unsubscribe(Range::of(address, bytes)); },
    .valid = [](fid_mem_monitor*, const void* address,
                size_t bytes) { return the_monitor.load()->valid(Range::of(address, bytes)); },
};

/// Runs in the child of a fork.
void abandon_after_fork() {
  if (Monitor* monitor = the_monitor.load()) monitor->abandon_after_fork();
}

/// A handle of the libfabric that `function` is of, or of the one that is loaded. It is held for ever: its
/// notify is called from now on.
void* hold_libfabric(const void* function) {
  Dl_info info{};
  const char* name = "libfabric.so.1";
  if (function != nullptr && dladdr(function, &info) != 0) name = info.dli_fname;
  return load_library(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/// The hooks of libc, which may serve a run already. The error lists the changes that they miss.
Error watch_by_libc(MonitorKind kind) {
  watching = &monitor_of(kind);
  if (memory_events::monitor() == nullptr) {
    if (const Error missing = memory_events::watch(kind).missing) return missing;
  }
  const MemoryMonitor* const started = memory_events::monitor();
  if (&watching->chosen() != &monitor_of(MonitorKind::libc) || started != watching)
    return Error::make(ENOTSUP, "this run sees them by %s, which cannot serve others", started->name());
  if (kind == MonitorKind::automatic) {
    if (const Error changed = keep_to_libc()) return changed;
  }
  return memory_events::regain_sight(*watching);
}

Error import_into(void* library, MonitorKind kind) {
  const auto version = reinterpret_cast<decltype(&fi_version)>(dlsym(library, "fi_version"));
  const auto open = reinterpret_cast<decltype(&fi_open)>(dlsym(library, "fi_open"));
  if (version == nullptr || open == nullptr || FI_VERSION_LT(version(), kOldest))
    return Error::make(ENOSYS, "this libfabric cannot import a memory monitor: it takes 1.14 or later");
  if (const Error unseen = watch_by_libc(kind))
    return Error::make(ENOTSUP, "memory events cannot all be seen (%s): libfabric keeps its own monitor",
                       unseen.message);
  fid* cache = nullptr;
  if (const int failed = open(kOldest, "mr_cache", nullptr, 0, 0, &cache, nullptr))
    return Error::make(ENOSYS, "this libfabric has no registration cache to import a monitor into (%d)",
                       -failed);
  if (the_monitor.load() == nullptr) the_monitor.store(new Monitor, std::memory_order_release);
  fid_mem_monitor& monitor = the_monitor.load()->fid;
  monitor.fid.fclass = FI_CLASS_MEM_MONITOR;
  monitor.export_ops = &operations;
  if (Error full = memory_events::add(*the_monitor.load())) {
    fi_close(cache);
    return full;
  }
  const int failed = fi_import_fid(cache, &monitor.fid, 0);
  fi_close(cache);
  if (failed)
    memory_events::remove(*the_monitor.load());
  else
    memory_events::stay();
  if (failed)
    return Error::make(-failed,
                       "libfabric has a memory monitor that another library imported, or that a "
                       "registration cache is using: feed it earlier");
  return {};
}

}  // namespace

Error import(const void* function, Error (*read_wishes)(Wishes&)) {
  const HeldSignals held;
  const ProcessLock lock(importing);
  if (is_imported) return {};
  Wishes wishes;
  if (Error bad = read_wishes(wishes)) return bad;
  if (wishes.off)
    return Error::make(ECANCELED, "switched off by the user (PINION=off, or feed-libfabric=no)");
  if (wishes.monitor != MonitorKind::automatic && wishes.monitor != MonitorKind::libc)
    return Error::make(ENOTSUP, "libfabric can be fed by the memory monitor libc alone, not by %s",
                       to_string(wishes.monitor));
  if (const char* chosen = std::getenv("FI_MR_CACHE_MONITOR"))
    return Error::make(ECANCELED, "FI_MR_CACHE_MONITOR=%s chooses libfabric's memory monitor: unset it",
                       chosen);
  void* const library = hold_libfabric(function);
  if (library == nullptr) return Error::make(ENOENT, "no libfabric is loaded in this process");
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, abandon_after_fork); });
  Error error = import_into(library, wishes.monitor);
  is_imported = !error;
  return error;
}

}  // namespace pinion::fabric_monitor

#else

namespace pinion::fabric_monitor {

Error import(const void*, Error (*)(Wishes&)) {
  return Error::make(ENOSYS, "this Pinion was built without libfabric's headers");
}

}  // namespace pinion::fabric_monitor

#endif
