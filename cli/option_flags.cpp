#include "cli/option_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "cli/command.h"
#include "cli/error_line.h"
#include "device/make.h"
#include "device/model/cost_model.h"
#include "helper/profile_file.h"

namespace pinion::cli {

namespace {

std::string description(const OptionSpec& spec) {
  std::string text = spec.text;
  if (!spec.choices.empty()) text += fmt::format(": {}", fmt::join(spec.choices, ", "));
  if (!spec.default_value.empty()) text += fmt::format(" [{}]", spec.default_value);
  return text;
}

std::string type_name(const OptionSpec& spec) {
  std::string name = std::strcmp(spec.name, "log") == 0 ? "DIR" : spec.type;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace

void add_retired_options(CLI::App& command) {
  for (const RetiredOption& retired : kRetiredOptions) {
    const auto warn = [&retired](const std::string& value) {
      Options ignored;
      (void)set_option(ignored, retired.name, value);
    };
    command.add_option_function<std::string>(std::string("--") + retired.name, warn)->group("");
  }
}

void OptionFlags::add_to(CLI::App& command, std::initializer_list<std::string_view> except) {
  for (const OptionSpec& spec : option_specs()) {
    const bool is_left_out = std::find(except.begin(), except.end(), spec.name) != except.end();
    if (is_left_out || spec.listing == Listing::advanced) continue;
    const auto keep = [this, name = std::string(spec.name)](const std::string& value) {
      values_[name] = value;
    };
    CLI::Option* const flag =
        command.add_option_function<std::string>(std::string("--") + spec.name, keep, description(spec))
            ->type_name(type_name(spec))
            ->group(kTableGroup);
    if (spec.alone != nullptr) flag->expected(0, 1)->default_str(spec.alone);
  }
  const auto tune = [this](const std::string& settings) {
    const auto keep = [this](std::string_view name, std::string_view value) -> Error {
      values_[std::string(name)] = value;
      return {};
    };
    if (settings.empty()) throw UsageError("--tune: the value is empty (an unset variable?)");
    if (const Error error = parse_settings(settings, keep))
      throw UsageError(std::string("--tune: ") + error.message);
  };
  add_retired_options(command);
  command.add_option_function<std::string>("--tune", tune, "options for experts: pinion info options --all")
      ->type_name("NAME=VALUE,...")
      ->trigger_on_parse()
      ->group(kTableGroup);
}

Options OptionFlags::options() const {
  Options options;
  if (const Error error = options_from_environment(options)) throw UsageError(error.message);
  for (const auto& [name, value] : values_) {
    if (const Error error = set_option(options, name, value)) throw UsageError(error.message);
  }
  const std::string text = format_options(options);
  Options carried;
  if (parse_options(carried, text) || format_options(carried) != text)
    throw UsageError(fmt::format("a value has a comma, which PINION cannot carry: {}", text));
  // Here it is one message; in the program it would be one a rank.
  if (const CostModelResult nic = load_cost_model(options.nic); nic.error)
    throw UsageError(nic.error.message);
  if (const Error device = check_device(options.device)) throw UsageError(device.message);
  if (std::string profile; !options.profile.empty())
    if (const Error unread = read_profile(options.profile, profile)) throw UsageError(unread.message);
  return options;
}

void OptionFlags::note_unused() const {
  const Options chosen = options(), defaults;
  const bool below = chosen.front == Front::verbs;
  const auto note = [](const std::string& option, const std::string& use, const std::string& instead) {
    print_error_line(
        fmt::format("{} has no effect: it is for {}, and this runs with {}", option, use, instead));
  };
  if (below && (chosen.device != defaults.device || values_.count("device")))
    note("--device " + chosen.device, "--front mpi", "--front verbs");
  // A measured run simulates its figures for this NIC.
  if (!below && chosen.device == kAutoDevice) return;
  const DeviceKind* const kind = device_kind(chosen.device);
  if ((below || kind == nullptr || !kind->takes_nic) && (chosen.nic != defaults.nic || values_.count("nic")))
    note("--nic " + chosen.nic, "--device emulated", below ? "--front verbs" : "--device " + chosen.device);
}

}  // namespace pinion::cli
