#include "intercept/caches_off.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/own_loading.h"
#include "intercept/same_build.h"
#include "lease/acts.h"
#include "lease/engine_options.h"

namespace pinion {

namespace {

struct Setting {
  std::string name, value;
  bool in_mpi = false;
};

bool takes_away(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Calls `take` for each setting that this process is to make. `pinion run` proved that
/// the libraries' registrations lead into the front; whether a NIC registers, and whether a GPU is there, is
/// known on each node only.
template <class Take>
void for_each_setting(Take&& take) {
  const char* const named = std::getenv(kCachesOffVariable);
  if (named == nullptr || *named == '\0' || !same_build()) return;
  Options options;
  if (options_from_environment(options) || options.off || !may_act_below(options)) return;
  const bool may_go_off = may_switch_caches_off(options);
  std::string_view rest = named;
  while (!rest.empty()) {
    std::string_view setting = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), setting.size() + 1));
    const bool is_bound = takes_away(setting, kKept);
    const bool in_mpi = takes_away(setting, kInMpi);
    const auto equals = setting.find('=');
    if (equals == std::string_view::npos || !(is_bound || may_go_off)) continue;
    take(Setting{std::string(setting.substr(0, equals)), std::string(setting.substr(equals + 1)), in_mpi});
  }
}

/// Whether the file has the word as a string of its own.
bool has_string(const std::string& file, std::string_view word) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0) return false;
  const std::size_t bytes = ::fstat(descriptor, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
  void* const at = bytes != 0 ? ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  ::close(descriptor);
  if (at == MAP_FAILED) return false;
  // A long word is found in a few looks a page, its end included; zeros alone would be met everywhere.
  const std::string string = '\0' + std::string(word) + '\0';
  const bool found = ::memmem(at, bytes, string.data(), string.size()) != nullptr;
  ::munmap(at, bytes);
  return found;
}

/// Whether the UCX that this process has loaded takes a variable: it warns of those that it does not know.
/// Variables of its InfiniBand part are known where that part is there and has their name. Of a UCX that an
/// MPI library loads later, the answer is that of `pinion run`, which found it on the same path.
bool is_known(const std::string& name) {
  constexpr std::string_view kInfiniBand = "UCX_IB_";
  if (!name.starts_with(kInfiniBand)) return true;
  void* const loaded = load_library("libuct.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (loaded == nullptr) return true;
  link_map* map = nullptr;
  std::string directory;
  if (const char* const modules = std::getenv("UCX_MODULE_DIR"))
    directory = modules;
  else if (::dlinfo(loaded, RTLD_DI_LINKMAP, &map) == 0)
    directory = std::string(map->l_name, std::string_view(map->l_name).rfind('/') + 1) + "ucx";
  ::dlclose(loaded);
  return has_string(directory + "/libuct_ib.so.0", std::string_view(name).substr(kInfiniBand.size()));
}

[[gnu::constructor]] void switch_caches_off() {
  for_each_setting([](const Setting& setting) {
    if (!setting.in_mpi) ::setenv(setting.name.c_str(), setting.value.c_str(), 0);
  });
}

}  // namespace

CachesOffInMpi::CachesOffInMpi() {
  for_each_setting([this](const Setting& setting) {
    const char* const name = setting.name.c_str();
    if (setting.in_mpi && std::getenv(name) == nullptr && is_known(setting.name) &&
        ::setenv(name, setting.value.c_str(), 0) == 0)
      set_.push_back(setting.name);
  });
}

CachesOffInMpi::~CachesOffInMpi() {
  for (const std::string& name : set_) ::unsetenv(name.c_str());
}

}  // namespace pinion
