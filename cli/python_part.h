// The parts of the command that are written in Python (python/pinion): pages, plots, traces, metrics and the
// live view. They lie in share/pinion/python of the installation or build tree. JSON goes to them by a pipe.
// Single-threaded.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace pinion::cli {

/// A module that a part imports beyond Python's standard library, and the Debian package that has it.
struct PythonPackage {
  const char *module, *debian;
};

/// The program and arguments that start `part` by the first Python that has all packages: the one beside this
/// command, that of PATH, or the system's. Throws UsageError, which says what to install for `option`.
CommandLine python_part(const std::string& option, const std::string& part,
                        const std::vector<std::string>& arguments = {},
                        const std::vector<PythonPackage>& packages = {});

/// A part that runs as a child, and ends when its standard input does.
class PythonChild {
 public:
  /// `output`: its standard output; negative: this process's.
  explicit PythonChild(const CommandLine& command, int output = -1);
  ~PythonChild() { end(); }
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  /// Writes its input, ends it, and waits. Throws Failure where the part failed.
  void finish(const std::function<void(std::FILE*)>& write = {});

 private:
  int end();

  std::FILE* input_ = nullptr;
  pid_t child_ = -1;
};

}  // namespace pinion::cli
