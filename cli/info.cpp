// `pinion info`: every option, device and strategy there is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>

#include "base/options.h"
#include "command.h"
#include "device/cost_model.h"
#include "device/make.h"
#include "retention/traits.h"
#include "system_files.h"
#include "text.h"

namespace pinion::cli {

namespace {

void print_options() {
  std::size_t widest = 0;
  for (const OptionSpec& spec : option_specs()) widest = std::max(widest, std::string(spec.name).size());
  fmt::print(
      "Options: --name VALUE, PINION=\"name=value,...\", or name = value in the file of PINION_CONFIG\n");
  for (const OptionSpec& spec : option_specs()) {
    fmt::print("  {:<{}}  {:<7} {:<9} {}", spec.name, widest, spec.type,
               spec.default_value[0] ? spec.default_value : "-", spec.text);
    if (!spec.choices.empty()) fmt::print(" ({})", fmt::join(spec.choices, ", "));
    fmt::print("\n");
  }
}

std::string cap_text(std::size_t cap, bool bytes) {
  if (cap == 0) return "none";
  return bytes ? bytes_text(static_cast<double>(cap)) : count_text(cap);
}

void print_devices() {
  fmt::print("Devices (--device)\n");
  std::size_t count = 0;
  const DeviceKind* kinds = device_kinds(&count);
  const std::string nic = Options{}.nic;
  for (std::size_t i = 0; i < count; ++i) {
    fmt::print("  {:<10}{}\n", kinds[i].name, kinds[i].text);
    const DeviceResult made = make_device(kinds[i].name, nic);
    if (made.error) {
      fmt::print("            not usable here: {}\n", made.error.message);
      continue;
    }
    const DeviceCaps caps = made.device->caps();
    fmt::print("            here: {}\n", made.device->description());
    fmt::print("            limits: regions {}, bytes of a region {}, bytes {}\n",
               cap_text(caps.max_regions, false), cap_text(caps.max_region_bytes, true),
               cap_text(caps.max_bytes, true));
  }
  fmt::print("Cost models of the emulated device (--nic), or a file\n");
  const CostModelPreset* presets = cost_model_presets(&count);
  for (std::size_t i = 0; i < count; ++i) fmt::print("  {:<10}{}\n", presets[i].name, presets[i].text);
  const auto nics = names_in("/sys/class/infiniband");
  fmt::print("RDMA devices of this machine: {}\n",
             nics.empty() ? "none" : fmt::format("{}", fmt::join(nics, ", ")));
}

void print_strategies() {
  fmt::print("Strategies (--retention)\n");
  for (const RetentionKind kind : kRetentionKinds)
    fmt::print("  {:<14}{}\n", to_string(kind), traits_of(kind).text);
  for (const OptionSpec& spec : option_specs())
    if (std::string(spec.name) == "predictor")
      fmt::print("Predictors (--predictor): {}\n", fmt::join(spec.choices, ", "));
}

struct Topic {
  const char* name;
  void (*print)();
};
constexpr Topic kTopics[] = {
    {"options", print_options}, {"devices", print_devices}, {"strategies", print_strategies}};

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("info", "List options, devices and strategies");
  auto wanted = std::make_shared<std::string>();
  std::vector<std::string> names;
  for (const Topic& topic : kTopics) names.emplace_back(topic.name);
  sub->add_option("topic", *wanted, "options, devices or strategies; all where left out")
      ->check(CLI::IsMember(names));
  sub->callback([wanted] {
    bool first = true;
    for (const Topic& topic : kTopics) {
      if (!wanted->empty() && *wanted != topic.name) continue;
      if (!first) fmt::print("\n");
      first = false;
      topic.print();
    }
  });
}

}  // namespace pinion::cli
