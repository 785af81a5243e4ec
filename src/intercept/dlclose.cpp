// dlclose: the dynamic linker unmaps with system calls of its own, which no libc hook sees.
#include "engine/engine.h"
#include "intercept/exports.h"
#include "intercept/same_build.h"
#include "intercept/verbs/callers.h"
#include "predict/call_site.h"

extern "C" PINION_EXPORT int dlclose(void* handle) {
  static const auto next = pinion::next_symbol<int (*)(void*)>("dlclose");
  if (!pinion::same_build()) return next(handle);
  // What will be unmapped is not known beforehand: while it happens, all memory counts as changing. Code that
  // went makes learnt stacks worthless as well.
  constexpr pinion::Range kEverything{0, ~pinion::Address{0}};
  // A run may begin before it is over (the library's destructors are called first), so there is a bracket in
  // any case.
  pinion::Engine::on_memory_change_begin(kEverything);
  const int result = next(handle);
  pinion::Engine::on_memory_change_end(kEverything);
  pinion::invalidate_call_sites();
  pinion::verbs::forget_callers();
  return result;
}
