#include "cli/parser.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "base/version.h"
#include "cli/error_line.h"
#include "cli/option_flags.h"
#include "cli/text.h"

namespace pinion::cli {

namespace {

// The subcommand that was chosen, or the whole command.
const CLI::App& chosen(const CLI::App& app) {
  const auto subcommands = app.get_subcommands();
  return subcommands.empty() ? app : *subcommands.front();
}

/// Returns the command as it is typed: "pinion run".
std::string path_of(const CLI::App& command) {
  return command.get_parent() ? "pinion " + command.get_name() : "pinion";
}

// The subcommand that the first argument names, before anything is parsed.
const CLI::App* named(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const CLI::App* subcommand : app.get_subcommands({}))
    if (!arguments.empty() && subcommand->get_name() == arguments.front()) return subcommand;
  return nullptr;
}

bool starts_program(const CLI::App& command) { return command.get_option_no_throw("command") != nullptr; }

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* subcommand : app.get_subcommands({}))
    names += (names.empty() ? "" : ", ") + subcommand->get_name();
  return names;
}

/// Returns the names without their dashes; hidden ones are left out.
std::vector<std::string_view> option_names(const CLI::App& command) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_lnames().empty() && !option->get_group().empty())
      names.push_back(option->get_lnames()[0]);
  return names;
}

/// Names the setting of an option that belongs to --tune.
std::string tune_hint(const CLI::App& command, const std::string& name) {
  if (command.get_option_no_throw("--tune"))
    for (const OptionSpec& spec : option_specs())
      if (spec.listing == Listing::advanced && name == std::string("--") + spec.name)
        return fmt::format("; set it by --tune {}=VALUE", spec.name);
  return {};
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
    if (const std::string hint = tune_hint(command, name); !hint.empty())
      return fmt::format("unknown option '{}'{}", name, hint);
    const std::string_view nearest =
        nearest_name(name.substr(std::min(name.find_first_not_of('-'), name.size())), option_names(command));
    return fmt::format("unknown option '{}'{}; `{} --help` lists the valid ones{}", name,
                       nearest.empty() ? "" : fmt::format("; the nearest is '--{}'", nearest),
                       path_of(command),
                       starts_program(command) ? ", and the program's own go behind its name" : "");
  }
  if (&command == &app) {
    const std::string valid = command_names(app);
    return word_first ? fmt::format("unknown command '{}'; valid commands: {}", arguments.front(), valid)
                      : fmt::format("no command given; valid commands: {}", valid);
  }
  return error.what();
}

/// Descriptions of options and commands within kColumns.
class Help : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return narrow(CLI::Formatter::make_option_desc(option));
  }
  /// Less the options that it excludes, which fill lines.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return text.substr(0, text.find(" Excludes:"));
  }
  std::string make_subcommand(const CLI::App* sub) const override {
    return fmt::format("  {:<{}}{}\n", sub->get_name(), get_column_width() - 2, sub->get_description());
  }

 private:
  /// The formatter indents the lines after the first by its first column.
  std::string narrow(const std::string& text) const {
    const std::string indent(get_column_width(), ' ');
    std::string lines = wrapped(text, indent), out;
    for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
      const std::size_t begin = at + indent.size();
      out += (out.empty() ? "" : "\n") + lines.substr(begin, lines.find('\n', at) - begin);
    }
    return out;
  }
};

/// `pinion help [COMMAND]` and `pinion version`, as the flags they stand for.
std::vector<std::string> with_flags_for_words(const CLI::App& app, std::vector<std::string> arguments) {
  if (arguments.empty()) return arguments;
  if (arguments.size() == 1 && arguments[0] == "version") return {"--version"};
  if (arguments[0] != "help" || (arguments.size() > 1 && arguments[1][0] == '-')) return arguments;
  arguments.erase(arguments.begin());
  if (arguments.size() > 1) throw UsageError("help: one command at most");
  if (!arguments.empty() && named(app, arguments) == nullptr)
    throw UsageError(
        fmt::format("unknown command '{}'; valid commands: {}", arguments[0], command_names(app)));
  arguments.emplace_back("--help");
  return arguments;
}

// `--name=` is `--name ""`: CLI11 would take the next argument for its value.
std::vector<std::string> with_values_apart(const std::vector<std::string>& arguments) {
  std::vector<std::string> apart;
  for (const std::string& argument : arguments) {
    const bool without = argument.rfind("--", 0) == 0 && argument.size() > 3 && argument.back() == '=' &&
                         argument.find('=') == argument.size() - 1;
    apart.push_back(without ? argument.substr(0, argument.size() - 1) : argument);
    if (without) apart.emplace_back();
  }
  return apart;
}

