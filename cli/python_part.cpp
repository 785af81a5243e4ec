#include "cli/python_part.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/run/launch.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

/// Whether `python` starts and finds the modules, which it does not import.
bool finds(const std::string& python, const std::vector<PythonPackage>& packages) {
  std::string program = "import importlib.util as util, sys; sys.exit(None in [";
  for (const PythonPackage& package : packages)
    program += fmt::format("util.find_spec('{}'), ", package.module);
  program += "])";
  posix_spawn_file_actions_t silent;
  ::posix_spawn_file_actions_init(&silent);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::posix_spawn_file_actions_addopen(&silent, file, "/dev/null", O_RDWR, 0);
  const char* const arguments[] = {python.c_str(), "-c", program.c_str(), nullptr};
  pid_t child = -1;
  const int code =
      ::posix_spawnp(&child, python.c_str(), &silent, nullptr, const_cast<char* const*>(arguments), environ);
  ::posix_spawn_file_actions_destroy(&silent);
  return code == 0 && status_of(child) == 0;
}

std::string what_to_install(const std::vector<PythonPackage>& packages) {
  if (packages.empty()) return "Python 3 (Debian: python3)";
  std::string modules, debian;
  for (const PythonPackage& package : packages) {
    modules += fmt::format("{}{}", modules.empty() ? "" : " and ", package.module);
    debian += fmt::format(" {}", package.debian);
  }
  return fmt::format("Python with {} (Debian: apt-get install{}; pip: pinion-rdma[report])", modules, debian);
}

}  // namespace

CommandLine python_part(const std::string& option, const std::string& part,
                        const std::vector<std::string>& arguments,
                        const std::vector<PythonPackage>& packages) {
  const std::filesystem::path prefix = installation(), place = prefix / "share/pinion/python/pinion";
  if (::access(place.c_str(), R_OK) != 0)
    throw UsageError(fmt::format("{}: {} is missing", option, place.string()));
  for (const std::string& python :
       {(prefix / "bin/python3").string(), std::string("python3"), std::string("/usr/bin/python3")}) {
    if (!finds(python, packages)) continue;
    CommandLine command{python, "-B", place.string(), part};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
  throw UsageError(fmt::format("{} needs {}", option, what_to_install(packages)));
}

PythonChild::PythonChild(const CommandLine& command, int output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Failure(fmt::format("pipe: {}", std::strerror(errno)));
  child_ = ::fork();
  if (child_ < 0) throw Failure(fmt::format("fork: {}", std::strerror(errno)));
  if (child_ == 0) {
    ::dup2(ends[0], STDIN_FILENO);
    if (output >= 0) ::dup2(output, STDOUT_FILENO);
    ::_exit(execute(command, {}));
  }
  ::close(ends[0]);
  input_ = ::fdopen(ends[1], "w");
}

void PythonChild::finish(const std::function<void(std::FILE*)>& write) {
  // A part that ends before its input does so with a status that says more than the signal.
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  if (write) write(input_);
  const int status = end();
  ::signal(SIGPIPE, before);
  if (status != 0) throw Failure("the part of this command in Python failed");
}

int PythonChild::end() {
  if (child_ < 0) return 0;
  std::fclose(input_);
  const int status = status_of(child_);
  child_ = -1;
  return status;
}

}  // namespace pinion::cli
