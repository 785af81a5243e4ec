// `pinion info`: every option, device and strategy there is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>

#include "command.h"
#include "device/cost_model.h"
#include "device/fabric.h"
#include "device/make.h"
#include "engine/options.h"
#include "retention/traits.h"
#include "system_files.h"
#include "text.h"

namespace pinion::cli {

namespace {

void print_options(bool all) {
  std::vector<OptionSpec> specs = option_specs();
  const std::size_t there = specs.size();
  if (!all) std::erase_if(specs, [](const OptionSpec& spec) { return spec.listing == Listing::advanced; });
  std::size_t widest = 0;
  for (const OptionSpec& spec : specs) widest = std::max(widest, std::string(spec.name).size());
  fmt::print(
      "Options: --name VALUE, PINION=\"name=value,...\", or name = value in the file of PINION_CONFIG\n");
  for (const OptionSpec& spec : specs) {
    fmt::print("  {:<{}}  {:<7} {:<9} {}", spec.name, widest, spec.type,
               spec.default_value.empty() ? "-" : spec.default_value, spec.text);
    if (!spec.choices.empty()) fmt::print(" ({})", fmt::join(spec.choices, ", "));
    fmt::print("\n");
  }
  if (!all) fmt::print("{} more: pinion info options --all\n", there - specs.size());
}

std::string cap_text(std::size_t cap, bool bytes) {
  if (cap == 0) return "none";
  return bytes ? bytes_text(static_cast<double>(cap)) : count_text(cap);
}

std::string capability_text(const DeviceCapabilities& can) {
  if (!can.registers) return "transfers are recorded";
  std::string text = can.pins ? "pins memory" : can.on_demand ? "faults memory in on demand" : "pins nothing";
  text += can.remote ? ", peers can get a key" : ", no peer can get a key";
  if (can.needs_endpoint) text += ", needs an endpoint";
  if (can.alias) text += ", peers may have another address";
  if (can.hides_from_children) text += ", memory may be missing in forked children";
  if (can.spends_modelled_time) text += ", takes modelled time";
  return text;
}

std::string ability_text(const FabricProvider& can) {
  std::string text = can.rma ? "puts and gets" : "no puts and gets";
  text += can.atomics ? ", atomics" : ", no atomics";
  text += can.automatic_progress ? ", progress by itself" : ", progress only as the target calls it";
  text += can.ordered_puts ? ", puts in order" : ", puts in any order";
  return text;
}

std::string registration_text(const FabricProvider& asks) {
  std::string text = asks.pins ? "pins memory" : "pins nothing: the kernel does";
  text += asks.virtual_addresses ? "; peers use addresses" : "; peers use offsets";
  text += asks.raw_keys        ? ", raw keys"
          : asks.provider_keys ? ", keys of the provider"
                               : ", keys of the program";
  if (asks.local) text += "; local buffers are registered, too";
  if (asks.endpoint) text += "; bound to an endpoint";
  return text;
}

void print_fabric_providers() {
  const FabricProviders found = fabric_providers();
  if (found.error) return;  // device fabric has reported it
  fmt::print("Providers of libfabric here (--device fabric:PROVIDER)\n");
  for (const FabricProvider& provider : found.providers)
    fmt::print("  {}\n            {}\n            registration: {}\n", provider.name, ability_text(provider),
               registration_text(provider));
}

void print_devices(bool) {
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
    const DeviceCapabilities can = made.device->capabilities();
    fmt::print("            here: {}\n", made.device->description());
    fmt::print("            {}\n", capability_text(can));
    fmt::print("            limits: regions {}, bytes of a region {}, bytes {}\n",
               cap_text(can.caps.max_regions, false), cap_text(can.caps.max_region_bytes, true),
               cap_text(can.caps.max_bytes, true));
  }
  print_fabric_providers();
  fmt::print("Cost models of the emulated device (--nic), or a file\n");
  const CostModelPreset* presets = cost_model_presets(&count);
  for (std::size_t i = 0; i < count; ++i) fmt::print("  {:<10}{}\n", presets[i].name, presets[i].text);
  const auto nics = names_in("/sys/class/infiniband");
  fmt::print("RDMA devices of this machine: {}\n",
             nics.empty() ? "none" : fmt::format("{}", fmt::join(nics, ", ")));
}

void print_strategies(bool) {
  fmt::print("Strategies (--retention)\n");
  for (const RetentionKind kind : kRetentionKinds)
    fmt::print("  {:<14}{}\n", to_string(kind), traits_of(kind).text);
  for (const OptionSpec& spec : option_specs())
    if (std::string(spec.name) == "predictor")
      fmt::print("Predictors (--predictor): {}\n", fmt::join(spec.choices, ", "));
}

struct Topic {
  const char* name;
  void (*print)(bool all);
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
  auto all = std::make_shared<bool>(false);
  sub->add_flag("--all", *all, "all options, also those for comparisons and experts")
      ->disable_flag_override();
  sub->callback([wanted, all] {
    bool first = true;
    for (const Topic& topic : kTopics) {
      if (!wanted->empty() && *wanted != topic.name) continue;
      if (!first) fmt::print("\n");
      first = false;
      topic.print(*all);
    }
  });
}

}  // namespace pinion::cli
