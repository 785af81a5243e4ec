// libfabric, loaded when first asked for: everything else runs on machines that lack it. Constant once
// loaded, and never unloaded; any thread, outside of hooks. Loading it leaves the process's signal handlers
// as they were: providers of Debian's libfabric install theirs for six signals.
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fabric.h>

#include <cstdint>

#include "base/error.h"

namespace pinion {

/// Functions that libfabric exports; everything else is called through its objects.
struct FabricLibrary {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&fi_fabric) fabric = nullptr;
};

/// The version of the interface that Pinion is written to, and so the oldest libfabric that serves.
constexpr std::uint32_t kFabricVersion = FI_VERSION(1, 14);

/// Null and an error where the library is missing or too old.
const FabricLibrary* fabric_library(Error& error);

}  // namespace pinion
#endif
