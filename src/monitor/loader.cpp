#include "monitor/loader.h"

#include <gnu/libc-version.h>
#include <link.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/loaded_objects.h"
#include "base/process_mutex.h"
#include "monitor/code_patch.h"
#include "monitor/patch_exposure.h"

namespace pinion {

namespace {

constinit ProcessMutex control;
CodePatch patch GUARDED_BY(control);
constinit HookCallbacks callbacks;  // written before the patch, and while announcements are off

const r_debug* debug = nullptr;
bool namespaces_are_visible = false;

std::atomic<bool> watching{false};
thread_local bool testing = false;  ///< this thread announces by itself, outside of the dynamic linker's lock
std::atomic<void (*)()> displaced{nullptr};  ///< a patch of other code, called next
std::atomic<int> state{r_debug::RT_CONSISTENT};
std::atomic<std::uint64_t> announcements{0};
std::atomic<std::uint64_t> loads{0};
std::atomic<bool> loads_are_reported{false};

void call(void (*callback)()) {
  if (callback != nullptr) callback();
}

/// The dynamic linker calls this instead of its empty function. It holds its lock: one thread at a time.
void announced() {
  const int caller_errno = errno;
  announcements.fetch_add(1, std::memory_order_relaxed);
  if (const auto next = displaced.load(std::memory_order_acquire)) next();
  if (testing || !watching.load(std::memory_order_acquire)) return;
  const int now = debug->r_state;
  const int before = state.exchange(now, std::memory_order_seq_cst);
  // Nothing has changed here: of another namespace, or a library that was loaded already.
  const bool elsewhere = now == r_debug::RT_CONSISTENT && before == r_debug::RT_CONSISTENT;
  if (elsewhere && namespaces_are_visible && debug->r_version < 2) return;
  const bool loaded = elsewhere || (now == r_debug::RT_CONSISTENT && before == r_debug::RT_ADD);
  if (loaded) loads.fetch_add(1, std::memory_order_seq_cst);
  const bool reported = loaded && loads_are_reported.load(std::memory_order_relaxed);
  if (now == r_debug::RT_DELETE) note_restored_entries();  // destructors have run; no code has gone yet
  if (now == r_debug::RT_DELETE || elsewhere || reported) call(callbacks.exposed);
  if (before == r_debug::RT_DELETE || elsewhere) call(callbacks.unloaded);
  errno = caller_errno;
}

/// The dynamic linker's own record, where the program's dynamic section points: that of <link.h> may have
/// been copied into the program.
const r_debug* find_debug() {
  const r_debug* found = nullptr;
  for_each_loaded_object([&](const LoadedObject& program) {
    for (const ElfW(Dyn)* entry = program.dynamic(); entry != nullptr && entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == DT_DEBUG) found = reinterpret_cast<const r_debug*>(entry->d_un.d_ptr);
    return true;  // the program comes first
  });
  return found;
}

/// Checks the record's version: from glibc 2.35 on it shows whether there is another namespace.
bool shows_namespaces() {
  int major = 0, minor = 0;
  std::sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor);
  return major > 2 || minor >= 35;
}

Error prepare() {
  debug = find_debug();
  namespaces_are_visible = shows_namespaces();
  if (debug == nullptr || debug->r_brk == 0)
    return Error::make(ENOENT, "the dynamic linker does not announce loaded libraries");
  return {};
}

const Error& prepared() {
  static const Error missing = prepare();
  return missing;
}

Error put_in_place() REQUIRES(control) {
  if (prepared()) return prepared();
  if (patch.in_place()) return {};
  if (Error error = patch.aim(reinterpret_cast<void*>(debug->r_brk), "_dl_debug_state")) return error;
  if (patch.in_place()) return {};  // others have put back what they displaced
  displaced.store(reinterpret_cast<void (*)()>(patch.displaced_target()), std::memory_order_release);
  return patch.apply(reinterpret_cast<const void*>(announced));
}

}  // namespace

Error watch_loader(const HookCallbacks& called) {
  const ProcessLock lock(control);
  const Error error = put_in_place();
  if (watching.load(std::memory_order_relaxed)) return error;
  callbacks = called;
  if (error) return error;
  // Another thread may be loading just now.
  state.store(debug->r_state, std::memory_order_relaxed);
  watching.store(true, std::memory_order_release);
  return {};
}

Error rewatch_loader() {
  const ProcessLock lock(control);
  return watching.load(std::memory_order_relaxed) ? put_in_place()
                                                  : Error::make(ENOTCONN, "the loader is not watched");
}

void unwatch_loader() {
  const ProcessLock lock(control);
  watching.store(false, std::memory_order_release);
  // An error means that another patch lies on top: its announcements are passed on.
  static_cast<void>(patch.restore());
  state.store(r_debug::RT_CONSISTENT, std::memory_order_relaxed);
}

bool loader_watched() {
  const ProcessLock lock(control);
  return watching.load(std::memory_order_relaxed) && patch.in_place();
}

Error test_loader() {
  const ProcessLock lock(control);
  if (!patch.is_applied()) return Error::make(ENOMSG, "its announcements are not redirected");
  const std::uint64_t before = announcements.load(std::memory_order_relaxed);
  testing = true;
  reinterpret_cast<void (*)()>(debug->r_brk)();
  testing = false;
  if (announcements.load(std::memory_order_relaxed) != before) return {};
  return Error::make(ENOMSG, "the announcement did not arrive");
}

bool loader_unloading() { return state.load(std::memory_order_seq_cst) == r_debug::RT_DELETE; }

void report_loads(bool on) { loads_are_reported.store(on, std::memory_order_seq_cst); }

const void* loader_code() { return prepared() ? nullptr : reinterpret_cast<const void*>(debug->r_brk); }

std::uint64_t loads_announced() { return loads.load(std::memory_order_seq_cst); }

}  // namespace pinion
