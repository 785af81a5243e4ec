// libfabric: before a program opens its first fabric, and so before any domain with a registration cache,
// Pinion becomes the memory monitor of that cache (monitor/fabric_monitor.h). By then libfabric has read its
// settings. A library that imports a monitor of its own has done so (Open MPI, right after it has looked for
// providers): that monitor stays. Programs that look these functions up with dlsym bypass this;
// pinion_feed_libfabric() is for them.
//
// The versions are those that libfabric gives these functions. fi_fabric@FABRIC_1.0, of programs built before
// 2017, passes by.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "intercept/exports.h"
#include "intercept/same_build.h"
#include "process/feed_libfabric.h"

namespace {

using pinion::NextFunction;

constinit NextFunction<int(void*, void**, void*)> next_fabric{"fi_fabric"};
constinit NextFunction<int(void*, void**, std::uint64_t, void*)> next_fabric2{"fi_fabric2"};
constinit NextFunction<int(std::uint32_t, const char*, void*, std::size_t, std::uint64_t, void**, void*)>
    next_open{"fi_open"};

/// Another library has opened the cache to import its own monitor. Asking for the same would fail, and
/// libfabric would warn of it.
std::atomic<bool> somebody_imports{false};

void feed(const void* libfabric) {
  // After a refusal libfabric works as without Pinion; `pinion doctor` prints the reason.
  static const bool asked = [&] {
    return !somebody_imports.load() && pinion::same_build_or_say_so() && !pinion::feed_libfabric(libfabric);
  }();
  static_cast<void>(asked);
}

}  // namespace

extern "C" {

PINION_EXPORT int fi_fabric(void* attributes, void** fabric, void* context) {
  const auto next = next_fabric.get();
  feed(reinterpret_cast<const void*>(next));
  return next(attributes, fabric, context);
}

PINION_EXPORT int fi_fabric2(void* info, void** fabric, std::uint64_t flags, void* context) {
  const auto next = next_fabric2.get();
  feed(reinterpret_cast<const void*>(next));
  return next(info, fabric, flags, context);
}

PINION_EXPORT int fi_open(std::uint32_t version, const char* name, void* attributes, std::size_t bytes,
                          std::uint64_t flags, void** object, void* context) {
  if (name != nullptr && std::strcmp(name, "mr_cache") == 0) somebody_imports.store(true);
  return next_open.get()(version, name, attributes, bytes, flags, object, context);
}
}
