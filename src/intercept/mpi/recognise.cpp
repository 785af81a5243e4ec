// Which MPI the program has, found out at its first MPI call: by then some caller has loaded the library.
// Programs without MPI, launchers and shells skip this.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "engine/engine_options.h"
#include "intercept/exports.h"
#include "intercept/mpi/abi_mpich.h"
#include "intercept/mpi/abi_openmpi.h"
#include "intercept/mpi/entries.h"
#include "intercept/same_build.h"

namespace pinion::mpi {

#include "entry_names.inc"

void* g_next[sizeof kEntryNames / sizeof *kEntryNames];
const std::size_t kEntryCount = sizeof kEntryNames / sizeof *kEntryNames;

namespace {

pthread_once_t g_once = PTHREAD_ONCE_INIT;

/// The family of MPICH lacks a symbol of its own in all its members, so the library's name decides.
bool is_mpich_abi(void* library) {
  const auto version =
      reinterpret_cast<int (*)(char*, int*)>(real_dlsym()(library, "PMPI_Get_library_version"));
  if (!version) return false;
  static char text[8192];  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI's is less
  int length = 0;
  version(text, &length);
  for (const std::string_view name : {"MPICH", "Intel(R) MPI", "MVAPICH", "CRAY"})
    if (std::string_view(text).find(name) != std::string_view::npos) return true;
  return false;
}

const Front* front_for(void* library) {
  if (real_dlsym()(library, openmpi::kDistinctiveSymbol)) return &openmpi::kFront;
  return is_mpich_abi(library) ? &mpich::kFront : nullptr;
}

/// Reports the called name that is missing in all libraries.
extern "C" [[gnu::visibility("hidden"), gnu::used, noreturn]] void pinion_mpi_undefined(void** entry) {
  std::fprintf(stderr, "pinion: %s was called, but no library behind the preload defines it\n",
               kEntryNames[entry - pinion_mpi_entries]);
  std::abort();
}
extern "C" void pinion_mpi_undefined_entry();

void recognise() {
  void* library = library_that_defines("PMPI_Init");
  for (std::size_t i = 0; i < kEntryCount; ++i) {
    g_next[i] = real_dlsym()(RTLD_NEXT, kEntryNames[i]);
    // The library may have been loaded for its user alone (RTLD_LOCAL).
    if (!g_next[i] && library) g_next[i] = real_dlsym()(library, kEntryNames[i]);
  }
  const Front* front = library ? front_for(library) : nullptr;
  if (front) front->attach(library);
  // An MPI of another family is left alone, and so is any MPI where Pinion is off.
  const auto is_off = [] {
    Options options;
    return !options_from_environment(options) && options.off;
  };
  const bool off = !same_build_or_say_so() || is_off();
  for (std::size_t i = 0; i < kEntryCount; ++i) {
    void* entry = front && !off ? front->wrappers[i] : g_next[i];
    if (!g_next[i]) entry = reinterpret_cast<void*>(pinion_mpi_undefined_entry);
    __atomic_store_n(&pinion_mpi_entries[i], entry, __ATOMIC_RELEASE);
  }
  if (!front && library)
    std::fprintf(stderr,
                 "pinion: this MPI has neither Open MPI's ABI nor MPICH's: its calls are not looked at\n");
}

}  // namespace

/// The first call of any name comes here, with the program's registers saved.
extern "C" [[gnu::visibility("hidden"), gnu::used]] void pinion_mpi_recognise() {
  pthread_once(&g_once, recognise);
}

}  // namespace pinion::mpi
