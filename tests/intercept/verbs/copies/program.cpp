// Loads plug-ins, each for itself, and runs them by turns: `verbs_copies_program PLUG-IN...`. Prints for each
// the call that went wrong, and how many registrations reached its copy of libibverbs.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

struct PlugIn {
  const char* (*run)();
  std::uint64_t (*reached)();
};

}  // namespace

int main(int count, char** arguments) {
  std::vector<PlugIn> all;
  for (int i = 1; i < count; ++i) {
    void* const library = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::puts(dlerror()), 1;
    all.push_back({reinterpret_cast<const char* (*)()>(dlsym(library, "plugin_run")),
                   reinterpret_cast<std::uint64_t (*)()>(dlsym(library, "plugin_reached"))});
  }
  for (int round = 0; round < 2; ++round)
    for (const PlugIn& one : all) {
      const char* const wrong = one.run();
      std::printf("%s, %llu reached\n", wrong != nullptr ? wrong : "right",
                  static_cast<unsigned long long>(one.reached()));
      std::fflush(stdout);
    }
  return 0;
}
