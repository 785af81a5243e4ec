#include "intercept/cuda/calls.h"

#include <cstring>

#include "intercept/cuda/copies.h"
#include "intercept/cuda/program_calls.h"
#include "intercept/cuda/reach.h"
#include "intercept/cuda/submissions.h"

namespace pinion::cuda {

namespace {

enum Place : std::size_t {
#define CALL(symbol, ...) at_##symbol,
#include "intercept/cuda/calls.inc"
};

}  // namespace

const char* const kCallNames[] = {
#define CALL(symbol, ...) #symbol,
#include "intercept/cuda/calls.inc"
};

#define CALL(symbol, base, since, per_thread, ...)                                             \
  {#symbol,                                                                                    \
   #base,                                                                                      \
   since,                                                                                      \
   per_thread != 0,                                                                            \
   {reinterpret_cast<void*>(&Wrapper<at_##symbol, 0, per_thread != 0, __VA_ARGS__>::function), \
    reinterpret_cast<void*>(&Wrapper<at_##symbol, 1, per_thread != 0, __VA_ARGS__>::function)}},
const Call kCalls[] = {
#include "intercept/cuda/calls.inc"
};

constinit std::array<std::array<std::atomic<void*>, kLayers>, kCallCount> g_behind{};

std::size_t call_of(const char* symbol) {
  std::size_t call = 0;
  while (call < kCallCount && std::strcmp(kCallNames[call], symbol) != 0) ++call;
  return call;
}

}  // namespace pinion::cuda
