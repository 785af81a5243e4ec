// Switches off the registration caches of the libraries above the front, before the program's main(): there
// the libraries read their variables. `pinion run` proved that their registrations lead into the front, and
// named the variables; whether a NIC registers, and whether a GPU is there, is known on each node only. The
// user's own variables stay.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/acts.h"
#include "engine/engine_options.h"
#include "intercept/same_build.h"

namespace pinion::verbs {

namespace {

[[gnu::constructor]] void switch_caches_off() {
  const char* const named = std::getenv(kCachesOffVariable);
  if (named == nullptr || *named == '\0' || !same_build()) return;
  Options options;
  if (options_from_environment(options) || options.off || !may_switch_caches_off(options)) return;
  std::string_view rest = named;  // "NAME=VALUE NAME=VALUE"
  while (!rest.empty()) {
    const std::string setting(rest.substr(0, rest.find(' ')));
    rest.remove_prefix(std::min(rest.size(), setting.size() + 1));
    const auto equals = setting.find('=');
    if (equals == std::string::npos) continue;
    ::setenv(setting.substr(0, equals).c_str(), setting.c_str() + equals + 1, 0);
  }
}

}  // namespace

}  // namespace pinion::verbs
