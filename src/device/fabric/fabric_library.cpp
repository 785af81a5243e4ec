#include "device/fabric/fabric_library.h"

#ifdef PINION_HAS_LIBFABRIC
#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <cerrno>

#include "base/own_loading.h"
#include "device/optional_library.h"

namespace pinion {

namespace {

constexpr const char* kLibrary = "libfabric.so.1";

/// Puts back the process's signal handlers as they were at its making.
class KeptHandlers {
 public:
  KeptHandlers() {
    for (int signal = 1; signal < NSIG; ++signal)
      known_[index(signal)] = read(signal, before_[index(signal)]);
  }
  ~KeptHandlers() {
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction now {};
      const struct sigaction& before = before_[index(signal)];
      if (known_[index(signal)] && read(signal, now) && now.sa_sigaction != before.sa_sigaction)
        ::sigaction(signal, &before, nullptr);
    }
  }
  KeptHandlers(const KeptHandlers&) = delete;
  KeptHandlers& operator=(const KeptHandlers&) = delete;

 private:
  static std::size_t index(int signal) { return static_cast<std::size_t>(signal); }
  static bool read(int signal, struct sigaction& action) {
    return ::sigaction(signal, nullptr, &action) == 0;
  }

  std::array<struct sigaction, NSIG> before_{};
  std::array<bool, NSIG> known_{};  ///< the C library keeps some signals to itself
};

OptionalLibrary<FabricLibrary> load() {
  OptionalLibrary<FabricLibrary> loaded;
  const KeptHandlers handlers;
  void* const library = load_library(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    loaded.error = Error::make(ENOENT, "libfabric cannot be loaded (%s); Debian: libfabric1", ::dlerror());
    return loaded;
  }
  SymbolFinder symbols(library);
  FabricLibrary& fabric = loaded.functions;
  decltype(&fi_version) version = nullptr;
  symbols.find(version, "fi_version");
  symbols.find(fabric.getinfo, "fi_getinfo");
  symbols.find(fabric.freeinfo, "fi_freeinfo");
  symbols.find(fabric.dupinfo, "fi_dupinfo");
  symbols.find(fabric.fabric, "fi_fabric");
  if (!symbols.missing().empty())
    loaded.error = Error::make(ENOSYS, "libfabric has no %s", symbols.missing().c_str());
  else if (FI_VERSION_LT(version(), kFabricVersion))
    loaded.error = Error::make(ENOSYS, "libfabric %u.%u is too old: device fabric takes %u.%u or later",
                               FI_MAJOR(version()), FI_MINOR(version()), FI_MAJOR(kFabricVersion),
                               FI_MINOR(kFabricVersion));
  return loaded;
}

}  // namespace

const FabricLibrary* fabric_library(Error& error) { return load_once<FabricLibrary, load>(error); }

}  // namespace pinion
#endif
