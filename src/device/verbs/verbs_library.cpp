#include "device/verbs/verbs_library.h"

#include "device/verbs/own_verbs_call.h"

namespace pinion {

int& OwnVerbsCall::depth() {
  static constinit thread_local int depth = 0;
  return depth;
}

}  // namespace pinion

#ifdef PINION_HAS_VERBS
#include <dlfcn.h>

#include <cerrno>

#include "device/optional_library.h"

namespace pinion {

namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

OptionalLibrary<VerbsLibrary> load() {
  OptionalLibrary<VerbsLibrary> loaded;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.error = Error::make(
        ENOENT, "libibverbs cannot be loaded (%s); Debian: libibverbs1 ibverbs-providers", ::dlerror());
    return loaded;
  }
  SymbolFinder symbols(library);
  VerbsLibrary& verbs = loaded.functions;
  symbols.find(verbs.get_device_list, "ibv_get_device_list");
  symbols.find(verbs.free_device_list, "ibv_free_device_list");
  symbols.find(verbs.get_device_name, "ibv_get_device_name");
  symbols.find(verbs.open_device, "ibv_open_device");
  symbols.find(verbs.close_device, "ibv_close_device");
  symbols.find(verbs.query_device, "ibv_query_device");
  symbols.find(verbs.query_port, "ibv_query_port");
  symbols.find(verbs.alloc_pd, "ibv_alloc_pd");
  symbols.find(verbs.dealloc_pd, "ibv_dealloc_pd");
  symbols.find(verbs.reg_mr, "ibv_reg_mr");
  symbols.find(verbs.dereg_mr, "ibv_dereg_mr");
  symbols.find_if_there(verbs.is_fork_initialized, "ibv_is_fork_initialized");
  symbols.find_if_there(verbs.reg_mr_iova, "ibv_reg_mr_iova2");
  if (!symbols.missing().empty())
    loaded.error = Error::make(ENOSYS, "libibverbs has no %s", symbols.missing().c_str());
  return loaded;
}

}  // namespace

const VerbsLibrary* verbs_library(Error& error) { return load_once<VerbsLibrary, load>(error); }

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