/// Returns how many words behind the option's name are its value.
std::size_t words_of_value(const CLI::Option& option, const std::string& next) {
  if (option.get_type_size() == 0) return 0;
  // The name may stand alone.
  if (option.get_items_expected_min() != 0) return 1;
  const std::vector<OptionSpec> specs = option_specs();
  return std::any_of(specs.begin(), specs.end(), [&](const OptionSpec& spec) {
    return option.check_lname(spec.name) &&
           std::find(spec.choices.begin(), spec.choices.end(), next) != spec.choices.end();
  });
}

/// Returns the place of `--`, or of the program's name; the end where there is neither.
std::size_t begin_of_program(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* const command = named(app, arguments);
  const bool starts = command && starts_program(*command);
  std::size_t at = 1;
  for (; at < arguments.size() && arguments[at] != "--"; ++at) {
    if (!starts) continue;
    const std::string& word = arguments[at];
    if (word.empty() || word[0] != '-') return at;
    const CLI::Option* const option = command->get_option_no_throw(word);
    if (option && at + 1 < arguments.size()) at += words_of_value(*option, arguments[at + 1]);
  }
  return std::min(at, arguments.size());
}

// The name of the option that was given as an empty text, such as an unset variable of the shell: CLI11 would
// leave a number as it is. Options of the table check their own values; a program has arguments of its own.
std::string given_empty(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* command = named(app, arguments);
  if (!command || command->get_prefix_command()) return {};
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].empty()) continue;
    const CLI::Option* option = command->get_option_no_throw(arguments[i - 1]);
    if (option && option->get_type_size() > 0 && arguments[i - 1][0] == '-') {
      const std::string& group = option->get_group();
      if (group != kTableGroup) return arguments[i - 1];
    } else if (!starts_program(*command)) {
      return "argument " + std::to_string(i);
    }
  }
  return {};
}

int complain(const CLI::App& app, const std::string& message, int status) {
  print_error_line(message, path_of(chosen(app)));
  return status;
}

/// A file that a command opens must not become its standard output. Programs that it starts miss what it
/// missed.
void fill_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
}

/// Standard output may be a file on a full disk.
int finish(int status) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  fmt::print(stderr, "pinion: cannot write to standard output: {}\n", std::strerror(errno));
  return status == 0 ? 1 : status;
}

}  // namespace

Words words_of(const CLI::App& app, int argc, char** argv) {
  fill_standard_descriptors();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::size_t begin = begin_of_program(app, arguments);
  const bool marked = begin < arguments.size() && arguments[begin] == "--";
  const auto first = arguments.begin() + static_cast<std::ptrdiff_t>(begin);
  const CommandLine command(first + (marked ? 1 : 0), arguments.end());
  arguments.erase(first, arguments.end());
  return {with_values_apart(arguments), command};
}

std::unique_ptr<CLI::App> make_parser() {
  auto app = std::make_unique<CLI::App>("Holds registered (pinned) memory to what the next transfers need.",
                                        "pinion");
  app->set_version_flag("--version", "pinion " PINION_VERSION);
  app->require_subcommand(1);
  app->formatter(std::make_shared<Help>());
  return app;
}

void add_program(CLI::App& sub) {
  sub.add_option("command", "the program; from its name on, all words are its own")->type_name("CMD");
}

void add_list(CLI::App& sub, const std::string& name, std::vector<std::string>& into,
              const std::string& text) {
  const auto split = [name, &into](const std::vector<std::string>& values) {
    into.clear();  // of its default
    for (const std::string& value : values) {
      for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
        end = value.find(',', begin);
        into.push_back(value.substr(begin, end == std::string::npos ? end : end - begin));
        if (into.back().empty())
          throw UsageError(fmt::format("{}: a part of the list '{}' is empty", name, value));
      }
    }
  };
  sub.add_option_function<std::vector<std::string>>(name, split, text)
      ->allow_extra_args(false)
      ->type_name("LIST");
}

int parse(CLI::App& app, std::vector<std::string> arguments, const int& status) {
  try {
    arguments = with_flags_for_words(app, arguments);
    if (const std::string name = given_empty(app, arguments); !name.empty()) {
      print_error_line(name + ": the value is empty (an unset variable?)", "pinion " + arguments.front());
      return 2;
    }
    // CLI11 takes arguments from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& help) {
    return finish(app.exit(help));
  } catch (const CLI::ParseError& error) {
    return complain(app, usage_message(app, error, arguments), 2);
  } catch (const UsageError& error) {
    return complain(app, error.what(), 2);
  } catch (const std::exception& error) {
    return complain(app, error.what(), 1);
  }
  return finish(status);
}

}  // namespace pinion::cli
