#include "engine/site_names.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace pinion {

void name_site(runlog::SiteEntry& site) {
  constexpr std::uint32_t kNamedFrames = 4;
  std::size_t used = 0;
  site.name[0] = 0;
  for (std::uint32_t i = 0; i < std::min(site.frame_count, kNamedFrames); ++i) {
    char frame[160];
    Dl_info info{};
    // A return address may lie behind its function's last byte: look up the call instead.
    const auto address = site.frames[i] - 1;
    if (!dladdr(reinterpret_cast<void*>(address), &info) || !info.dli_fname) {
      std::snprintf(frame, sizeof frame, "0x%llx", static_cast<unsigned long long>(address));
    } else {
      const char* slash = std::strrchr(info.dli_fname, '/');
      const char* module = slash ? slash + 1 : info.dli_fname;
      const auto offset_from = [&](const void* base) {
        return static_cast<unsigned long long>(address - reinterpret_cast<std::uintptr_t>(base));
      };
      if (info.dli_sname && info.dli_saddr) {
        std::snprintf(frame, sizeof frame, "%s+0x%llx (%s)", info.dli_sname, offset_from(info.dli_saddr),
                      module);
      } else {
        std::snprintf(frame, sizeof frame, "%s+0x%llx", module, offset_from(info.dli_fbase));
      }
    }
    const int n = std::snprintf(site.name + used, sizeof site.name - used, "%s%s", i ? " < " : "", frame);
    if (n < 0 || used + static_cast<std::size_t>(n) >= sizeof site.name) return;
    used += static_cast<std::size_t>(n);
  }
}

}  // namespace pinion
