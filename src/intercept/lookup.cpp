#include "intercept/lookup.h"

#include "intercept/definitions.h"
#include "intercept/exports.h"

constinit std::atomic<pinion::Dlvsym> pinion_real_dlvsym{nullptr};

namespace pinion {

extern "C" {

/// Finds it at its first use, where the relocation of the preload did not (visible_names.cpp).
[[gnu::visibility("hidden"), gnu::used]] Dlvsym pinion_find_dlvsym() {
  const auto found = reinterpret_cast<Dlvsym>(libc_definition("dlvsym"));
  pinion_real_dlvsym.store(found, std::memory_order_relaxed);
  return found;
}

/// Called for names that begin with i or cu (lookup.S).
[[gnu::visibility("hidden"), gnu::used]] Answer pinion_lookup(void* library, const char* name,
                                                              const char* version, const void* caller) {
  const Question question{library, name, version, caller};
  if (*name == 'c') return cuda::answer(question);
#ifdef PINION_VERBS_FRONT
  return verbs::answer(question);
#else
  return kAsWithoutUs;
#endif
}
}

void* look_up(void* library, const char* name, const char* version) {
  if (version == nullptr) return real_dlsym()(library, name);
  const Dlvsym known = pinion_real_dlvsym.load(std::memory_order_relaxed);
  return (known ? known : pinion_find_dlvsym())(library, name, version);
}

}  // namespace pinion
