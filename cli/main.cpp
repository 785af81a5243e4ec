// `pinion`: the subcommands put together.
#include <CLI/CLI.hpp>

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
  add_run(*app, words.command, status);
  add_compare(*app, words.command);
  add_report(*app);
  add_top(*app);
  add_stop(*app);
  add_simulate(*app);
  add_info(*app);
  add_doctor(*app);
  add_bench(*app, status);
  add_softroce(*app, words.command, status);
  app->add_subcommand("help", "Show the options of a command: pinion help [COMMAND]");
  app->add_subcommand("version", "Print the version");
  words = words_of(*app, argc, argv);
  if (!words.arguments.empty() && words.arguments.front() == kParserTableFlag) {
    print_parser_table(parser_table(*app));
    return 0;
  }
  return parse(*app, words.arguments, status);
}
