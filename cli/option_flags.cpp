#include "option_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "command.h"
#include "device/cost_model.h"

namespace pinion::cli {

namespace {

std::string description(const OptionSpec& spec) {
  std::string text = spec.text;
  if (!spec.choices.empty()) text += fmt::format(": {}", fmt::join(spec.choices, ", "));
  if (spec.default_value[0]) text += fmt::format(" [{}]", spec.default_value);
  return text;
}

std::string type_name(const OptionSpec& spec) {
  std::string name = std::strcmp(spec.name, "log") == 0 ? "DIR" : spec.type;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace

void OptionFlags::add_to(CLI::App& command, std::initializer_list<std::string_view> except) {
  for (const OptionSpec& spec : option_specs()) {
    if (std::find(except.begin(), except.end(), spec.name) != except.end()) continue;
    command.add_option(std::string("--") + spec.name, values_[spec.name], description(spec))
        ->type_name(type_name(spec))
        ->group("Pinion's options (also PINION=\"name=value,...\")");
  }
}

Options OptionFlags::options() const {
  Options options;
  if (const Error error = options_from_environment(options)) throw UsageError(error.message);
  for (const auto& [name, value] : values_) {
    if (value.empty()) continue;
    if (const Error error = set_option(options, name, value)) throw UsageError(error.message);
  }
  const std::string text = format_options(options);
  Options carried;
  if (parse_options(carried, text) || format_options(carried) != text)
    throw UsageError(fmt::format("a value has a comma, which PINION cannot carry: {}", text));
  // Here it is one message; in the program it would be one a rank.
  if (options.device == "emulated")
    if (const CostModelResult nic = load_cost_model(options.nic); nic.error)
      throw UsageError(nic.error.message);
  return options;
}

}  // namespace pinion::cli
