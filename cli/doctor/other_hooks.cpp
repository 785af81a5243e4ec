#include "cli/doctor/other_hooks.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <link.h>

#include <cstring>
#include <string_view>

#include "cli/doctor/caches_above.h"
#include "monitor/code_patch.h"
#include "process/feed_libfabric.h"

namespace pinion::cli {

namespace {

constexpr const char* kFunctions[] = {"munmap", "mmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt"};

/// The file name of the library that the code is of.
std::string library_of(const void* code) {
  Dl_info info{};
  if (::dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "code of no library";
  const char* slash = std::strrchr(info.dli_fname, '/');
  return slash ? slash + 1 : info.dli_fname;
}

}  // namespace

std::vector<std::string> hooks_of_others() {
  std::vector<std::string> found;
  void* const libc = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  for (const char* name : kFunctions) {
    const void* const in_libc = ::dlsym(libc, name);
    const void* const met = ::dlsym(RTLD_DEFAULT, name);
    if (met != in_libc) found.push_back(fmt::format("{} by {}", name, library_of(met)));
    const void* const redirected = jump_target(static_cast<const std::byte*>(in_libc));
    if (redirected) found.push_back(fmt::format("{}, redirected by {}", name, library_of(redirected)));
  }
  return found;
}

LibfabricFinding feed_libfabric() {
  LibfabricFinding finding;
  void* const library = ::dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NODELETE);
  if (!library) return finding;
  const auto version = reinterpret_cast<std::uint32_t (*)()>(::dlsym(library, "fi_version"))();
  finding.version = fmt::format("{}.{}", version >> 16, version & 0xffff);
  finding.error = pinion::feed_libfabric(nullptr);
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return finding;
  const std::string directory(map->l_name, std::string_view(map->l_name).rfind('/') + 1);
  for (const char* const pattern : kVerbsPlugins) {
    glob_t found{};
    if (::glob((directory + pattern).c_str(), 0, nullptr, &found) == 0) finding.plugin = found.gl_pathv[0];
    ::globfree(&found);
  }
  return finding;
}

}  // namespace pinion::cli
