// Which of MPI's functions an object sees. Part of the program (visible.cpp), of a library that it is linked
// with, and of plugins.
#include <dlfcn.h>

#include <cstdio>
#include <iterator>

#include "entry_names.inc"

extern "C" {
[[gnu::visibility("hidden")]] extern void* weak_references[];
[[gnu::weak]] int MPI_Init(int*, char***);
[[gnu::weak]] int MPI_Allreduce_c(const void*, void*, long long, void*, void*, void*);
}

namespace {

/// The names that the object's constructor sees.
bool seen_by_constructor[std::size(kEntryNames)];

[[gnu::constructor]] void look() {
  for (std::size_t i = 0; i < std::size(kEntryNames); ++i)
    seen_by_constructor[i] = weak_references[i] != nullptr;
}

void looked_up(const char* object, const char* how, void* library) {
  for (const char* name : kEntryNames) {
    dlerror();
    if (dlsym(library, name)) {
      std::printf("%s: %s by %s\n", object, name, how);
    } else if (!dlerror()) {
      std::printf("%s: null without an error for %s by %s\n", object, name, how);
    }
  }
}

}  // namespace

extern "C" [[gnu::visibility(VISIBILITY)]] void report(const char* object, void* library) {
  for (std::size_t i = 0; i < std::size(kEntryNames); ++i) {
    if (weak_references[i]) std::printf("%s: %s by weak reference\n", object, kEntryNames[i]);
    if (seen_by_constructor[i]) std::printf("%s: %s in a constructor\n", object, kEntryNames[i]);
  }
  std::printf("%s: MPI_Init %d, MPI_Allreduce_c %d\n", object, MPI_Init != nullptr,
              MPI_Allreduce_c != nullptr);
  if (library) {
    looked_up(object, "handle", library);
  } else {
    looked_up(object, "RTLD_DEFAULT", RTLD_DEFAULT);
    looked_up(object, "RTLD_NEXT", RTLD_NEXT);
    void* const program = dlopen(nullptr, RTLD_LAZY);
    looked_up(object, "the program's handle", program);
    dlclose(program);
  }
}
