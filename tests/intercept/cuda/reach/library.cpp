// A libcuda.so.1 whose functions say by which name, and from where, they were called. It answers
// cuGetProcAddress by the table, as the driver does; everything else returns a number of its own.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "device/cuda/driver_api.h"

namespace {

using Word = std::uintptr_t;

enum Place {
#define CALL(symbol, ...) at_##symbol,
#include "intercept/cuda/calls.inc"
};

constexpr int kFirstResult = 5000, kNoDevice = 100;
constinit std::atomic<const void*> g_caller{nullptr};

int answer(const char* name, void** function, int version, std::uint64_t flags, int* status);

int called(int place, const void* caller, Word a, Word b, Word c, Word d, Word e) {
  g_caller = caller;
  if (place == at_cuInit) return kNoDevice;
  if (a == 0 || (place != at_cuGetProcAddress && place != at_cuGetProcAddress_v2))
    return kFirstResult + place;
  return answer(reinterpret_cast<const char*>(a), reinterpret_cast<void**>(b), static_cast<int>(c), d,
                place == at_cuGetProcAddress_v2 ? reinterpret_cast<int*>(e) : nullptr);
}

}  // namespace

extern "C" {

/// The return address of the last call.
const void* reach_last_caller() { return g_caller; }

#define CALL(symbol, ...)                                                               \
  [[gnu::visibility("protected")]] int symbol(Word a, Word b, Word c, Word d, Word e) { \
    return called(at_##symbol, __builtin_return_address(0), a, b, c, d, e);             \
  }
#include "intercept/cuda/calls.inc"

/// One of a newer driver.
int cuMemcpyOfTheFuture(Word, Word) { return g_caller = __builtin_return_address(0), kFirstResult - 1; }
// One that the front leaves alone. libcudart takes the driver's functions, and finds no device.
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }

// The front needs these besides. Attributes and captures are unknown.
#define OTHER(symbol) \
  int symbol() { return 999; }
OTHER(cuCtxGetCurrent)
OTHER(cuCtxPushCurrent_v2)
OTHER(cuCtxPopCurrent_v2)
OTHER(cuCtxGetDevice)
OTHER(cuCtxCreate_v2)
OTHER(cuMemGetInfo_v2)
OTHER(cuThreadExchangeStreamCaptureMode)
OTHER(cuStreamIsCapturing)
OTHER(cuStreamQuery)
OTHER(cuStreamGetCtx)
OTHER(cuStreamGetFlags)
OTHER(cuEventCreate)
OTHER(cuEventQuery)
OTHER(cuEventSynchronize)
OTHER(cuEventDestroy_v2)
}

namespace {

struct Name {
  const char* base;
  int since;
  bool per_thread;
  void* address;
};
const Name kNames[] = {
#define CALL(symbol, base, since, per_thread, ...) \
  {#base, since, per_thread != 0, reinterpret_cast<void*>(&symbol)},
#include "intercept/cuda/calls.inc"
};

int answer(const char* name, void** function, int version, std::uint64_t flags, int* status) {
  constexpr std::uint64_t kPerThread = 2;
  const Name* best = nullptr;
  for (const Name& row : kNames) {
    if (std::strcmp(row.base, name) != 0 || row.since > version) continue;
    if (row.per_thread && (flags & kPerThread) == 0) continue;
    if (best == nullptr || row.per_thread > best->per_thread ||
        (row.per_thread == best->per_thread && row.since > best->since))
      best = &row;
  }
  *function = best != nullptr ? best->address : nullptr;
  if (std::strcmp(name, "cuDriverGetVersion") == 0) *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  if (std::strcmp(name, "cuMemcpyOfTheFuture") == 0)
    *function = reinterpret_cast<void*>(&cuMemcpyOfTheFuture);
  if (status != nullptr) *status = *function != nullptr ? 0 : 1;
  return 0;
}

}  // namespace

/// Each function of the table in turn; null behind the last.
extern "C" void* reach_function(int place) {
  return place < static_cast<int>(std::size(kNames)) ? kNames[place].address : nullptr;
}
