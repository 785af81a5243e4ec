#include "cli/typed.h"

#include <fmt/format.h>

namespace pinion::cli {

namespace {

/// Flags for the values that differ from the defaults.
std::string as_flags(const Options& options) {
  std::string text, tuned;
  for (const OptionSpec& spec : option_specs()) {
    const std::string value = option_value(options, spec.name);
    if (value == spec.default_value) continue;
    if (spec.listing == Listing::everyday)
      text += fmt::format(" --{} {}", spec.name, quoted(value));
    else
      tuned += fmt::format("{}{}={}", tuned.empty() ? "" : ",", spec.name, value);
  }
  return text + (tuned.empty() ? "" : " --tune " + pinion::quoted(tuned));
}

}  // namespace

std::string quoted(const CommandLine& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

std::string typed_run(const Options& options) { return "pinion run" + as_flags(options) + " -- "; }

}  // namespace pinion::cli
