// The subcommands of `pinion`: each adds itself to the parser and runs when chosen. A usage error is one line
// on stderr and exit status 2; an error of the work itself is one line and status 1.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

// <CLI/CLI.hpp> takes seconds to compile: only sources that add to a parser include it.
namespace CLI {
class App;
}

namespace pinion::cli {

/// Something that the user can put right: unknown names, bad values, missing commands or files.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The work failed.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The words behind `--`: a command to run; empty without a `--`.
using CommandLine = std::vector<std::string>;

inline constexpr const char* kBenchText = "Measure a part of Pinion beside its peers";

// Each adds its subcommand to `app`; when chosen, it sets `status` to the exit status of `pinion`.
void add_run(CLI::App& app, const CommandLine& command, int& status);
void add_compare(CLI::App& app, const CommandLine& command);
void add_report(CLI::App& app);
void add_top(CLI::App& app, int& status);
void add_stop(CLI::App& app);
void add_simulate(CLI::App& app);
void add_info(CLI::App& app);
void add_doctor(CLI::App& app);
void add_bench(CLI::App& app, int& status);
void add_softroce(CLI::App& app, const CommandLine& command, int& status);

}  // namespace pinion::cli
