// `pinion`: splits off the command behind `--`, lets CLI11 read the rest, and turns errors into one line and
// a status.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "command.h"

namespace {

using namespace pinion::cli;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The subcommand that was chosen, or the whole command.
const CLI::App& chosen(const CLI::App& app) {
  const auto subcommands = app.get_subcommands();
  return subcommands.empty() ? app : *subcommands.front();
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments) {
  const CLI::App& command = chosen(app);
  // Other errors are about values, which may begin with a dash too.
  const bool names =
      dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error);
  const bool word_first = !arguments.empty() && arguments.front()[0] != '-';
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (!names || name.size() < 2 || name[0] != '-' || command.get_option_no_throw(name)) continue;
    std::string valid;
    for (const CLI::Option* option : command.get_options())
      if (!option->get_lnames().empty() && !option->get_group().empty())  // hidden ones have none
        valid += (valid.empty() ? "--" : ", --") + option->get_lnames()[0];
    const bool starts_programs = command.get_option_no_throw("command") != nullptr;
    return fmt::format("unknown option '{}'; valid options: {}{}", name, valid,
                       starts_programs ? "; the program's own go behind `--`" : "");
  }
  if (&command == &app) {
    std::string valid;
    for (const CLI::App* subcommand : app.get_subcommands({}))
      valid += (valid.empty() ? "" : ", ") + subcommand->get_name();
    return word_first ? fmt::format("unknown command '{}'; valid commands: {}", arguments.front(), valid)
                      : fmt::format("no command given; valid commands: {}", valid);
  }
  return first_line(error.what());
}

int complain(const CLI::App& app, const std::string& message, int status) {
  const CLI::App& command = chosen(app);
  const std::string name = &command == &app ? "pinion" : "pinion " + command.get_name();
  fmt::print(stderr, "{}: {}\n", name, message);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  const CommandLine command(mark == arguments.end() ? mark : mark + 1, arguments.end());
  arguments.erase(mark, arguments.end());

  int status = 0;
  CLI::App app("Holds registered (pinned) memory to what the next transfers need.", "pinion");
  app.set_version_flag("--version", "pinion " PINION_VERSION);
  app.require_subcommand(1);
  add_run(app, command, status);
  add_compare(app, command);
  add_report(app);
  add_simulate(app);
  add_info(app);
  add_doctor(app);
  add_bench(app);
  add_softroce(app, command, status);

  try {
    // CLI11 takes arguments from the back.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return complain(app, usage_message(app, error, arguments), 2);
  } catch (const UsageError& error) {
    return complain(app, error.what(), 2);
  } catch (const std::exception& error) {
    return complain(app, error.what(), 1);
  }
  return status;
}
