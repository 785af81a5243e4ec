#include "cli/parser_table.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/version.h"
#include "cli/option_flags.h"

namespace pinion::cli {

namespace {

// The row of the option table behind a flag; null: the option is the command's own.
const OptionSpec* table_row(const std::vector<OptionSpec>& specs, const CLI::Option& option) {
  if (option.get_group() != kTableGroup) return nullptr;
  for (const OptionSpec& spec : specs)
    if (option.check_lname(spec.name)) return &spec;
  return nullptr;
}

// CLI11 keeps the values of IsMember in the type's name alone: "TEXT:{a,b}".
std::vector<std::string> members(const std::string& type) {
  std::vector<std::string> found;
  const std::size_t open = type.find('{');
  if (open == std::string::npos || type.back() != '}') return found;
  std::istringstream words(type.substr(open + 1, type.size() - open - 2));
  for (std::string word; std::getline(words, word, ',');) found.push_back(word);
  return found;
}

Json to_json(const CLI::Option& option, const OptionSpec* row) {
  const bool takes_value = option.get_type_size_max() > 0;
  const std::string type = takes_value ? option.get_type_name() : "";
  Json json;
  json["name"] = option.get_positional() ? option.get_single_name() : "--" + option.get_lnames().at(0);
  json["type"] = type.substr(0, type.find(':'));
  json["text"] = option.get_description();
  json["choices"] = row ? row->choices : members(type);
  json["value_optional"] = takes_value && option.get_items_expected_min() == 0;
  json["of_table"] = option.get_group() == kTableGroup;
  return json;
}

Json to_json(const CLI::App& command, const std::vector<OptionSpec>& specs) {
  Json json;
  json["name"] = command.get_name();
  json["text"] = command.get_description();
  json["starts_program"] = command.get_option_no_throw("command") != nullptr;
  json["arguments"] = json["options"] = Json::array();
  for (const CLI::Option* option : command.get_options()) {
    const OptionSpec* const row = table_row(specs, *option);
    if (!row && option->get_group().empty()) continue;  // between Pinion's own processes
    json[option->get_positional() ? "arguments" : "options"].push_back(to_json(*option, row));
  }
  return json;
}

}  // namespace

Json parser_table(const CLI::App& app) {
  const std::vector<OptionSpec> specs = option_specs();
  Json json;
  json["version"] = PINION_VERSION;
  json["text"] = app.get_description();
  json["commands"] = Json::array();
  for (const CLI::App* command : app.get_subcommands({}))
    json["commands"].push_back(to_json(*command, specs));
  return json;
}

void print_parser_table(const Json& table) { fmt::print("{}", dump(table)); }

}  // namespace pinion::cli
