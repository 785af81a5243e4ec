// `pinion info`: the options with their values in force, and every device, NIC and strategy there is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "base/range.h"
#include "cli/command.h"
#include "cli/text.h"
#include "device/fabric/fabric.h"
#include "device/make.h"
#include "device/model/cost_model.h"
#include "device/node_devices.h"
#include "lease/engine_options.h"
#include "retention/retention_options.h"

namespace pinion::cli {

namespace {

/// "2G, from PINION (default: 0)"
std::string in_force_text(const OptionSpec& spec, const Options& options,
                          const std::map<std::string, std::string>& sources) {
  const auto shown = [](const std::string& value) { return value.empty() ? std::string("-") : value; };
  const std::string value = shown(option_value(options, spec.name));
  const auto source = sources.find(spec.name);
  if (source == sources.end()) return value + ", the default";
  return fmt::format("{}, from {} (default: {})", value, source->second, shown(spec.default_value));
}

void print_options(bool all) {
  Options options;
  if (const Error error = options_from_environment(options)) throw UsageError(error.message);
  const std::map<std::string, std::string> sources = option_sources();
  std::vector<OptionSpec> specs = option_specs();
  const std::size_t there = specs.size();
  if (!all) std::erase_if(specs, [](const OptionSpec& spec) { return spec.listing == Listing::advanced; });
  std::size_t widest = 0;
  for (const OptionSpec& spec : specs) widest = std::max(widest, std::string(spec.name).size());
  fmt::print("{}",
             wrapped("Options, their values in force and where these come from. Set by --name VALUE or "
                     "--tune name=VALUE, by PINION=\"name=value,...\", or by name = value in the file of "
                     "PINION_CONFIG",
                     ""));
  for (const OptionSpec& spec : specs) {
    fmt::print("  {:<{}}  {:<7} {}\n", spec.name, widest, spec.type, in_force_text(spec, options, sources));
    std::string text = spec.text;
    if (!spec.choices.empty()) text += fmt::format(" ({})", fmt::join(spec.choices, ", "));
    fmt::print("{}", wrapped(text, "      "));
  }
  if (!all) fmt::print("{} more: pinion info options --all\n", there - specs.size());
}

constexpr const char* kIndent = "            ";

std::string cap_text(std::size_t cap, bool bytes) {
  if (cap == 0) return "none";
  return bytes ? bytes_text(static_cast<double>(cap)) : count_text(cap);
}

std::string capability_text(const DeviceCapabilities& can) {
  if (!can.registers) return "transfers are recorded";
  std::string text = can.pins ? "pins memory" : can.on_demand ? "faults memory in on demand" : "pins nothing";
  text += can.remote ? ", peers can get a key" : ", no peer can get a key";
  if (can.needs_endpoint) text += ", needs an endpoint";
  if (can.hides_from_children) text += ", memory may be missing in forked children";
  if (can.spends_modelled_time) text += ", takes modelled time";
  return text;
}

std::string ability_text(const FabricProvider& can) {
  std::string text = can.rma ? "puts and gets" : "no puts and gets";
  text += can.atomics ? ", atomics" : ", no atomics";
  text += can.automatic_progress ? ", progress by itself" : ", progress only as the target calls it";
  text += can.ordered_puts ? ", puts in order" : ", puts in any order";
  if (can.name.ends_with(";ofi_rxd")) text += "; hangs under load: not for use, take tcp;ofi_rxm";
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
    fmt::print("  {}\n{}{}", provider.name, wrapped(ability_text(provider), kIndent),
               wrapped("registration: " + registration_text(provider), kIndent));
}

void print_devices(bool) {
  fmt::print("Devices (--device)\n");
  std::size_t count = 0;
  const DeviceKind* kinds = device_kinds(&count);
  const std::string nic = Options{}.nic;
  for (std::size_t i = 0; i < count; ++i) {
    fmt::print("  {:<10}{}", kinds[i].name, wrapped(kinds[i].text, kIndent).substr(std::strlen(kIndent)));
    const DeviceResult made = make_device(kinds[i].name, nic);
    if (made.error) {
      fmt::print("{}", wrapped(fmt::format("not usable here: {}", made.error.message), kIndent));
      continue;
    }
    const DeviceCapabilities can = made.device->capabilities();
    fmt::print("{}", wrapped(fmt::format("here: {}", made.device->description()), kIndent));
    fmt::print("{}", wrapped(capability_text(can), kIndent));
    fmt::print("{}limits: regions {}, bytes of a region {}, bytes {}\n", kIndent,
               cap_text(can.caps.max_regions, false), cap_text(can.caps.max_region_bytes, true),
               cap_text(can.caps.max_bytes, true));
  }
  print_fabric_providers();
}

/// The RDMA ports here, and the models that stand for a NIC where there is none.
void print_nics(bool) {
  const std::vector<NodePort> ports = node_ports();
  fmt::print("RDMA ports of this machine{}\n", ports.empty() ? ": none" : "");
  for (const NodePort& port : ports)
    fmt::print("  {} port {}: {}{}\n", port.device, port.number, port.state,
               port.link_layer.empty() ? "" : ", " + port.link_layer);
  fmt::print("Cost models of a NIC (--nic), or a file\n");
  std::size_t count = 0;
  const CostModelPreset* presets = cost_model_presets(&count);
  for (std::size_t i = 0; i < count; ++i) {
    fmt::print("  {:<10}{}", presets[i].name, wrapped(presets[i].text, kIndent).substr(std::strlen(kIndent)));
    const CostModel model = load_cost_model(presets[i].name).model;
    const auto time = [&](std::size_t bytes) {
      return seconds_text(static_cast<double>(model.register_cost(bytes / page_size())) / 1e9);
    };
    fmt::print("{}registers 64 KiB in {}, 1 MiB in {}, 64 MiB in {}\n", kIndent, time(64 << 10),
               time(1 << 20), time(64 << 20));
  }
}

void print_strategies(bool) {
  fmt::print("Strategies (--retention)\n");
  for (const RetentionKind kind : kRetentionKinds)
    fmt::print("  {:<14}{}", to_string(kind), wrapped(traits_of(kind).text, std::string(16, ' ')).substr(16));
  for (const OptionSpec& spec : option_specs())
    if (std::string(spec.name) == "predictor")
      fmt::print("Predictors (--tune predictor=NAME): {}\n", fmt::join(spec.choices, ", "));
}

struct Topic {
  const char* name;
  void (*print)(bool all);
};
constexpr Topic kTopics[] = {{"options", print_options},
                             {"devices", print_devices},
                             {"nics", print_nics},
                             {"strategies", print_strategies}};

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("info", "List options and their values, devices, NICs and strategies");
  auto wanted = std::make_shared<std::string>();
  std::vector<std::string> names;
  for (const Topic& topic : kTopics) names.emplace_back(topic.name);
  sub->add_option("topic", *wanted, "options, devices, nics or strategies; all where left out")
      ->check(CLI::IsMember(names));
  auto all = std::make_shared<bool>(false);
  sub->add_flag("--all", *all, "all options, also those for --tune")->disable_flag_override();
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
