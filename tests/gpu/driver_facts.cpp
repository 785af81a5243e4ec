// Says how the CUDA driver of this machine treats host memory: which calls wait, which memory counts as
// pinned, what captures keep, what registration and staged copies cost. Issue 34's front is built on these
// answers.
//
// driver_facts [--json] [--seconds N] [NAME...]
//
// Prints one row a fact: name, value, unit, how it was found. NAME keeps the experiments whose name begins
// so. Exits 77 with one line where there is no libcuda or no device. Build without CUDA:
//   g++ -std=c++20 -O2 -pthread -o driver_facts tests/gpu/*.cpp -ldl
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "facts.h"

namespace {

using namespace pinion::gpu;

struct Options {
  bool json = false;
  double seconds = 280;
  std::vector<std::string> names;
};

class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}
  /// Prints a child's line of four fields, which tabs part.
  void row(const std::string& experiment, const std::string& line) {
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    fields.resize(4);
    if (json_) {
      std::printf("%s{\"name\": \"%s.%s\", \"value\": \"%s\", \"unit\": \"%s\", \"how\": \"%s\"}",
                  any_ ? ",\n " : "[", experiment.c_str(), escaped(fields[0]).c_str(),
                  escaped(fields[1]).c_str(), escaped(fields[2]).c_str(), escaped(fields[3]).c_str());
    } else {
      std::printf("%s.%s  %s%s%s", experiment.c_str(), fields[0].c_str(), fields[1].c_str(),
                  fields[2].empty() ? "" : "  ", fields[2].c_str());
      if (!fields[3].empty()) std::printf("  (%s)", fields[3].c_str());
      std::printf("\n");
    }
    any_ = true;
    std::fflush(stdout);
  }
  void end() const {
    if (json_) std::printf("%s]\n", any_ ? "" : "[");
  }

 private:
  static std::string escaped(const std::string& text) {
    std::string safe;
    for (const char c : text) {
      if (c == '"' || c == '\\') safe += '\\';
      safe += c;
    }
    return safe;
  }
  bool json_, any_ = false;
};

/// Prints the child's rows as they come. Returns false once the time is over.
bool print_rows(int pipe, const std::string& experiment, double deadline, Printer& printer) {
  std::string pending;
  for (;;) {
    const double left = (deadline - now()) / 1000;
    if (left <= 0) return false;
    pollfd waiting{pipe, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(left) + 1) <= 0) continue;
    char text[4096];
    const ssize_t got = ::read(pipe, text, sizeof text);
    if (got <= 0) return true;
    pending.append(text, static_cast<std::size_t>(got));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      printer.row(experiment, pending.substr(0, end));
    }
  }
}

/// Runs one experiment in a child. Returns the child's exit status, or -1 if it was stopped or crashed.
int run(const Experiment& experiment, double deadline, Printer& printer) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  const double began = now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[1]);
    experiment.body();
    ::_exit(0);
  }
  ::close(ends[1]);
  const double limit = std::min(deadline, began + experiment.limit_seconds * 1e6);
  const bool ended = print_rows(ends[0], experiment.name, limit, printer);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ends[0]);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return 77;
  if (!ended) {
    printer.row(experiment.name, "time\thangs or is too slow\t\tstopped after " +
                                     std::to_string((now() - began) / 1e6).substr(0, 5) + " s");
  } else if (WIFSIGNALED(status)) {
    printer.row(experiment.name, "end\tkilled by signal " + std::to_string(WTERMSIG(status)));
  } else {
    printer.row(experiment.name, "seconds\t" + std::to_string((now() - began) / 1e6).substr(0, 5) + "\ts");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool wanted(const Options& options, const std::string& name) {
  if (options.names.empty()) return true;
  for (const std::string& prefix : options.names) {
    if (name.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

Experiments all_experiments() {
  Experiments all;
  add_state(all);
  add_waits(all);
  add_returns(all);
  add_partly(all);
  add_captures(all);
  add_capture_calls(all);
  add_atomic(all);
  add_contexts(all);
  add_second(all);
  add_fork(all);
  add_names(all);
  add_staged(all);
  add_lock(all);
  add_costs(all);
  return all;
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--seconds" && i + 1 < count) {
      options.seconds = std::atof(arguments[++i]);
    } else if (!argument.empty() && argument[0] != '-') {
      options.names.push_back(argument);
    } else {
      std::fprintf(stderr, "usage: driver_facts [--json] [--seconds N] [NAME...]\n");
      return 2;
    }
  }
  ::signal(SIGPIPE, SIG_IGN);
  Printer printer(options.json);
  const double deadline = now() + options.seconds * 1e6;
  for (const Experiment& experiment : all_experiments()) {
    if (!wanted(options, experiment.name)) continue;
    if (now() >= deadline) {
      printer.row(experiment.name, "skipped\tthe time was over");
      continue;
    }
    if (run(experiment, deadline, printer) == 77) return 77;
  }
  printer.end();
  return 0;
}
