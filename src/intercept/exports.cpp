#include "intercept/exports.h"

#include <cstdio>
#include <cstdlib>

#include "base/loaded_objects.h"

constinit std::atomic<pinion::Dlsym> pinion_real_dlsym{nullptr};

extern "C" {

/// Finds it at its first use, where the relocation of the preload did not (visible_names.cpp).
[[gnu::visibility("hidden"), gnu::used]] pinion::Dlsym pinion_find_dlsym() {
  void* const found = pinion::libc_definition("dlsym");
  if (!found) {
    std::fprintf(stderr, "pinion: the C library has no dlsym that is known\n");
    std::abort();
  }
  const auto dlsym = reinterpret_cast<pinion::Dlsym>(found);
  pinion_real_dlsym.store(dlsym, std::memory_order_relaxed);
  return dlsym;
}
}

namespace pinion {

Dlsym real_dlsym() {
  const Dlsym known = pinion_real_dlsym.load(std::memory_order_relaxed);
  return known ? known : pinion_find_dlsym();
}

void* next_definition(const char* name) {
  void* found = find_next_definition(name);
  // The C library is the program where its version is asked for: nothing stands behind the preload.
  if (!found) found = libc_definition(name);
  if (!found) {
    std::fprintf(stderr, "pinion: %s was called, but no library behind the preload defines it\n", name);
    std::abort();
  }
  return found;
}

}  // namespace pinion
