// Takes one road to each of the driver's functions, calls it, and prints how many calls came to the library
// from the program itself, and how many from elsewhere; and what went wrong.
//   reach_program ROAD [PLUGIN]
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "intercept/cuda/reach/table.h"

namespace {

using reach::Name;
using Word = std::uintptr_t;
using Function = int(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
using Table = const Name*(std::size_t* count);

int g_own = 0, g_elsewhere = 0, g_faults = 0;

std::string file_of(const void* code) {
  Dl_info info{};
  return ::dladdr(code, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

void fault(const char* what, const char* name) {
  if (++g_faults <= 5) std::printf("%s: %s\n", name, what);
}

const void* (*g_last_caller)() = nullptr;

void call(const Name& name, std::size_t place, void* address) {
  if (address == nullptr) return fault("is missing", name.symbol);
  const int result = reinterpret_cast<Function*>(address)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  if (result != reach::result_of(name, place)) return fault("is another function", name.symbol);
  const bool own = file_of(g_last_caller()) == file_of(reinterpret_cast<const void*>(&call));
  own ? ++g_own : ++g_elsewhere;
}

template <class Find>
void for_each(Find find) {
  std::size_t place = 0;
  for (const Name& name : reach::kNames) call(name, place++, find(name));
}

/// Asks cuGetProcAddress, as the latest version that finds this form.
template <class Get>
void* proc_address(const Name& name, Get get) {
  void* found = nullptr;
  const int version = name.per_thread && name.since < 7000 ? 7000 : name.since;
  return get(name.base, &found, version, name.per_thread ? 2u : 0u) == 0 ? found : nullptr;
}

void by_proc_address(void* library, bool with_status) {
  using Get = int(const char*, void**, int, std::uint64_t);
  using GetWithStatus = int(const char*, void**, int, std::uint64_t, int*);
  void* address = ::dlsym(library, with_status ? "cuGetProcAddress_v2" : "cuGetProcAddress");
  // Once more by itself, as libcudart does.
  const int version = with_status ? 12000 : 11030;
  if (with_status)
    reinterpret_cast<GetWithStatus*>(address)("cuGetProcAddress", &address, version, 0, nullptr);
  else
    reinterpret_cast<Get*>(address)("cuGetProcAddress", &address, version, 0);
  for_each([&](const Name& name) {
    return proc_address(name, [&](const char* base, void** found, int since, std::uint64_t flags) {
      int status = -1;
      if (!with_status) return reinterpret_cast<Get*>(address)(base, found, since, flags);
      const int result = reinterpret_cast<GetWithStatus*>(address)(base, found, since, flags, &status);
      if (status != 0) fault("has a status", name.symbol);
      return result;
    });
  });
}

/// Without libcuda: nothing is seen.
int nothing() {
  for (const Name& name : reach::kNames) {
    if (name.address != nullptr) fault("is seen by a weak reference", name.symbol);
    for (void* const scope : {RTLD_DEFAULT, RTLD_NEXT, ::dlopen(nullptr, RTLD_LAZY)}) {
      ::dlerror();
      if (::dlsym(scope, name.symbol) != nullptr) fault("is found", name.symbol);
      if (::dlerror() == nullptr) fault("leaves no error", name.symbol);
      if (::dlvsym(scope, name.symbol, "V") != nullptr) fault("is found with a version", name.symbol);
    }
  }
  std::printf("%d faults\n", g_faults);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string road = argc > 1 ? argv[1] : "";
  if (road == "nothing") return nothing();
  const bool is_global = road == "default" || road == "unknown by scope";
  const int scope = is_global ? RTLD_GLOBAL : RTLD_LOCAL;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | scope);
  if (library == nullptr) return std::puts(::dlerror()), 2;
  g_last_caller = reinterpret_cast<const void* (*)()>(::dlsym(library, "reach_last_caller"));

  ::dlerror();
  if (road == "linked") for_each([](const Name& name) { return name.address; });
  if (road == "dlsym") for_each([&](const Name& name) { return ::dlsym(library, name.symbol); });
  if (road == "dlvsym")
    for_each([&](const Name& name) { return ::dlvsym(library, name.symbol, "libcuda.so.1"); });
  if (road == "default") for_each([&](const Name& name) { return ::dlsym(RTLD_DEFAULT, name.symbol); });
  if (road == "v1") by_proc_address(library, false);
  if (road == "v2") by_proc_address(library, true);
  if (road == "plugin") {
    void* const plugin = ::dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) return std::puts(::dlerror()), 2;
    std::size_t count = 0;
    const Name* const names = reinterpret_cast<Table*>(::dlsym(plugin, "reach_names"))(&count);
    for (std::size_t i = 0; i < count; ++i) call(names[i], i, names[i].address);
  }
  if (road == "unknown" || road == "unknown by scope") {
    void* const where = is_global ? RTLD_DEFAULT : library;
    const auto future = reinterpret_cast<Function*>(::dlsym(where, "cuMemcpyOfTheFuture"));
    if (future(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) != reach::kFirstResult - 1) ++g_faults;
    if (::dlsym(library, "cuMemcpyOfNobody") != nullptr || ::dlerror() == nullptr) ++g_faults;
  }
  if (const char* const error = ::dlerror()) fault(error, "left");
  std::printf("%d own, %d elsewhere, %d faults\n", g_own, g_elsewhere, g_faults);
  return 0;
}
