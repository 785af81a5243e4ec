#include "caches_above.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>

namespace pinion::cli {

namespace {

void find_ucx(std::vector<CacheAbove>& caches) {
  void* const library = ::dlopen("libucp.so.0", RTLD_LAZY | RTLD_NODELETE);
  if (!library) return;
  const auto get_version =
      reinterpret_cast<void (*)(unsigned*, unsigned*, unsigned*)>(::dlsym(library, "ucp_get_version"));
  if (!get_version) return;
  unsigned major = 0, minor = 0, release = 0;
  get_version(&major, &minor, &release);
  CacheAbove ucx{fmt::format("UCX {}.{}", major, minor), {{"UCX_RCACHE_ENABLE", "n"}}};
  // Before 1.16 its InfiniBand part had a cache of its own.
  if (major == 1 && minor < 16) ucx.off.emplace_back("UCX_IB_REG_METHODS", "direct");
  caches.push_back(std::move(ucx));
}

void find_libfabric(std::vector<CacheAbove>& caches) {
  void* const library = ::dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NODELETE);
  if (!library) return;
  const auto get_version = reinterpret_cast<std::uint32_t (*)()>(::dlsym(library, "fi_version"));
  if (!get_version) return;
  const std::uint32_t version = get_version();
  caches.push_back(
      {fmt::format("libfabric {}.{}", version >> 16, version & 0xffff), {{"FI_MR_CACHE_MAX_COUNT", "0"}}});
}

}  // namespace

std::vector<CacheAbove> caches_above() {
  std::vector<CacheAbove> caches;
  find_ucx(caches);
  find_libfabric(caches);
  // Asked by its variable, which nobody else reads: which Open MPI there is, only its launcher knows.
  caches.push_back({"Open MPI", {{"OMPI_MCA_mpi_leave_pinned", "0"}}});
  return caches;
}

std::vector<std::pair<std::string, std::string>> variables_to_set(const std::vector<CacheAbove>& caches) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const CacheAbove& cache : caches)
    for (const auto& variable : cache.off)
      if (!std::getenv(variable.first.c_str())) variables.push_back(variable);
  return variables;
}

}  // namespace pinion::cli
