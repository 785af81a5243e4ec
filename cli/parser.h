// The parser that `pinion` and its bench share: splits off the program's words, lets CLI11 read the rest, and
// turns errors into one line and a status.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace pinion::cli {

/// The arguments of main(): Pinion's own, and the program with its arguments.
struct Words {
  std::vector<std::string> arguments;
  CommandLine command;
};
/// The program begins behind `--`, or, with a subcommand that has add_program(), at the first word that is
/// neither an option nor an option's value. From there on all words are its own.
Words words_of(const CLI::App& app, int argc, char** argv);

/// `pinion` without subcommands.
std::unique_ptr<CLI::App> make_parser();

/// The subcommand starts a program, whose words are those of Words::command.
void add_program(CLI::App& sub);

/// Adds an option whose value is a list with commas. An empty part, as in `1M,,2M`, is a usage error.
void add_list(CLI::App& sub, const std::string& name, std::vector<std::string>& into,
              const std::string& text);

/// Parses, runs the chosen subcommand, and returns the exit status: `status` as the subcommand left it, 1
/// after an error, 2 after a usage error.
int parse(CLI::App& app, std::vector<std::string> arguments, const int& status);

}  // namespace pinion::cli
