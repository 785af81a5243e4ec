// A plug-in above one copy of the made-up libibverbs: it calls each function that the preload stands before.
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdlib>

#include "../made_up_verbs.h"

namespace {

namespace made_up = pinion::made_up_verbs;

constexpr std::size_t kBytes = std::size_t{64} << 10;
constexpr int kWrite = IBV_ACCESS_LOCAL_WRITE;
alignas(4096) char buffer[2 * kBytes];

bool is_registered(const ibv_mr* mr, const void* memory) {
  return mr != nullptr && mr->addr == memory && made_up::find(mr->lkey).has_value();
}

}  // namespace

/// The name of the first call whose result is wrong; null: all are right.
extern "C" const char* plugin_run() {
  const auto iova = reinterpret_cast<std::uintptr_t>(buffer);
  ibv_device** const devices = ibv_get_device_list(nullptr);
  ibv_context* const context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  ibv_pd* const pd = ibv_alloc_pd(context);
  for (int i = 0; i < 10; ++i) {
    ibv_mr* const mr = (ibv_reg_mr)(pd, buffer, kBytes, kWrite);
    if (!is_registered(mr, buffer)) return "ibv_reg_mr";
    ibv_mr* const at = (ibv_reg_mr_iova)(pd, buffer, kBytes, iova, kWrite);
    if (!is_registered(at, buffer)) return "ibv_reg_mr_iova";
    ibv_mr* const too = ibv_reg_mr_iova2(pd, buffer, kBytes, iova, kWrite);
    if (!is_registered(too, buffer)) return "ibv_reg_mr_iova2";
    if (ibv_dereg_mr(at) != 0 || ibv_dereg_mr(too) != 0) return "ibv_dereg_mr";
    if (i == 9 && ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer + kBytes, kBytes, 0) != 0)
      return "ibv_rereg_mr";
    if (i == 9 && !is_registered(mr, buffer + kBytes)) return "ibv_rereg_mr's region";
    if (ibv_dereg_mr(mr) != 0) return "ibv_dereg_mr";
  }
  // The library's own, whoever calls.
  ibv_mr* const window = (ibv_reg_mr)(pd, buffer, kBytes, kWrite | IBV_ACCESS_MW_BIND);
  if (ibv_dealloc_pd(pd) == 0) return "ibv_dealloc_pd of a used one";
  if (!is_registered(window, buffer) || ibv_dereg_mr(window) != 0) return "a window's region";
  if (ibv_dealloc_pd(pd) != 0) return "ibv_dealloc_pd";
  if (made_up::held().regions != 0) return "what is left";
  if (ibv_close_device(context) != 0) return "ibv_close_device";
  return made_up::strangers() == 0 ? nullptr : "what came to the other copy";
}

/// Registrations that the copy was asked for.
extern "C" std::uint64_t plugin_reached() { return made_up::last_number(); }
