#include "base/options.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/nearest.h"

namespace pinion {

namespace {

template <class Words>
std::string joined(const Words& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

const char* valid_form(const OptionSpec& spec) {
  if (!std::strcmp(spec.type, "size")) return "a size such as 4096, 16K, 1.5M or 2G";
  if (!std::strcmp(spec.type, "count")) return "a whole number";
  if (!std::strcmp(spec.type, "share")) return "a share such as 0.5%, or off";
  if (!std::strcmp(spec.type, "time")) return "a time such as 500us, 5ms or 1s";
  return "a text";
}

}  // namespace

Error invalid_value(const OptionSpec& spec, std::string_view value) {
  const std::string shown(value.substr(0, 80));
  if (!spec.choices.empty())
    return Error::make(EINVAL, "option %s: '%s' is not one of: %s", spec.name, shown.c_str(),
                       joined(spec.choices).c_str());
  if (spec.form)
    return Error::make(EINVAL, "option %s: '%s' is not valid; expected %s%s", spec.name, shown.c_str(),
                       spec.form, spec.hint ? spec.hint(shown).c_str() : "");
  return Error::make(EINVAL, "option %s: '%s' is not valid; expected %s (%s)", spec.name, shown.c_str(),
                     valid_form(spec), spec.text);
}

Error unknown_option(std::string_view name, const std::vector<const char*>& valid) {
  const std::string shown(name.substr(0, 60));
  const std::string nearest(nearest_name(shown, {valid.begin(), valid.end()}));
  const std::string hint = nearest.empty() ? "" : "; the nearest is '" + nearest + "'";
  return Error::make(EINVAL, "unknown option '%s'%s; `pinion info options --all` lists the valid ones",
                     shown.c_str(), hint.c_str());
}

Error parse_settings(std::string_view text, const TakeSetting& take) {
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (item.empty()) continue;
    const auto equals = item.find('=');
    Error error;
    if (item == "off" || item == "on") {
      error = take("off", item == "off" ? "yes" : "no");
    } else if (equals == std::string_view::npos) {
      error =
          Error::make(EINVAL, "'%s' is not of the form name=value", std::string(item.substr(0, 80)).c_str());
    } else {
      error = take(item.substr(0, equals), item.substr(equals + 1));
    }
    if (error) return error;
  }
  return {};
}

}  // namespace pinion
