#include "bench/peer_caches.h"

#ifdef PINION_HAS_GRDMA_CACHE
#include <dlfcn.h>

#include <cstdlib>

extern "C" {
#include <opal/mca/rcache/base/base.h>
#include <opal/runtime/opal.h>
}

namespace pinion::cli {

namespace {

int empty_register(void*, void*, std::size_t, mca_rcache_base_registration_t*) { return OPAL_SUCCESS; }
int empty_deregister(void*, mca_rcache_base_registration_t*) { return OPAL_SUCCESS; }

class GrdmaCache final : public PeerCache {
 public:
  bool load(bool threads, std::string& reason) {
    void* const library = ::dlopen("libopen-pal.so.40", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      reason = "libopen-pal.so.40 is not installed";
      return false;
    }
    const auto init = reinterpret_cast<decltype(&opal_init)>(::dlsym(library, "opal_init"));
    const auto open =
        reinterpret_cast<decltype(&mca_base_framework_open)>(::dlsym(library, "mca_base_framework_open"));
    const auto framework = static_cast<mca_base_framework_t*>(::dlsym(library, "opal_rcache_base_framework"));
    const auto uses_threads = static_cast<bool*>(::dlsym(library, "opal_uses_threads"));
    const auto create = reinterpret_cast<decltype(&mca_rcache_base_module_create)>(
        ::dlsym(library, "mca_rcache_base_module_create"));
    if (!init || !open || !framework || !uses_threads || !create) {
      reason = "this libopen-pal does not export its registration cache";
      return false;
    }
    // Registrations stay, as where a program has RDMA.
    ::setenv("OMPI_MCA_mpi_leave_pinned", "1", 1);
    *uses_threads = threads;  // as MPI_THREAD_MULTIPLE does; else its locks are skipped
    mca_rcache_base_resources_t resources{};
    resources.cache_name = name_;
    resources.sizeof_reg = sizeof(mca_rcache_base_registration_t);
    resources.register_mem = empty_register;
    resources.deregister_mem = empty_deregister;
    if (init(nullptr, nullptr) == OPAL_SUCCESS && open(framework, mca_base_open_flag_t{}) == OPAL_SUCCESS)
      module_ = create("grdma", nullptr, &resources);
    if (!module_) reason = "mca_rcache_base_module_create failed";
    return module_ != nullptr;
  }

  void get_and_put(Range range) override {
    mca_rcache_base_registration_t* registration = nullptr;
    if (module_->rcache_register(module_, reinterpret_cast<void*>(range.begin), range.bytes(), 0,
                                 MCA_RCACHE_ACCESS_ANY, &registration) == OPAL_SUCCESS)
      module_->rcache_deregister(module_, registration);
  }

 private:
  char name_[13] = "pinion-bench";
  mca_rcache_base_module_t* module_ = nullptr;  ///< ends with the process, as the library does
};

}  // namespace

std::unique_ptr<PeerCache> open_grdma_cache(bool threads, std::string& reason) {
  auto cache = std::make_unique<GrdmaCache>();
  if (!cache->load(threads, reason)) return nullptr;
  return cache;
}

}  // namespace pinion::cli
#else
namespace pinion::cli {
std::unique_ptr<PeerCache> open_grdma_cache(bool, std::string& reason) {
  reason = "built without Open MPI's headers of components";
  return nullptr;
}
}  // namespace pinion::cli
#endif
