// A library that stands before libcuda as limiters of GPU memory do: it has functions of its own for some
// names, gives them out in dlsym() and cuGetProcAddress, and finds libcuda's by the next dlsym(). It counts
// its calls; the count is printed at exit.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

using Word = std::uintptr_t;

int g_calls = 0;

void* library() {
  static void* const handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return handle;
}

using Dlsym = void*(void*, const char*);
Dlsym* next_dlsym() {
  static Dlsym* const next = reinterpret_cast<Dlsym*>(::dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return next;
}

[[gnu::destructor]] void report() { std::printf("layer: %d calls\n", g_calls); }

}  // namespace

extern "C" {

#define FORWARD(symbol)                                                                      \
  int symbol(Word a, Word b, Word c, Word d) {                                               \
    static auto* const next =                                                                \
        reinterpret_cast<int (*)(Word, Word, Word, Word)>(next_dlsym()(library(), #symbol)); \
    ++g_calls;                                                                               \
    return next(a, b, c, d);                                                                 \
  }
FORWARD(cuMemcpyHtoD_v2)
FORWARD(cuMemcpyDtoHAsync_v2)
FORWARD(cuMemcpyDtoHAsync_v2_ptsz)
FORWARD(cuGraphLaunch)

int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags, int* status) {
  static auto* const next = reinterpret_cast<int (*)(const char*, void**, int, std::uint64_t, int*)>(
      next_dlsym()(library(), "cuGetProcAddress_v2"));
  const int result = next(name, function, version, flags, status);
  if (result != 0 || name == nullptr) return result;
  if (std::strcmp(name, "cuMemcpyHtoD") == 0 && flags == 0)
    *function = reinterpret_cast<void*>(&cuMemcpyHtoD_v2);
  if (std::strcmp(name, "cuGetProcAddress") == 0 && version >= 12000)
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  return result;
}

void* dlsym(void* handle, const char* name) {
  if (handle == library()) {
    if (std::strcmp(name, "cuMemcpyHtoD_v2") == 0) return reinterpret_cast<void*>(&cuMemcpyHtoD_v2);
    if (std::strcmp(name, "cuGraphLaunch") == 0) return reinterpret_cast<void*>(&cuGraphLaunch);
    if (std::strcmp(name, "cuGetProcAddress_v2") == 0) return reinterpret_cast<void*>(&cuGetProcAddress_v2);
  }
  return next_dlsym()(handle, name);
}
}
