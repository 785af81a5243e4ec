// The parser of `pinion` as JSON: each command with its arguments and options. Man pages and shell completion
// are made from it (packaging/manual), so that they have the options that the parser has.
#pragma once

#include "cli/command.h"
#include "cli/report/report_json.h"

namespace pinion::cli {

/// `pinion --parser-table` prints it and nothing else: for the build, not for users.
inline constexpr const char* kParserTableFlag = "--parser-table";
Json parser_table(const CLI::App& app);
void print_parser_table(const Json& table);

}  // namespace pinion::cli
