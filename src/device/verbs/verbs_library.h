// libibverbs, loaded when first asked for: everything else runs on machines that lack it. The functions are
// the library's own, also where a preload stands in front of them. Constant once loaded, and never unloaded;
// any thread, outside of hooks.
#pragma once

#ifdef PINION_HAS_VERBS
#include <infiniband/verbs.h>

#include "base/error.h"

namespace pinion {

struct VerbsLibrary {
  decltype(&ibv_get_device_list) get_device_list = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_get_device_name) get_device_name = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  decltype(&ibv_query_port) query_port = nullptr;  ///< fills in the first part of a port's attributes
  decltype(&ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&ibv_reg_mr) reg_mr = nullptr;
  decltype(&ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&ibv_is_fork_initialized) is_fork_initialized = nullptr;  ///< null before rdma-core 35
  /// Another address for transfers than the memory's (iova). Null before rdma-core 28.
  decltype(&ibv_reg_mr_iova2) reg_mr_iova = nullptr;
};

/// Null and an error where the library is missing or too old.
const VerbsLibrary* verbs_library(Error& error);

/// Returns the library only if the process has loaded it already.
const VerbsLibrary* loaded_verbs_library(Error& error);

}  // namespace pinion
#endif
