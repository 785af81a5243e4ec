// The option table as command-line flags, merged over PINION_CONFIG and PINION.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "base/options.h"

namespace CLI {
class App;
}

namespace pinion::cli {

class OptionFlags {
 public:
  /// Adds `--name VALUE` for every option of the table but those in `except`, which the command has itself.
  void add_to(CLI::App& command, std::initializer_list<std::string_view> except = {});

  /// Sets one value, as the flag would.
  void set(const std::string& name, std::string value) { values_[name] = std::move(value); }
  bool given(const std::string& name) const {
    const auto value = values_.find(name);
    return value != values_.end() && !value->second.empty();
  }

  /// What the environment says, then the flags, which override it. Throws UsageError for whatever is not
  /// valid.
  Options options() const;

 private:
  std::map<std::string, std::string> values_;  ///< by name; empty: not given
};

}  // namespace pinion::cli
