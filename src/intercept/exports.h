// What the preload shows to the dynamic linker, and how it finds what it stands before.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#define PINION_EXPORT __attribute__((visibility("default")))

namespace pinion {

/// The next definition of `name` behind this library. Ends the process when there is none: it would be called
/// next.
template <class F>
F next_symbol(const char* name) {
  void* found = ::dlsym(RTLD_NEXT, name);
  if (!found) {
    std::fprintf(stderr, "pinion: %s was called, but no library behind the preload defines it\n", name);
    std::abort();
  }
  return reinterpret_cast<F>(found);
}

}  // namespace pinion
