// The answers of dlsym() for MPI's functions (lookup.S): our entry for a name that the searched library has,
// and an error for a name of ours that all libraries lack.
#include <dlfcn.h>
#include <link.h>

#include "base/elf_object.h"
#include "intercept/exports.h"
#include "intercept/mpi/entries.h"
#include "intercept/visible_names.h"

namespace pinion::mpi {

namespace {

/// The number of a name in the table; kEntryCount for other names.
std::size_t entry_index(const char* name) {
  std::size_t i = 0;
  while (i < kEntryCount && !is_same(kEntryNames[i], name)) ++i;
  return i;
}

}  // namespace

extern "C" {

[[gnu::visibility("hidden"), gnu::used]] void* pinion_mpi_lookup(void* library, const char* name) {
  const std::size_t entry = entry_index(name);
  if (entry == kEntryCount) return real_dlsym()(library, name);
  // The program's own scope has the preload in it: the question is the next definition behind it.
  if (library == _r_debug.r_map) library = RTLD_NEXT;
  return real_dlsym()(library, name) ? pinion_mpi_names[entry] : nullptr;
}

/// Decides for RTLD_DEFAULT and RTLD_NEXT whether the answer has to be an error. Then it has been noted for
/// dlerror(): dlsym() notes no error for an indirect function that resolves to null.
[[gnu::visibility("hidden"), gnu::used]] bool pinion_mpi_lookup_fails(const char* name) {
  const std::size_t entry = entry_index(name);
  return entry != kEntryCount && is_missing(NamesOf::mpi, name) && !real_dlsym()(RTLD_NEXT, name);
}
}

}  // namespace pinion::mpi
