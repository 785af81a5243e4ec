// The preload's side toward the dynamic linker: its exports, and the definitions behind them. Any thread; not
// from hooks.
#pragma once

#include "intercept/definitions.h"

#define PINION_EXPORT __attribute__((visibility("default")))

namespace pinion {

/// The next dlsym() behind the one that the preload shows (mpi/lookup.S): the dynamic linker's own, or that
/// of another library which stands before it. Its answers for RTLD_NEXT lie behind the preload.
using Dlsym = void* (*)(void*, const char*);
Dlsym real_dlsym();

/// The next definition of `name` behind this library, or else one of a library that was loaded for its user
/// alone (RTLD_LOCAL), as plugins are; null where there is none.
void* find_next_definition(const char* name);
/// Finds the definition that is to be called next. Ends the process where it is missing.
void* next_definition(const char* name);

/// The library in which that definition is, as a handle of dlopen() that is never closed; null where there is
/// none.
void* library_that_defines(const char* name);

template <class Function>
using NextFunction = FoundFunction<Function, next_definition>;

}  // namespace pinion
