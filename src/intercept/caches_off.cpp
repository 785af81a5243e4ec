#include "intercept/caches_off.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/acts.h"
#include "engine/engine_options.h"
#include "intercept/same_build.h"

namespace pinion {

namespace {

/// Calls `take(name, value, in_mpi)` for each setting that this process is to make. `pinion run` proved that
/// the libraries' registrations lead into the front; whether a NIC registers, and whether a GPU is there, is
/// known on each node only.
template <class Take>
void for_each_setting(Take&& take) {
  const char* const named = std::getenv(kCachesOffVariable);
  if (named == nullptr || *named == '\0' || !same_build()) return;
  Options options;
  if (options_from_environment(options) || options.off || !may_switch_caches_off(options)) return;
  std::string_view rest = named;
  while (!rest.empty()) {
    std::string_view setting = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), setting.size() + 1));
    const bool in_mpi = setting.starts_with(kInMpi);
    if (in_mpi) setting.remove_prefix(kInMpi.size());
    const auto equals = setting.find('=');
    if (equals == std::string_view::npos) continue;
    take(std::string(setting.substr(0, equals)), std::string(setting.substr(equals + 1)), in_mpi);
  }
}

[[gnu::constructor]] void switch_caches_off() {
  for_each_setting([](const std::string& name, const std::string& value, bool in_mpi) {
    if (!in_mpi) ::setenv(name.c_str(), value.c_str(), 0);
  });
}

}  // namespace

CachesOffInMpi::CachesOffInMpi() {
  for_each_setting([this](const std::string& name, const std::string& value, bool in_mpi) {
    if (in_mpi && std::getenv(name.c_str()) == nullptr && ::setenv(name.c_str(), value.c_str(), 0) == 0)
      set_.push_back(name);
  });
}

CachesOffInMpi::~CachesOffInMpi() {
  for (const std::string& name : set_) ::unsetenv(name.c_str());
}

}  // namespace pinion
