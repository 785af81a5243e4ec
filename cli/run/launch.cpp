#include "cli/run/launch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <vector>

#include "base/own_preload.h"
#include "base/plain_file.h"
#include "base/process.h"
#include "cli/doctor/caches_above.h"
#include "cli/error_line.h"
#include "cli/run/group_witness.h"
#include "cli/system_files.h"
#include "lease/acts.h"
#include "monitor/libc_hooks.h"

namespace pinion::cli {

namespace {

constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

// In the path of a preload: its loader puts its own word for `$LIB`.
const std::string kLoadersPart = "pinion/$LIB/";

sigset_t forwarded_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH})
    sigaddset(&set, number);
  return set;
}

int shell_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Waits for the child. A signal that the terminal or kill() sent to the whole process group reached the
// child, too; only signals for this process alone are passed on.
int wait_forwarding(pid_t child, const sigset_t& signals, GroupWitness& group) {
  for (;;) {
    siginfo_t info{};
    if (sigwaitinfo(&signals, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      if (info.si_code <= 0 && !group.saw(info.si_signo)) ::kill(child, info.si_signo);
      continue;
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return shell_status(status);
  }
}

/// Returns a path that each program's loader completes (cmake/preload_links.cmake), if this machine's does.
std::string path_for_every_loader(const std::filesystem::path& library) {
  const std::string path = library.parent_path() / (kLoadersPart + library.filename().string());
  ::dlerror();
  ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return ::dlerror() ? library.string() : path;
}

/// Throws UsageError where it is missing, or its path is unfit for preloading.
std::string library_beside_command(const char* name) {
  namespace fs = std::filesystem;
  const fs::path prefix = installation();
  fs::path library = prefix / "lib" / name;
  // Distributions have lib64 or lib/x86_64-linux-gnu.
  if (::access(library.c_str(), R_OK) != 0) library = prefix / PINION_INSTALL_LIBDIR / name;
  if (::access(library.c_str(), R_OK) != 0)
    throw UsageError(fmt::format("the preload library is missing: {}", library.string()));
  // The dynamic loader splits LD_PRELOAD at spaces and colons, without any quoting.
  if (library.string().find_first_of(" :") != std::string::npos)
    throw UsageError(
        fmt::format("the preload library's path must have no space or colon: {}", library.string()));
  return library;
}

/// Whether every function of libc that matters can be redirected in memory here. Asked of this very process.
bool code_can_be_patched() {
  const HookCallbacks ignore{[](const MemoryChange&) { return Answer::proceed; }, [](Range) {}};
  const HookReport hooks = install_libc_hooks(ignore);
  uninstall_libc_hooks();
  return hooks.complete;
}

bool needs_symbols(MonitorKind kind) {
  switch (kind) {
    case MonitorKind::symbols:
    case MonitorKind::symbols_userfaultfd:
      return true;
    case MonitorKind::automatic:
      return !code_can_be_patched();
    default:
      return false;
  }
}

}  // namespace

std::string preload_library() { return library_beside_command("libpinion-preload.so"); }

std::string symbols_library() { return library_beside_command("libpinion-symbols.so"); }

std::string heap_library() { return library_beside_command("libpinion-heap.so"); }

bool inside_launcher() { return job_place().rank >= 0; }

Environment with_pinion(const Options& options) {
  // Both have munmap: that of the symbols is the one that must see each call.
  std::string libraries;
  if (needs_symbols(options.monitor)) libraries += path_for_every_loader(symbols_library()) + ":";
  if (options.hugepages == Hugepages::heap || options.preregister != 0)
    libraries += path_for_every_loader(heap_library()) + ":";
  libraries += path_for_every_loader(preload_library());
  const char* inherited = std::getenv("LD_PRELOAD");
  const std::string others = inherited ? inherited : "";
  // A rank may have them already from a `pinion run` around its launcher.
  if (others == libraries || others.rfind(libraries + ":", 0) == 0)
    libraries = others;
  else if (!others.empty())
    libraries += ":" + others;
  // AddressSanitizer's runtime refuses to start behind any preloaded library. The preload lets it be second.
  const char* const asan = std::getenv("ASAN_OPTIONS");
  std::string checks = asan ? asan : "";
  if (checks.find("verify_asan_link_order") == std::string::npos)
    checks += (checks.empty() ? "" : ":") + std::string("verify_asan_link_order=0");
  return {{"PINION", format_options(options)},
          {"ASAN_OPTIONS", checks},
          {"PINION_CONFIG", ""},
          {"LD_PRELOAD", libraries},
          {kCachesOffVariable, may_act_below(options) ? caches_to_switch_off(options) : ""}};
}

std::string with_plain_paths(std::string preloads) {
  for (std::size_t at; (at = preloads.find(kLoadersPart)) != std::string::npos;)
    preloads.erase(at, kLoadersPart.size());
  return preloads;
}

Environment without_preload() {
  const char* const inherited = std::getenv("LD_PRELOAD");
  std::istringstream words(inherited ? inherited : "");
  std::string others;
  for (std::string word; std::getline(words, word, ':');)
    if (!is_own_preload(word)) others += (others.empty() ? "" : ":") + word;
  return {{"LD_PRELOAD", others}};
}

std::string new_run_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

int execute(const CommandLine& command, const Environment& environment) {
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int code = errno;
  print_error_line(command.front() + ": " + (code == ENOENT ? "not found" : std::strerror(code)));
  return code == ENOENT ? kNotFound : kNotExecutable;
}

int run_and_wait(const CommandLine& command, const Environment& environment, const std::string& output) {
  // Blocked before the child exists, so that each signal reaches one of the two; the child gets the old mask
  // back.
  sigset_t signals = forwarded_signals(), before;
  sigaddset(&signals, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = ::fork();
  if (child < 0) throw Failure(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (!output.empty()) {
      const int file = replace_plain_file(output);
      if (file < 0) {
        print_error_line(output + ": " + std::strerror(errno));
        ::_exit(kNotExecutable);
      }
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
      ::close(file);
    }
    ::_exit(execute(command, environment));
  }
  GroupWitness group;
  const int status = wait_forwarding(child, signals, group);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace pinion::cli
