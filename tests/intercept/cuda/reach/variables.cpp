// A library that loads libcuda by itself, and keeps its functions in variables of their names. Prints
// nothing; the functions tell whether the variables are its own, and what they lead to.
#include <dlfcn.h>

#include <cstdint>

namespace {
using Word = std::uintptr_t;
using Function = int(Word, Word, Word, Word, Word);
}  // namespace

extern "C" {

Function* cuMemcpyHtoD_v2 = nullptr;
Function* cuGraphLaunch = nullptr;
Function* const* const variable_of_launch = &cuGraphLaunch;

/// The result of a copy; -1: the variables are not its own.
int call_by_variables() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || cuMemcpyHtoD_v2 != nullptr || *variable_of_launch != nullptr) return -1;
  cuMemcpyHtoD_v2 = reinterpret_cast<Function*>(::dlsym(library, "cuMemcpyHtoD_v2"));
  cuGraphLaunch = reinterpret_cast<Function*>(::dlsym(library, "cuGraphLaunch"));
  if (*variable_of_launch != cuGraphLaunch) return -1;
  return cuMemcpyHtoD_v2(0, 0, 0, 0, 0);
}
}
