// The executable of `pinion bench`, which `pinion` starts (cli/start_bench.cpp).
#include <CLI/CLI.hpp>

#include "bench/bench.h"
#include "cli/parser.h"

int main(int argc, char** argv) {
  using namespace pinion::cli;
  const auto app = make_parser();
  add_benches(*app);
  Words words = words_of(*app, argc, argv);
  words.arguments.insert(words.arguments.begin(), "bench");
  return parse(*app, words.arguments, 0);
}
