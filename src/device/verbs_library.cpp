#include "device/verbs_library.h"

#include "device/own_verbs_call.h"

#ifdef PINION_HAS_VERBS
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>

namespace pinion {

int& OwnVerbsCall::depth() {
  static constinit thread_local int depth = 0;
  return depth;
}

namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

struct Loaded {
  VerbsLibrary functions;
  Error error;
};

Loaded load() {
  Loaded loaded;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.error = Error::make(
        ENOENT, "libibverbs cannot be loaded (%s); Debian: libibverbs1 ibverbs-providers", ::dlerror());
    return loaded;
  }
  std::string missing;
  const auto find = [&](auto& function, const char* name, bool needed = true) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && needed) missing = name;
  };
  VerbsLibrary& verbs = loaded.functions;
  find(verbs.get_device_list, "ibv_get_device_list");
  find(verbs.free_device_list, "ibv_free_device_list");
  find(verbs.get_device_name, "ibv_get_device_name");
  find(verbs.open_device, "ibv_open_device");
  find(verbs.close_device, "ibv_close_device");
  find(verbs.query_device, "ibv_query_device");
  find(verbs.query_port, "ibv_query_port");
  find(verbs.alloc_pd, "ibv_alloc_pd");
  find(verbs.dealloc_pd, "ibv_dealloc_pd");
  find(verbs.reg_mr, "ibv_reg_mr");
  find(verbs.dereg_mr, "ibv_dereg_mr");
  find(verbs.is_fork_initialized, "ibv_is_fork_initialized", false);
  verbs.has_alias = ::dlsym(library, "ibv_reg_mr_iova2") != nullptr;
  if (!missing.empty()) loaded.error = Error::make(ENOSYS, "libibverbs has no %s", missing.c_str());
  return loaded;
}

}  // namespace

const VerbsLibrary* verbs_library(Error& error) {
  // No static variable's guard: who waits for it may hold the dynamic linker's lock (a constructor of a
  // library that is being loaded), which load() needs. Whoever loads second has the same, and throws his
  // away.
  static std::atomic<const Loaded*> known{nullptr};
  const Loaded* loaded = known.load(std::memory_order_acquire);
  if (loaded == nullptr) {
    auto fresh = std::make_unique<const Loaded>(load());
    if (known.compare_exchange_strong(loaded, fresh.get())) loaded = fresh.release();
  }
  error = loaded->error;
  return loaded->error ? nullptr : &loaded->functions;
}

const VerbsLibrary* loaded_verbs_library(Error& error) {
  void* const there = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (there == nullptr) {
    error = Error::make(ENOENT,
                        "%s is not loaded in this process: a protection domain of a libibverbs inside "
                        "the program itself cannot be borrowed",
                        kLibrary);
    return nullptr;
  }
  const VerbsLibrary* const verbs = verbs_library(error);
  ::dlclose(there);
  return verbs;
}

}  // namespace pinion
#endif
