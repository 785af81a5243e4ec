// Which MPI the program has, found out at its first MPI call: by then some caller has loaded the library.
// Programs without MPI, launchers and shells skip this.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/own_loading.h"
#include "intercept/exports.h"
#include "intercept/mpi/abi_mpich.h"
#include "intercept/mpi/abi_openmpi.h"
#include "intercept/mpi/entries.h"
#include "intercept/same_build.h"
#include "lease/engine_options.h"

namespace pinion::mpi {

#include "entry_names.inc"

void* g_next[sizeof kEntryNames / sizeof *kEntryNames];
const std::size_t kEntryCount = sizeof kEntryNames / sizeof *kEntryNames;

namespace {

pthread_once_t g_once = PTHREAD_ONCE_INIT;

/// Whether the library that has `code` has the ABI of the MPI standard (MPI 5): all handles are pointers,
/// with values of its own. Its name and its symbols tell: MPICH's own ABI has the calls about ABIs, too,
/// beside Fortran's statuses, which the standard's leaves to another library.
bool is_standard_abi(std::string_view name, const void* code) {
  if (name.starts_with("libmpi_abi")) return true;
  return definition_beside(code, "PMPI_Abi_get_version") != nullptr &&
         definition_beside(code, "PMPI_Status_c2f") == nullptr;
}

/// Whether a library of the standard's ABI has what the front asks at each message.
bool has_questions(void* library) {
  for (const char* const name : {"PMPI_Type_size", "PMPI_Type_get_extent", "PMPI_Type_get_true_extent",
                                 "PMPI_Get_count_c", "PMPI_Test_cancelled"})
    if (real_dlsym()(library, name) == nullptr) return false;
  return true;
}

/// The family of MPICH lacks a symbol of its own in all its members, so the library's version decides.
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

/// An MPI of another family is left alone, and so is any MPI where Pinion is off.
bool is_off() {
  Options options;
  return !same_build_or_say_so() || (!options_from_environment(options) && options.off);
}

/// The wrappers for the library that has `code`; null, after a line that says why: it is left alone.
const Front* front_of(const void* code) {
  const char* const file = file_around(code);
  const std::string_view path = file;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  // It stays loaded: the entries lead into it.
  void* const library = load_library(file, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  const Front* front = nullptr;
  if (library != nullptr && !is_standard_abi(name, code))
    front = front_for(library);
  else if (library != nullptr && has_questions(library))
    front = &standard::kFront;
  if (front != nullptr)
    front->attach(library);
  else
    std::fprintf(stderr,
                 "pinion: this MPI has neither the standard's ABI nor Open MPI's or MPICH's: its calls are "
                 "not looked at\n");
  return front;
}

void recognise(const void* caller) {
  const void* const code = definition_for(caller, "PMPI_Init");
  definitions_for(caller, kEntryNames, g_next);
  const Front* const front = code != nullptr && !is_off() ? front_of(code) : nullptr;
  for (std::size_t i = 0; i < kEntryCount; ++i) {
    void* entry = front != nullptr ? front->wrappers[i] : g_next[i];
    if (!g_next[i]) entry = reinterpret_cast<void*>(pinion_mpi_undefined_entry);
    __atomic_store_n(&pinion_mpi_entries[i], entry, __ATOMIC_RELEASE);
  }
}

}  // namespace

/// The first call of any name comes here, with the program's registers saved. The caller tells which of
/// several MPIs is meant.
extern "C" [[gnu::visibility("hidden"), gnu::used]] void pinion_mpi_recognise(const void* caller) {
  static constinit std::atomic<const void*> any_caller{nullptr};
  any_caller.store(caller);
  pthread_once(&g_once, [] { recognise(any_caller.load()); });
}

}  // namespace pinion::mpi
