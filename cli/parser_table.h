// The parser of `pinion` as JSON: each command with its arguments and options. Man pages and shell completion
// are made from it (packaging/manual), so that they have the options that the parser has.
#pragma once

namespace CLI {
class App;
}

namespace pinion::cli {

/// `pinion --parser-table` prints it and nothing else: for the build, not for users.
constexpr const char* kParserTableFlag = "--parser-table";
void print_parser_table(const CLI::App& app);

}  // namespace pinion::cli
