// The preload's side toward the dynamic linker: its exports, and the definitions behind them. Any thread; not
// from hooks.
#pragma once

#include <atomic>

#include "intercept/definitions.h"
#include "intercept/scopes.h"

#define PINION_EXPORT __attribute__((visibility("default")))

namespace pinion {

/// The next dlsym() behind the one that the preload shows (mpi/lookup.S): the dynamic linker's own, or that
/// of another library which stands before it. Its answers for RTLD_NEXT lie behind the preload.
using Dlsym = void* (*)(void*, const char*);
Dlsym real_dlsym();

/// Finds the definition that is to be called next, whoever calls. Ends the process where it is missing.
void* next_definition(const char* name);

template <class Function>
using NextFunction = FoundFunction<Function, next_definition>;

}  // namespace pinion

/// Found when the preload is relocated, before anybody asks; null until then. (mpi/lookup.S reads it as a
/// pointer.)
extern "C" [[gnu::visibility("hidden")]] constinit std::atomic<pinion::Dlsym> pinion_real_dlsym;
