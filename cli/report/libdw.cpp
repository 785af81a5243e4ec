#ifdef PINION_HAS_LIBDW

#include "cli/report/libdw.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>

namespace pinion::cli {

namespace {

Libdw load() {
  Libdw loaded;
  void* const library = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  loaded.found = library != nullptr;
#define PINION_LIBDW_LOOKUP(name)                                                               \
  if (loaded.found) loaded.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  loaded.found = loaded.found && loaded.name != nullptr;
  PINION_LIBDW_FUNCTIONS(PINION_LIBDW_LOOKUP)
#undef PINION_LIBDW_LOOKUP
  if (!loaded.found)
    fmt::print(stderr,
               "pinion: call sites have no source lines: libdw.so.1 is not installed (Debian: libdw1)\n");
  return loaded;
}

}  // namespace

const Libdw& libdw() {
  static const Libdw loaded = load();
  return loaded;
}

}  // namespace pinion::cli

#endif
