// What dlsym() answers for MPI's functions, where it is asked for them in a library: our entry for the name
// (lookup.S).
#include <dlfcn.h>

#include <cstring>

#include "intercept/exports.h"
#include "intercept/mpi/entries.h"

namespace pinion::mpi {

extern "C" [[gnu::visibility("hidden"), gnu::used]] void* pinion_mpi_lookup(void* library, const char* name) {
  void* const found = real_dlsym()(library, name);
  if (!found) return nullptr;
  for (std::size_t i = 0; i < kEntryCount; ++i)
    if (std::strcmp(kEntryNames[i], name) == 0) return pinion_mpi_names[i];
  return found;
}

}  // namespace pinion::mpi
