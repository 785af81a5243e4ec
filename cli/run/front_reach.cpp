#include "cli/run/front_reach.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/elf_object.h"
#include "cli/run/launch.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

const link_map* map_of(void* handle) {
  link_map* map = nullptr;
  return handle != nullptr && ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map : nullptr;
}

bool is_registration(std::string_view name) { return name.starts_with("ibv_reg_mr"); }

/// The functions that the front stands before. Where one leads elsewhere, handles of the front's would meet
/// the library's own functions.
bool is_met(std::string_view name) {
  return is_registration(name) || name == "ibv_dereg_mr" || name == "ibv_rereg_mr";
}

struct Slots {
  std::size_t registrations = 0, elsewhere = 0;
};

void look_at(const link_map& part, const link_map& front, Slots& slots) {
  const ElfObject object(part.l_addr, part.l_ld);
  object.for_each_slot([&](const ElfW(Addr) * slot, ElfW(Addr), const ElfW(Sym) & symbol) {
    const std::string_view name = object.name_of(symbol);
    if (!is_met(name)) return;
    slots.registrations += is_registration(name);
    Dl_info found{};
    const bool leads_here = ::dladdr(reinterpret_cast<const void*>(*slot), &found) != 0 &&
                            reinterpret_cast<ElfW(Addr)>(found.dli_fbase) == front.l_addr;
    slots.elsewhere += !leads_here;
  });
}

/// None of those that programs end with by chance.
int status_of(FrontReach reach) { return 10 + static_cast<int>(reach); }

/// The files of this pattern.
std::vector<std::string> files_like(const std::string& pattern) {
  std::vector<std::string> files;
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return files;
}

/// Files by their part's name (front_reach.h).
std::vector<std::string> files_of(const std::string& part) {
  const auto mark = part.find(kBeside);
  if (mark == std::string::npos) {
    const bool is_pattern = part.find('*') != std::string::npos;
    return is_pattern ? files_like(part) : std::vector<std::string>{part};
  }
  const link_map* const beside = map_of(::dlopen(part.substr(0, mark).c_str(), RTLD_NOW));
  if (beside == nullptr) return {};
  const std::string library = beside->l_name;
  const std::string pattern =
      library.substr(0, library.rfind('/') + 1) + part.substr(mark + std::string_view(kBeside).size());
  return files_like(pattern);
}

}  // namespace

int answer_front_reach(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return status_of(FrontReach::unknown);
  const link_map* const front = map_of(::dlopen(arguments[0].c_str(), RTLD_LAZY | RTLD_NOLOAD));
  if (front == nullptr) return status_of(FrontReach::elsewhere);
  Slots slots;
  for (auto part = arguments.begin() + 1; part != arguments.end(); ++part)
    for (const std::string& file : files_of(*part))
      if (const link_map* const map = map_of(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)))
        look_at(*map, *front, slots);
  return status_of(slots.elsewhere != 0       ? FrontReach::elsewhere
                   : slots.registrations != 0 ? FrontReach::reached
                                              : FrontReach::unknown);
}

FrontReach front_reach(const std::vector<std::string>& parts) {
  std::string preload;
  try {
    preload = preload_library();
  } catch (const UsageError&) {  // nothing runs under Pinion from here
    return FrontReach::unknown;
  }
  std::vector<std::string> words{pinion_command(), kFrontReachFlag, preload};
  words.insert(words.end(), parts.begin(), parts.end());
  const pid_t child = ::fork();
  if (child == 0) {
    // Libraries may print as they are loaded.
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    ::setenv("LD_PRELOAD", preload.c_str(), 1);
    ::setenv("PINION", "front=mpi", 1);  // does nothing here; `off` would hide the names that are looked for
    ::setenv("LD_BIND_NOW", "1", 1);     // a slot that waits for its first call leads nowhere yet
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(words[0].c_str(), arguments.data());
    ::_exit(status_of(FrontReach::unknown));
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return FrontReach::unknown;
  for (const FrontReach reach : {FrontReach::reached, FrontReach::elsewhere})
    if (WEXITSTATUS(status) == status_of(reach)) return reach;
  return FrontReach::unknown;
}

}  // namespace pinion::cli
