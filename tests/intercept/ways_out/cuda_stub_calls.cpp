// The functions of the CUDA front's table that cuda_stub.cpp does not define, and the table of all by the
// names that cuGetProcAddress knows.
#include <cstring>

#include "cuda_stub.h"

namespace {
struct Form {
  const char* base;
  int since;
  bool per_thread;
  void* function;
};
}  // namespace

// Programs pass the arguments of the driver's own functions.
#define CALL(symbol, ...) \
  extern "C" [[gnu::weak]] int symbol() { return leave_if_armed(#symbol), 0; }
#include "intercept/cuda/calls.inc"

namespace {
const Form kForms[] = {
#define CALL(symbol, base, since, per_thread, ...) \
  {#base, since, per_thread != 0, reinterpret_cast<void*>(&symbol)},
#include "intercept/cuda/calls.inc"
};
}  // namespace

void* cuda_function(const char* base, int version, bool per_thread) {
  const Form* best = nullptr;
  for (const Form& form : kForms) {
    if (form.since > version || (form.per_thread && !per_thread) || std::strcmp(form.base, base) != 0)
      continue;
    if (best == nullptr || form.per_thread > best->per_thread ||
        (form.per_thread == best->per_thread && form.since > best->since))
      best = &form;
  }
  return best != nullptr ? best->function : nullptr;
}
