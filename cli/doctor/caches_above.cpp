#include "cli/doctor/caches_above.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "cli/doctor/mpi_libraries.h"
#include "cli/run/front_reach.h"
#include "lease/acts.h"

namespace pinion::cli {

namespace {

constexpr const char* kUcxEnable = "UCX_RCACHE_ENABLE";
constexpr const char* kLibfabricCount = "FI_MR_CACHE_MAX_COUNT";
constexpr const char* kUcxSize = "UCX_RCACHE_MAX_SIZE";
constexpr const char* kLibfabricSize = "FI_MR_CACHE_MAX_SIZE";
const std::pair<std::string, std::string> kUcxPrices[] = {{"UCX_IB_MEM_REG_OVERHEAD", "0.05us"},
                                                          {"UCX_IB_MEM_REG_GROWTH", "0ns"}};
/// UCX's own default before 1.16.
constexpr std::uint64_t kMostUnreleased = std::uint64_t{512} << 20;

CommandLine g_command;

struct Version {
  unsigned major = 0, minor = 0;
};

/// The answer of `ask` about a library, in a process of its own: libraries start threads, patch code and
/// print as they are loaded. Empty where the library is absent.
std::optional<Version> version_of(const std::string& library, const char* function,
                                  Version (*ask)(void* function)) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    void* const handle = ::dlopen(library.c_str(), RTLD_LAZY);
    void* const asked = handle ? ::dlsym(handle, function) : nullptr;
    if (!asked) ::_exit(1);
    const Version version = ask(asked);
    ::_exit(::write(ends[1], &version, sizeof version) != sizeof version);
  }
  ::close(ends[1]);
  Version version;
  const bool told = child > 0 && ::read(ends[0], &version, sizeof version) == sizeof version;
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return told ? std::optional(version) : std::nullopt;
}

/// The library of this name in the folder of the one beside it.
std::string beside(const std::string& library, const char* name) {
  return library.substr(0, library.rfind('/') + 1) + name;
}

void find_ucx(const std::string& library, std::vector<CacheAbove>& caches) {
  const auto found = version_of(library, "ucp_get_version", [](void* function) {
    Version version;
    unsigned release = 0;
    reinterpret_cast<void (*)(unsigned*, unsigned*, unsigned*)>(function)(&version.major, &version.minor,
                                                                          &release);
    return version;
  });
  if (!found) return;
  CacheAbove ucx{fmt::format("UCX {}.{}", found->major, found->minor),
                 {{kUcxEnable, "n"}},
                 {std::begin(kUcxPrices), std::end(kUcxPrices)},
                 {kUcxSize},
                 {"UCX_RCACHE_MAX_REGIONS"},
                 "",
                 true};
  // Before 1.16 its InfiniBand part had a cache of its own.
  if (found->major == 1 && found->minor < 16) {
    ucx.off.emplace_back("UCX_IB_REG_METHODS", "direct");
    ucx.most_bytes.emplace_back("UCX_IB_RCACHE_MAX_SIZE");
    ucx.most_regions.emplace_back("UCX_IB_RCACHE_MAX_REGIONS");
  } else {
    ucx.most_unreleased = "UCX_RCACHE_MAX_UNRELEASED";
  }
  // Programs may have their modules elsewhere.
  std::vector<std::string> parts{beside(library, "libuct.so.0") + kBeside + "ucx/libuct_ib*.so.0"};
  if (const char* const modules = std::getenv("UCX_MODULE_DIR"))
    parts = {std::string(modules) + "/libuct_ib.so.0"};
  ucx.is_met = front_reach(parts) == FrontReach::reached;
  caches.push_back(std::move(ucx));
}

void find_libfabric(const std::string& library, std::vector<CacheAbove>& caches) {
  const auto found = version_of(library, "fi_version", [](void* function) {
    const std::uint32_t version = reinterpret_cast<std::uint32_t (*)()>(function)();
    return Version{version >> 16, version & 0xffff};
  });
  if (!found) return;
  CacheAbove libfabric{fmt::format("libfabric {}.{}", found->major, found->minor),
                       {{kLibfabricCount, "0"}},
                       {},
                       {kLibfabricSize},
                       {kLibfabricCount},
                       {}};
  std::vector<std::string> parts{library};  // the provider is inside, or a plug-in
  for (const char* const plugin : kVerbsPlugins) parts.push_back(library + kBeside + plugin);
  if (const char* const providers = std::getenv("FI_PROVIDER_PATH"))
    parts.push_back(std::string(providers) + "/libverbs*-fi.so");
  libfabric.is_met = front_reach(parts) == FrontReach::reached;
  caches.push_back(std::move(libfabric));
}

