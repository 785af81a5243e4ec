// `pinion top`: becomes the part in Python (python/pinion/top.py), which reads `pinion report --now --json`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/clock.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/python_part.h"
#include "cli/run/launch.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

struct TopArguments {
  std::vector<std::string> logs{"."};
  bool once = false;
  std::string every = "1s";
};

int top(const TopArguments& arguments) {
  const std::optional<Duration> every = parse_duration(arguments.every);
  if (!every || *every < 10 * kMillisecond)
    throw UsageError(
        fmt::format("--every: '{}' is no time of 10ms or more, such as 500ms or 2s", arguments.every));
  CommandLine command = python_part("pinion top", "top", {pinion_command()});
  command.push_back(arguments.once ? "once" : fmt::format("{}", static_cast<double>(*every) / kSecond));
  command.insert(command.end(), arguments.logs.begin(), arguments.logs.end());
  return execute(command, {});
}

}  // namespace

void add_top(CLI::App& app, int& status) {
  CLI::App* sub = app.add_subcommand("top", "Show a running job: registered memory, misses and spent time");
  auto arguments = std::make_shared<TopArguments>();
  sub->add_option("logs", arguments->logs, "log directories or files of one run [.]")->type_name("DIR");
  sub->add_flag("--once", arguments->once, "one picture; so too where standard output is no terminal")
      ->disable_flag_override();
  sub->add_option("--every", arguments->every, "time between two pictures [1s]")->type_name("TIME");
  sub->callback([arguments, &status] { status = top(*arguments); });
}

}  // namespace pinion::cli
