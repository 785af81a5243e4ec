// Runs a command of the shell to its end. Any thread.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace pinion::test {

struct Ended {
  int status = -1;     ///< -1: by a signal
  std::string output;  ///< standard output and error
};

inline Ended shell(const std::string& command) {
  Ended ended;
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> part;
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) ended.output += part.data();
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  return ended;
}

}  // namespace pinion::test