std::vector<CacheAbove> find_caches(const CommandLine& command) {
  std::vector<CacheAbove> caches;
  const MpiLibraries libraries = mpi_libraries(command);
  find_ucx(libraries.ucx, caches);
  find_libfabric(libraries.libfabric, caches);
  if (!libraries.may_be_open_mpi) return caches;
  // Its variable, which other libraries ignore: only its launcher could find out which Open MPI there is.
  // It registers by way of the libraries above.
  CacheAbove open_mpi{"Open MPI", {{"OMPI_MCA_mpi_leave_pinned", "0"}}, {}, {}, {}, {}};
  for (const CacheAbove& cache : caches) open_mpi.is_met |= cache.is_met;
  caches.push_back(std::move(open_mpi));
  return caches;
}

}  // namespace

void look_for_caches_of(const CommandLine& command) { g_command = command; }

const std::vector<CacheAbove>& caches_above() {
  static const std::vector<CacheAbove> caches = find_caches(g_command);
  return caches;
}

std::string limit_caches_command(std::uint64_t bytes) {
  constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * kKiB;
  const std::string size = bytes % kMiB == 0   ? fmt::format("{}m", bytes / kMiB)
                           : bytes % kKiB == 0 ? fmt::format("{}k", bytes / kKiB)
                                               : fmt::format("{}", bytes);
  return fmt::format("export {}={} {}={}", kUcxSize, size, kLibfabricSize, bytes);
}

std::vector<std::pair<std::string, std::string>> settings_of(const CacheAbove& cache) {
  std::vector<std::pair<std::string, std::string>> settings = cache.off;
  const bool is_kept = std::any_of(cache.off.begin(), cache.off.end(), [](const auto& setting) {
    const char* const users = std::getenv(setting.first.c_str());
    return users != nullptr && users != setting.second;
  });
  if (!is_kept) settings.insert(settings.end(), cache.prices.begin(), cache.prices.end());
  return settings;
}

std::string caches_off_command() {
  std::string prices;
  for (const auto& [name, value] : kUcxPrices) prices += fmt::format(" {}={}", name, value);
  return fmt::format("export {}=n{} {}=0", kUcxEnable, prices, kLibfabricCount);
}

std::string bound_of_freed(const CacheAbove& cache) {
  const std::string& name = cache.most_unreleased;
  if (name.empty() || std::getenv(name.c_str())) return {};
  return fmt::format("{}={}", name, kMostUnreleased);
}

std::map<std::string, std::uint64_t> limits_of_kept_caches(const CacheAbove& cache, const Options& options) {
  std::map<std::string, std::uint64_t> limits;
  if (!cache.off_in_mpi_only) return limits;
  const auto take = [&](const std::vector<std::string>& names, std::uint64_t limit) {
    if (limit == 0 || names.empty() || std::getenv(names.back().c_str())) return;
    limits[names.back()] = limit;
  };
  take(cache.most_bytes, options.limit);
  take(cache.most_regions, options.limit_regions);
  return limits;
}

std::string caches_to_switch_off(const Options& options) {
  std::vector<std::string> settings;
  for (const CacheAbove& cache : caches_above()) {
    if (!cache.is_met) continue;
    for (const auto& [name, value] : settings_of(cache))
      if (!std::getenv(name.c_str()))
        settings.push_back(fmt::format("{}{}={}", cache.off_in_mpi_only ? kInMpi : "", name, value));
    for (const auto& [name, limit] : limits_of_kept_caches(cache, options))
      settings.push_back(fmt::format("{}={}", name, limit));
    if (const std::string bound = bound_of_freed(cache); !bound.empty())
      settings.push_back(std::string(kKept) + bound);
  }
  return fmt::format("{}", fmt::join(settings, " "));
}

}  // namespace pinion::cli
