// Leads the C++ runtime inside each of our libraries to the process's own unwinder. An exception of the
// program's, and a thread's cancellation, run through our frames by the unwinder of libgcc_s. Our copy of the
// unwinder can read that one's state, but its own tables are filled only once it unwinds by itself: so it
// ended the process where a frame of ours had something to clean up. While the process has libgcc_s, our
// runtime calls that one. A process without it has our copy: only exceptions of our own are under way then.
// We do not need libgcc_s as a library: C programs would load it at each start, and roots without it would
// run nothing.
//
// Owns the addresses of those functions. It is linked into each shared library by the linker's option wrap
// (cmake/own_runtime.cmake). Any thread, outside of hooks; allocates nothing.
#include <unwind.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/loaded_objects.h"

namespace pinion {

namespace {

/// Stands for each function: all take at most three integers or pointers, and return one or nothing.
using Word = std::uintptr_t;
using Function = Word(Word, Word, Word);

/// The functions that the runtime calls, with what each does first: only the first one of a frame, or of an
/// exception, has to look where the process's unwinder is now.
#define UNWINDER_FUNCTIONS(each)                                                                          \
  each(RaiseException, look) each(Resume, look) each(Resume_or_Rethrow, look) each(DeleteException, look) \
      each(GetLanguageSpecificData, look) each(GetRegionStart, go_on) each(GetIPInfo, go_on)              \
          each(GetTextRelBase, go_on) each(GetDataRelBase, go_on) each(SetGR, go_on) each(SetIP, go_on)

#define PLACE(name, ...) at_##name,
enum Place : std::size_t { UNWINDER_FUNCTIONS(PLACE) kFunctions };
#undef PLACE

#define NAME(name, ...) "_Unwind_" #name,
constexpr const char* kUnwinderNames[] = {UNWINDER_FUNCTIONS(NAME)};
#undef NAME

struct Unwinder {
  std::atomic<Address> base{0};  ///< of libgcc_s; written behind the functions
  std::array<std::atomic<Function*>, kFunctions> functions{};
};
constinit Unwinder g_unwinder;

_Unwind_Reason_Code stop_at_once(_Unwind_Context*, void*) { return _URC_NORMAL_STOP; }

/// Threads may do so at the same time: they find the same.
void take(const LoadedObject& libgcc) {
  const ElfObject tables = libgcc.tables();
  for (std::size_t i = 0; i < kFunctions; ++i)
    g_unwinder.functions[i].store(reinterpret_cast<Function*>(tables.function(SymbolName(kUnwinderNames[i]))),
                                  std::memory_order_relaxed);
  // A program with an unwinder of its own may have left these tables unfilled, too.
  void* const walk = tables.function(SymbolName("_Unwind_Backtrace"));
  if (walk != nullptr) reinterpret_cast<decltype(&_Unwind_Backtrace)>(walk)(stop_at_once, nullptr);
  g_unwinder.base.store(libgcc.base(), std::memory_order_release);
}

/// Each time anew: a plugin loads libgcc_s, or pthread_cancel() does, and it may go with the plugin.
void look() {
  const bool found = for_each_loaded_object([](const LoadedObject& object) {
    const char* const name = object.tables().own_name();
    if (name == nullptr || !is_same(name, "libgcc_s.so.1")) return false;
    if (g_unwinder.base.load(std::memory_order_acquire) != object.base()) take(object);
    return true;
  });
  if (found || g_unwinder.base.load(std::memory_order_relaxed) == 0) return;
  for (auto& function : g_unwinder.functions) function.store(nullptr, std::memory_order_relaxed);
  g_unwinder.base.store(0, std::memory_order_relaxed);
}

void go_on() {}

}  // namespace

}  // namespace pinion

#define LEAD(name, first)                                                                               \
  extern "C" pinion::Word __real__Unwind_##name(pinion::Word, pinion::Word, pinion::Word);              \
  extern "C" pinion::Word __wrap__Unwind_##name(pinion::Word a, pinion::Word b, pinion::Word c) {       \
    pinion::first();                                                                                    \
    const auto found = pinion::g_unwinder.functions[pinion::at_##name].load(std::memory_order_relaxed); \
    return found != nullptr ? found(a, b, c) : __real__Unwind_##name(a, b, c);                          \
  }
UNWINDER_FUNCTIONS(LEAD)
