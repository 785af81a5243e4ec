#include "bench/peer_caches.h"

#ifdef PINION_HAS_UCX_CACHE
#include <dlfcn.h>
#include <sys/mman.h>

extern "C" {
#include <ucs/memory/rcache.h>
}

namespace pinion::cli {

namespace {

ucs_status_t empty_register(void*, ucs_rcache_t*, void*, ucs_rcache_region_t*, uint16_t) { return UCS_OK; }
void empty_deregister(void*, ucs_rcache_t*, ucs_rcache_region_t*) {}
void empty_dump(void*, ucs_rcache_t*, ucs_rcache_region_t*, char*, size_t) {}

// The alignment of regions belongs to the cache until UCX 1.16, later to each request.
template <class Parameters>
void set_alignment(Parameters& parameters) {
  if constexpr (requires { parameters.alignment; }) {
    parameters.alignment = UCS_PGT_ADDR_ALIGN;
    parameters.max_alignment = page_size();
  }
}

template <class Get>
ucs_status_t get_region(Get get, ucs_rcache_t* cache, Range range, ucs_rcache_region_t** region) {
  void* const address = reinterpret_cast<void*>(range.begin);
  constexpr int kRights = PROT_READ | PROT_WRITE;
  if constexpr (requires { get(cache, address, range.bytes(), kRights, nullptr, region); })
    return get(cache, address, range.bytes(), kRights, nullptr, region);
  else
    return get(cache, address, range.bytes(), UCS_PGT_ADDR_ALIGN, kRights, nullptr, region);
}

class UcxCache final : public PeerCache {
 public:
  ~UcxCache() override {
    if (cache_) destroy_(cache_);
  }

  bool load(std::string& reason) {
    void* library = ::dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      reason = "libucs.so.0 is not installed";
      return false;
    }
    create_ = reinterpret_cast<decltype(create_)>(::dlsym(library, "ucs_rcache_create"));
    get_ = reinterpret_cast<decltype(get_)>(::dlsym(library, "ucs_rcache_get"));
    put_ = reinterpret_cast<decltype(put_)>(::dlsym(library, "ucs_rcache_region_put"));
    destroy_ = reinterpret_cast<decltype(destroy_)>(::dlsym(library, "ucs_rcache_destroy"));
    if (!create_ || !get_ || !put_ || !destroy_) {
      reason = "this libucs does not export its registration cache";
      return false;
    }
    static ucs_rcache_ops_t operations{};
    operations.mem_reg = empty_register;
    operations.mem_dereg = empty_deregister;
    operations.dump_region = empty_dump;
    ucs_rcache_params_t parameters{};
    parameters.region_struct_size = sizeof(ucs_rcache_region_t);
    set_alignment(parameters);
    parameters.ops = &operations;
    parameters.max_regions = ~0ul;
    parameters.max_size = ~static_cast<size_t>(0);
    if (create_(&parameters, "pinion-bench", nullptr, &cache_) != UCS_OK) {
      cache_ = nullptr;
      reason = "ucs_rcache_create failed";
      return false;
    }
    return true;
  }

  void get_and_put(Range range) override {
    ucs_rcache_region_t* region = nullptr;
    if (get_region(get_, cache_, range, &region) == UCS_OK) put_(cache_, region);
  }

 private:
  decltype(&ucs_rcache_create) create_ = nullptr;
  decltype(&ucs_rcache_get) get_ = nullptr;
  decltype(&ucs_rcache_region_put) put_ = nullptr;
  decltype(&ucs_rcache_destroy) destroy_ = nullptr;
  ucs_rcache_t* cache_ = nullptr;
};

}  // namespace

std::unique_ptr<PeerCache> open_ucx_cache(std::string& reason) {
  auto cache = std::make_unique<UcxCache>();
  if (!cache->load(reason)) return nullptr;
  return cache;
}

}  // namespace pinion::cli
#else
namespace pinion::cli {
std::unique_ptr<PeerCache> open_ucx_cache(std::string& reason) {
  reason = "built without libucx-dev";
  return nullptr;
}
}  // namespace pinion::cli
#endif
