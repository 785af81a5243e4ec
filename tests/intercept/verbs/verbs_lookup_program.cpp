// Looks libibverbs' functions up, as NCCL does, and registers a buffer ten times by each way. Prints how many
// keys it got of each.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace {

void* g_library = nullptr;

template <class F>
F found(void* function, const char* name) {
  if (function != nullptr) return reinterpret_cast<F>(function);
  std::printf("%s is missing\n", name);
  std::exit(1);
}
/// `version`: null for dlsym().
template <class F>
F look_up(const char* name, const char* version) {
  return found<F>(version != nullptr ? ::dlvsym(g_library, name, version) : ::dlsym(g_library, name), name);
}

}  // namespace

int main() {
  g_library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (g_library == nullptr) return std::puts(::dlerror()), 1;
  int count = 0;
  ibv_device** const devices =
      look_up<decltype(&ibv_get_device_list)>("ibv_get_device_list", nullptr)(&count);
  ibv_context* const context = look_up<decltype(&ibv_open_device)>("ibv_open_device", nullptr)(devices[0]);
  ibv_pd* const pd = look_up<decltype(&ibv_alloc_pd)>("ibv_alloc_pd", "IBVERBS_1.1")(context);
  void* const memory = std::aligned_alloc(4096, 1 << 20);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);

  for (const char* const version : {static_cast<const char*>(nullptr), "IBVERBS_1.1"}) {
    const auto reg_mr = look_up<ibv_mr* (*)(ibv_pd*, void*, std::size_t, int)>("ibv_reg_mr", version);
    const auto dereg_mr = look_up<int (*)(ibv_mr*)>("ibv_dereg_mr", version);
    std::set<std::uint32_t> keys;
    for (int i = 0; i < 10; ++i) {
      ibv_mr* const mr = reg_mr(pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE);
      keys.insert(mr->lkey);
      if (dereg_mr(mr) != 0) return 1;
    }
    std::printf("%zu ", keys.size());
  }
  // With relaxed ordering, as NCCL requests.
  for (const char* const version : {static_cast<const char*>(nullptr), "IBVERBS_1.8"}) {
    const auto reg_mr = look_up<ibv_mr* (*)(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned)>(
        "ibv_reg_mr_iova2", version);
    const auto dereg_mr = look_up<int (*)(ibv_mr*)>("ibv_dereg_mr", "IBVERBS_1.1");
    std::set<std::uint32_t> keys;
    for (int i = 0; i < 10; ++i) {
      ibv_mr* const mr =
          reg_mr(pd, memory, 1 << 20, address, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
      keys.insert(mr->lkey);
      if (dereg_mr(mr) != 0) return 1;
    }
    std::printf("%zu ", keys.size());
  }
  std::puts("");
  return 0;
}
