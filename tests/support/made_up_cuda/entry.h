// How entry points are written. Owns nothing.
#pragma once

#include "support/made_up_cuda/world.h"

#define MADE_UP_LIST(...) __VA_ARGS__

/// Defines the entry point `name` and the one of the per-thread default stream, `name` with a suffix. The
/// body follows; it has `call` and `meaning`, what a null stream is. Parameters and arguments are in
/// parentheses.
#define MADE_UP_PAIR(name, suffix, parameters, arguments)                   \
  namespace {                                                               \
  Result name##_body(Call& call, Default meaning, MADE_UP_LIST parameters); \
  }                                                                         \
  extern "C" Result name(MADE_UP_LIST parameters) {                         \
    MADE_UP_CALL(Need::kContext);                                           \
    return name##_body(call, Default::kLegacy, MADE_UP_LIST arguments);     \
  }                                                                         \
  extern "C" Result name##suffix(MADE_UP_LIST parameters) {                 \
    MADE_UP_CALL(Need::kContext);                                           \
    return name##_body(call, Default::kPerThread, MADE_UP_LIST arguments);  \
  }                                                                         \
  namespace {                                                               \
  Result name##_body([[maybe_unused]] Call& call, [[maybe_unused]] Default meaning, MADE_UP_LIST parameters)

/// Ends a pair's body.
#define MADE_UP_END }

/// Finds the stream of a handle in the body of a pair, or returns an error.
#define MADE_UP_STREAM(found, handle)                       \
  const StreamPointer found = call.stream(handle, meaning); \
  if (!found) return kInvalidHandle;                        \
  if (found->context->sticky) return found->context->sticky
