// `pinion bench`: becomes the executable of bench/, where that was built.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/run/launch.h"
#include "cli/system_files.h"

namespace pinion::cli {

void add_bench(CLI::App& app, int& status) {
  CLI::App* sub = app.add_subcommand("bench", kBenchText);
  sub->set_help_flag();
  sub->prefix_command();
  sub->callback([sub, &status] {
    CommandLine command{(installation() / "libexec/pinion/bench").string()};
    if (::access(command.front().c_str(), X_OK) != 0)
      throw UsageError(
          "the benches are built in a checkout: `cmake --build build --target bench`, then `build/bin/pinion "
          "bench`");
    const std::vector<std::string> rest = sub->remaining();
    command.insert(command.end(), rest.begin(), rest.end());
    status = execute(command, {});
  });
}

}  // namespace pinion::cli
