// Uses a library with variables of libcuda's names (variables.cpp), which it is linked with, or loads:
//   variables_program [LIBRARY [BEFORE]]   BEFORE is loaded first
// Prints the result of its call, and whether a look-up of the name in it finds the variable.
#include <dlfcn.h>

#include <cstdio>

#ifdef LINKED
extern "C" int call_by_variables();
#endif

int main(int argc, char** argv) {
  if (argc > 2) ::dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  void* const library = argc > 1 ? ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
#ifdef LINKED
  int (*call)() = call_by_variables;
#else
  if (library == nullptr) return std::puts(::dlerror()), 2;
  const auto call = reinterpret_cast<int (*)()>(::dlsym(library, "call_by_variables"));
#endif
  void* const scope = library != nullptr ? library : RTLD_DEFAULT;
  const void* const* const variable = reinterpret_cast<void**>(::dlsym(scope, "cuMemcpyHtoD_v2"));
  const bool own = variable != nullptr && *variable == nullptr;
  const int result = call();
  std::printf("%d, %s\n", result, own && *variable != nullptr ? "own" : "another's");
  return 0;
}
