// chroot(), before the C library's. Commands below a root directory that lacks the installation would each
// print the loader's line about a preload that is not there: they are started without it.
//
// Owns the new LD_PRELOAD. A thread that changes the root of its process has it to itself, as for setenv();
// nothing is allocated, as the process may be the child of one with many threads.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/own_preload.h"
#include "base/warning.h"
#include "intercept/exports.h"

extern "C" char** environ;

namespace {

constinit pinion::NextFunction<int(const char*)> next_chroot{"chroot"};

constexpr std::string_view kVariable = "LD_PRELOAD=";
constinit char g_others[4096];  ///< the variable without Pinion's libraries

/// Writes `preloads` without Pinion's libraries; false where no other is left.
bool keep_others(std::string_view preloads) {
  char* end = g_others + kVariable.copy(g_others, kVariable.size());
  char* const begin = end;
  while (!preloads.empty()) {
    const std::string_view word = preloads.substr(0, preloads.find_first_of(" :"));
    preloads.remove_prefix(std::min(word.size() + 1, preloads.size()));
    if (word.empty() || pinion::is_own_preload(word)) continue;
    if (end != begin) *end++ = ':';
    end += word.copy(end, word.size());
  }
  *end = '\0';
  return end != begin;
}

void leave_preloads_behind() {
  for (char** variable = environ; variable && *variable; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with(kVariable) || text.size() >= sizeof g_others) continue;
    if (keep_others(text.substr(kVariable.size()))) {
      *variable = g_others;
    } else {
      for (char** later = variable; (later[0] = later[1]) != nullptr; ++later) {
      }
    }
    return;
  }
}

}  // namespace

extern "C" PINION_EXPORT int chroot(const char* path) noexcept {
  const int status = next_chroot.get()(path);
  Dl_info own;
  if (status != 0 || !::dladdr(reinterpret_cast<void*>(&leave_preloads_behind), &own)) return status;
  if (::access(own.dli_fname, R_OK) == 0) return status;
  leave_preloads_behind();
  pinion::warn(
      "commands below the new root run without Pinion: %s is not there; bind its installation into it",
      own.dli_fname);
  return status;
}
