// The option table as command-line flags, merged over PINION_CONFIG and PINION.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "engine/engine_options.h"

namespace CLI {
class App;
}

namespace pinion::cli {

/// The heading of these flags in `--help`, which leaves the advanced ones out.
inline constexpr const char* kTableGroup =
    "Pinion's options (also PINION=\"name=value,...\"; all of them: pinion info options --all)";
inline constexpr const char* kAdvancedGroup = "";

class OptionFlags {
 public:
  /// Adds `--name VALUE` for every option of the table but those in `except`, which the command has itself.
  /// Stays where it is from then on: parsing writes into it.
  void add_to(CLI::App& command, std::initializer_list<std::string_view> except = {});

  /// Sets one value, as the flag would.
  void set(const std::string& name, std::string value) { values_[name] = std::move(value); }
  /// The environment's options, overridden by the flags. Throws UsageError for invalid ones.
  Options options() const;

  /// A line on stderr for `device` and `nic` each, where they were given and stay unused.
  void note_unused() const;

 private:
  std::map<std::string, std::string> values_;  ///< as given, by name
};

}  // namespace pinion::cli
