// `pinion`: the subcommands put together.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/parser.h"
#include "cli/parser_table.h"
#include "cli/run/front_reach.h"

int main(int argc, char** argv) {
  using namespace pinion::cli;
  if (argc > 1 && argv[1] == std::string(kFrontReachFlag)) return answer_front_reach({argv + 2, argv + argc});
  Words words;
  int status = 0;
  const auto app = make_parser();
  const std::pair<std::string, std::function<void()>> commands[] = {
      {"run", [&] { add_run(*app, words.command, status); }},
      {"compare", [&] { add_compare(*app, words.command); }},
      {"report", [&] { add_report(*app); }},
      {"top", [&] { add_top(*app, status); }},
      {"stop", [&] { add_stop(*app); }},
      {"simulate", [&] { add_simulate(*app); }},
      {"info", [&] { add_info(*app); }},
      {"doctor", [&] { add_doctor(*app); }},
      {"bench", [&] { add_bench(*app, status); }},
      {"softroce", [&] { add_softroce(*app, words.command, status); }},
      {"help", [&] { app->add_subcommand("help", "Show the options of a command: pinion help [COMMAND]"); }},
      {"version", [&] { app->add_subcommand("version", "Print the version"); }}};
  // The options of all commands are a third of the instructions of `pinion run`, which may start each rank.
  const std::string first = argc > 1 ? argv[1] : "";
  const bool is_alone = std::any_of(std::begin(commands), std::end(commands) - 2,
                                    [&](const auto& command) { return command.first == first; });
  for (const auto& [name, add] : commands)
    if (!is_alone || name == first) add();
  words = words_of(*app, argc, argv);
  if (!words.arguments.empty() && words.arguments.front() == kParserTableFlag) {
    print_parser_table(parser_table(*app));
    return 0;
  }
  return parse(*app, words.arguments, status);
}
