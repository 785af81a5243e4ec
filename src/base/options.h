// The mechanism of options: rows of tables by the type of their value, for command flags, the environment
// variable PINION, configuration files and `pinion info options` alike. Each room that has settings declares
// a struct of them and a table of rows (`<room>/options.h`); lease/engine_options.h puts the tables
// together. Tables are made once and then only read; settings are filled before threads start. For ordinary
// code, outside of hooks.
#pragma once

#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/settings_file.h"
#include "base/units.h"

namespace pinion {

/// Chooses the list that shows an option: every user's, or the list of all.
enum class Listing : std::uint8_t { everyday, advanced };

/// An option as users see it.
struct OptionSpec {
  const char* name;  ///< as in `--name value`, `PINION="name=value"` and files
  const char* text;  ///< one line
  Listing listing = Listing::everyday;
  const char* form = nullptr;                       ///< the valid values, where the type leaves them open
  std::string (*hint)(std::string_view) = nullptr;  ///< after the error about a value: a likely meaning
  const char* alone = nullptr;                      ///< the value of a flag's name that stands alone
  // Set by the functions below.
  const char* type = "text";       ///< size, count, time, share, choice, text, switch
  std::string default_value = {};  ///< as the user would write it
  std::vector<std::string> choices = {};
};

/// A row of the table of Settings.
template <class Settings>
struct Option {
  OptionSpec spec;
  std::function<bool(Settings&, std::string_view)> set;  ///< false for an invalid value
  std::function<std::string(const Settings&)> get;
};
template <class Settings>
using OptionTable = std::vector<Option<Settings>>;

// ---- rows by type ----

template <class Settings, class Set, class Get>
Option<Settings> make_option(OptionSpec spec, const char* type, Set set, Get get) {
  spec.type = type;
  spec.default_value = get(Settings{});
  return {std::move(spec), std::move(set), std::move(get)};
}

template <class Settings, class IsValid>
Option<Settings> size_option_where(std::uint64_t Settings::*at, OptionSpec spec, IsValid is_valid) {
  return make_option<Settings>(
      std::move(spec), "size",
      [=](Settings& settings, std::string_view text) {
        const auto value = parse_size(text);
        if (!value || !is_valid(*value)) return false;
        settings.*at = *value;
        return true;
      },
      [=](const Settings& settings) { return format_size(settings.*at); });
}

template <class Settings>
Option<Settings> size_option(std::uint64_t Settings::*at, OptionSpec spec, std::uint64_t least = 0,
                             std::uint64_t most = UINT64_MAX) {
  return size_option_where(at, std::move(spec),
                           [=](std::uint64_t bytes) { return bytes >= least && bytes <= most; });
}

/// A bound of bytes: 0, or 4096 and more, since less is a slip such as a unit left out.
template <class Settings>
Option<Settings> size_limit_option(std::uint64_t Settings::*at, OptionSpec spec) {
  spec.form = "a size such as 4096, 16K, 1.5M or 2G, of 4096 bytes at least, or 0";
  return size_option_where(at, std::move(spec),
                           [](std::uint64_t bytes) { return bytes == 0 || bytes >= 4096; });
}

template <class Settings>
Option<Settings> count_option(std::uint64_t Settings::*at, OptionSpec spec, std::uint64_t least = 0,
                              std::uint64_t most = UINT64_MAX) {
  return make_option<Settings>(
      std::move(spec), "count",
      [=](Settings& settings, std::string_view text) {
        const auto value = parse_count(text);
        if (!value || *value < least || *value > most) return false;
        settings.*at = *value;
        return true;
      },
      [=](const Settings& settings) { return std::to_string(settings.*at); });
}

template <class Settings>
Option<Settings> time_option(Duration Settings::*at, OptionSpec spec, Duration least, Duration most) {
  return make_option<Settings>(
      std::move(spec), "time",
      [=](Settings& settings, std::string_view text) {
        const auto value = parse_duration(text);
        if (!value || *value < least || *value > most) return false;
        settings.*at = *value;
        return true;
      },
      [=](const Settings& settings) { return format_duration(settings.*at); });
}

inline constexpr std::uint64_t kAutoSize = UINT64_MAX;

/// A size, or `auto`, which is kAutoSize.
template <class Settings>
Option<Settings> size_or_auto_option(std::uint64_t Settings::*at, OptionSpec spec) {
  return make_option<Settings>(
      std::move(spec), "size",
      [=](Settings& settings, std::string_view text) {
        const auto value = text == "auto" ? std::optional<std::uint64_t>(kAutoSize) : parse_size(text);
        if (!value) return false;
        settings.*at = *value;
        return true;
      },
      [=](const Settings& settings) {
        return settings.*at == kAutoSize ? std::string("auto") : format_size(settings.*at);
      });
}

/// A share, or `off`, which is negative.
template <class Settings>
Option<Settings> share_option(double Settings::*at, OptionSpec spec) {
  return make_option<Settings>(
      std::move(spec), "share",
      [=](Settings& settings, std::string_view text) {
        const auto value = parse_share(text);
        if (!value && text != "off") return false;
        settings.*at = value.value_or(-1);
        return true;
      },
      [=](const Settings& settings) {
        return settings.*at < 0 ? std::string("off") : format_share(settings.*at);
      });
}

template <class Settings>
Option<Settings> text_option(std::string Settings::*at, OptionSpec spec,
                             bool (*is_valid)(std::string_view) = nullptr) {
  return make_option<Settings>(
      std::move(spec), "text",
      [=](Settings& settings, std::string_view text) {
        if (is_valid && !is_valid(text)) return false;
        settings.*at = text;
        return true;
      },
      [=](const Settings& settings) { return settings.*at; });
}

/// A name of a value.
template <class Value>
struct Choice {
  const char* name;
  Value value;
};

/// `choices` is of static storage. A value without a name, which the program may have set, shows as the
/// default.
template <class Settings, class Value, std::size_t count>
Option<Settings> choice_option(Value Settings::*at, OptionSpec spec, const Choice<Value> (&choices)[count],
                               const char* type = "choice") {
  for (const Choice<Value>& choice : choices) spec.choices.emplace_back(choice.name);
  const auto name_of = [&choices](const Value& value) -> const char* {
    for (const Choice<Value>& choice : choices)
      if (choice.value == value) return choice.name;
    return nullptr;
  };
  return make_option<Settings>(
      std::move(spec), type,
      [=, &choices](Settings& settings, std::string_view text) {
        for (const Choice<Value>& choice : choices) {
          if (text != choice.name) continue;
          settings.*at = choice.value;
          return true;
        }
        return false;
      },
      [=](const Settings& settings) {
        const char* const name = name_of(settings.*at);
        return std::string(name ? name : name_of(Settings{}.*at));
      });
}

template <class Settings, std::size_t count>
Option<Settings> switch_option(bool Settings::*at, OptionSpec spec, const Choice<bool> (&choices)[count]) {
  if (!(Settings{}.*at)) spec.alone = "yes";
  return choice_option(at, std::move(spec), choices, "switch");
}

// ---- tables ----

/// Adds the table of a room to that of settings which derive from the room's.
template <class Whole, class Part>
void append(OptionTable<Whole>& whole, const OptionTable<Part>& part) {
  for (const Option<Part>& row : part) whole.push_back({row.spec, row.set, row.get});
}

/// The error names the valid choices, or the valid form.
Error invalid_value(const OptionSpec& spec, std::string_view value);
/// The error names the nearest of the valid names, if one is near.
Error unknown_option(std::string_view name, const std::vector<const char*>& valid);

/// Sets one option.
template <class Settings>
Error set_option(const OptionTable<Settings>& table, Settings& settings, std::string_view name,
                 std::string_view value) {
  std::vector<const char*> names;
  for (const Option<Settings>& row : table) {
    if (name == row.spec.name) return row.set(settings, value) ? Error{} : invalid_value(row.spec, value);
    names.push_back(row.spec.name);
  }
  return unknown_option(name, names);
}

/// The values that differ from the defaults, in the form that parse_settings() reads.
template <class Settings>
std::string format_options(const OptionTable<Settings>& table, const Settings& settings) {
  std::string text;
  for (const Option<Settings>& row : table) {
    const std::string value = row.get(settings);
    if (value != row.spec.default_value) text += (text.empty() ? "" : ",") + (row.spec.name + ("=" + value));
  }
  return text;
}

/// Calls `take` for each setting of "limit=2G,retention=helper", in order; also for the single words `off`
/// and `on`, which set `off`. An error ends it.
Error parse_settings(std::string_view text, const TakeSetting& take);

}  // namespace pinion
