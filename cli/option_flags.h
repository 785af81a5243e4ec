// The option table as command-line flags, merged over PINION_CONFIG and PINION.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "lease/engine_options.h"

namespace CLI {
class App;
}

namespace pinion::cli {

/// The heading of these flags in `--help`.
inline constexpr const char* kTableGroup =
    "Pinion's options (also PINION=\"name=value,...\"; all of them: pinion info options --all)";

/// Adds the options of the version before, hidden, which are warned of and have no effect.
void add_retired_options(CLI::App& command);

class OptionFlags {
 public:
  /// Adds `--name VALUE` for every everyday option of the table but those in `except`, which the command has
  /// itself, and `--tune NAME=VALUE,...` for the others. Stays where it is from then on: parsing writes into
  /// it.
  void add_to(CLI::App& command, std::initializer_list<std::string_view> except = {});

  /// Sets one value, as the flag would.
  void set(const std::string& name, std::string value) { values_[name] = std::move(value); }
  /// The environment's options, overridden by the flags. Throws UsageError for invalid ones.
  Options options() const;

  /// Prints a line on stderr for each of `device` and `nic` that was given without effect.
  void note_unused() const;

 private:
  std::map<std::string, std::string> values_;  ///< as given, by name
};

}  // namespace pinion::cli
