// `papers`: simulations of the papers' programs. scripts/paper and scripts/recompute-docs run it.
#include <CLI/CLI.hpp>

#include "cli/parser.h"
#include "papers/papers.h"

int main(int argc, char** argv) {
  using namespace pinion::cli;
  const auto app = make_parser();
  add_paper_simulate(*app);
  add_firehose_study(*app);
  Words words = words_of(*app, argc, argv);
  return parse(*app, words.arguments, 0);
}
