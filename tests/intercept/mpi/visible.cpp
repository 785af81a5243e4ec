// Prints which of MPI's functions a program sees: by weak references in itself, in a library that it is
// linked with, which was bound at once, and in plugins; and by dlsym(). The preload leaves the output
// unchanged.
//   visible                                      what there is at the start
//   visible LIBRARY PLUGIN                       and after LIBRARY was loaded for all, in a plugin
//   visible LIBRARY PLUGIN alone                 in a plugin that brings LIBRARY for itself alone
#include <dlfcn.h>

#include <cstdio>

using Report = void(const char* object, void* library);
extern "C" [[gnu::visibility("hidden")]] Report report;
extern "C" Report* library_report();

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOFBF, 1 << 20);
  report("program", nullptr);
  library_report()("library", nullptr);
  if (argc < 3) return 0;
  const bool alone = argc > 3;
  void* library = alone ? nullptr : dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  void* const plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (alone) library = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
  if (!plugin || !library) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  const auto plugin_report = reinterpret_cast<Report*>(dlsym(plugin, "report"));
  plugin_report("plugin", library);
  plugin_report("plugin", plugin);
  // For a library that is loaded for the plugin alone, the answer of RTLD_DEFAULT depends on the calling
  // object.
  if (alone) return 0;
  plugin_report("plugin", nullptr);
  report("program", nullptr);
  return 0;
}
