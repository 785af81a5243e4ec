#include "intercept/exports.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "intercept/definitions.h"

extern "C" {

/// Null until it is first needed. It may be that of a library which stands before the C library's too, as
/// programs would find it without us. Threads may find it at the same time: they find the same.
/// (mpi/lookup.S reads it as a pointer.)
[[gnu::visibility("hidden"), gnu::used]] constinit std::atomic<pinion::Dlsym> pinion_real_dlsym{nullptr};

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

namespace {

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* list) {
        if (*info->dlpi_name) static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

const void* library_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) ? info.dli_fbase : nullptr;
}

void* definition_in_any_library(const char* name) {
  const void* const here = library_of(reinterpret_cast<const void*>(&next_definition));
  for (const std::string& library : loaded_libraries()) {
    void* handle = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) continue;
    void* found = real_dlsym()(handle, name);
    // This holds the library where the definition is: it is called after this.
    if (found && library_of(found) != here) return found;
    ::dlclose(handle);
  }
  return nullptr;
}

}  // namespace

void* find_next_definition(const char* name) {
  void* found = real_dlsym()(RTLD_NEXT, name);
  return found ? found : definition_in_any_library(name);
}

void* library_that_defines(const char* name) {
  const void* found = find_next_definition(name);
  Dl_info info{};
  if (!found || !::dladdr(found, &info)) return nullptr;
  return ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

void* next_definition(const char* name) {
  void* found = find_next_definition(name);
  if (!found) {
    std::fprintf(stderr, "pinion: %s was called, but no library behind the preload defines it\n", name);
    std::abort();
  }
  return found;
}

}  // namespace pinion
