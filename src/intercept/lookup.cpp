#include "intercept/lookup.h"

#include "intercept/definitions.h"
#include "intercept/exports.h"

namespace pinion {

using Dlvsym = void* (*)(void*, const char*, const char*);

extern "C" {

/// Null until it is first needed.
[[gnu::visibility("hidden"), gnu::used]] Dlvsym pinion_real_dlvsym = nullptr;

[[gnu::visibility("hidden"), gnu::used]] Dlvsym pinion_find_dlvsym() {
  return pinion_real_dlvsym = reinterpret_cast<Dlvsym>(libc_definition("dlvsym"));
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
  return (pinion_real_dlvsym ? pinion_real_dlvsym : pinion_find_dlvsym())(library, name, version);
}

}  // namespace pinion
