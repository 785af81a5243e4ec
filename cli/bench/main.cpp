// The executable of `pinion bench`, which `pinion` starts (cli/start_bench.cpp).
#include <CLI/CLI.hpp>

#include "cli/bench/bench.h"
#include "cli/parser.h"
#include "cli/parser_table.h"

int main(int argc, char** argv) {
  using namespace pinion::cli;
  const auto app = make_parser();
  add_benches(*app);
  Words words = words_of(*app, argc, argv);
  if (!words.arguments.empty() && words.arguments.front() == kParserTableFlag) {
    Json table = parser_table(*app);
    table["benches"] = Json::array();
    for (const auto& [name, text] : bench_names())
      table["benches"].push_back({{"name", name}, {"text", text}});
    print_parser_table(table);
    return 0;
  }
  words.arguments.insert(words.arguments.begin(), "bench");
  return parse(*app, words.arguments, 0);
}
