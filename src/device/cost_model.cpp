#include "device/cost_model.h"

#include <array>
#include <optional>
#include <utility>

#include "base/options.h"

#if __has_include(<toml++/toml.h>)
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>
#define PINION_HAVE_TOML 1
#endif

namespace pinion {

namespace {

/// A preset and its costs in ns: a page's share, and the base.
struct Row {
  CostModelPreset preset;
  double register_per_page, register_base;
  double deregister_per_page, deregister_base;
};

// connectx: UCX's model of registration (uct/ib/base/ib_md.c); deregistration is 0.27 of it, the middle of
// what is
//   measured on such NICs (0.25 to 0.3).
// myrinet: 40 us for the first page and 6 ms for a deregistration are Bell and Bonachea's (Firehose, 2003).
// They give
//   nothing for further pages; 3 us each is an assumption: pinning by kernels of that time plus one write
//   into the NIC's table over PCI. Deregistration stalls the NIC whatever the size, so it has no share of a
//   page.
constexpr double kDeregisterShare = 0.27;
constexpr Row kRows[] = {
    {{"connectx", "InfiniBand ConnectX: 16 us + 246 ns a page (UCX's model), deregistration 0.27 of it"},
     246,
     16000,
     kDeregisterShare * 246,
     kDeregisterShare * 16000},
    {{"myrinet", "Myrinet/GM of 2003: 40 us the first page, 3 us each further one, deregistration 6 ms"},
     3000,
     37000,
     0,
     6e6},
    {{"none", "no NIC: nothing beyond the pinning itself"}, 0, 0, 0, 0},
};

bool is_file(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".toml");
}

#ifdef PINION_HAVE_TOML

struct CostKey {
  const char* name;
  double CostModel::*value;
};
constexpr CostKey kCostKeys[] = {
    {"register_ns_per_page", &CostModel::register_ns_per_page},
    {"register_ns_base", &CostModel::register_ns_base},
    {"deregister_ns_per_page", &CostModel::deregister_ns_per_page},
    {"deregister_ns_base", &CostModel::deregister_ns_base},
};
struct CapKey {
  const char* name;
  std::size_t DeviceCaps::*value;
};
constexpr CapKey kCapKeys[] = {
    {"max_regions", &DeviceCaps::max_regions},
    {"max_region_bytes", &DeviceCaps::max_region_bytes},
    {"max_bytes", &DeviceCaps::max_bytes},
};

Error set_key(CostModel& model, const std::string& path, const std::string& key, const toml::node& node) {
  for (const CostKey& cost : kCostKeys) {
    if (key != cost.name) continue;
    const std::optional<double> value = node.value<double>();
    // At most a second: a page that costs more is a mistake of units, and sums of costs must fit a Duration.
    if (!node.is_number() || !value || !(*value >= 0 && *value <= 1e9)) {
      return Error::make(EINVAL, "%s: '%s' must be a number of nanoseconds from 0 to 1e9", path.c_str(),
                         cost.name);
    }
    model.*cost.value = *value;
    return {};
  }
  for (const CapKey& cap : kCapKeys) {
    if (key != cap.name) continue;
    std::optional<std::uint64_t> value;
    if (const auto number = node.value_exact<std::int64_t>(); number && *number >= 0) value = *number;
    if (const auto text = node.value_exact<std::string>()) value = parse_size(*text);
    if (!value) {
      return Error::make(EINVAL, "%s: '%s' must be a whole number or a size such as \"2G\" (0: no limit)",
                         path.c_str(), cap.name);
    }
    model.caps.*cap.value = *value;
    return {};
  }
  std::string valid;
  for (const CostKey& cost : kCostKeys) valid += std::string(cost.name) + ", ";
  for (const CapKey& cap : kCapKeys) valid += std::string(cap.name) + ", ";
  valid.resize(valid.size() - 2);
  return Error::make(EINVAL, "%s: unknown key '%s'; valid: %s", path.c_str(), key.c_str(), valid.c_str());
}

CostModelResult load_file(const std::string& path) {
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    return {Error::make(EINVAL, "%s: %s (line %u)", path.c_str(),
                        std::string(parsed.error().description()).c_str(),
                        static_cast<unsigned>(parsed.error().source().begin.line)),
            {}};
  }
  CostModel model;
  model.name = path;
  for (const auto& [key, node] : parsed.table()) {
    if (Error error = set_key(model, path, std::string(key.str()), node)) return {error, {}};
  }
  return {{}, std::move(model)};
}

#else

CostModelResult load_file(const std::string& path) {
  return {Error::make(ENOTSUP, "%s: this build reads no cost model files (toml++ was absent); use a preset",
                      path.c_str()),
          {}};
}

#endif

}  // namespace

CostModelResult load_cost_model(const std::string& name_or_path) {
  if (is_file(name_or_path)) return load_file(name_or_path);
  std::string valid;
  for (const Row& row : kRows) {
    if (name_or_path == row.preset.name) {
      return {{},
              {row.preset.name,
               row.register_per_page,
               row.register_base,
               row.deregister_per_page,
               row.deregister_base,
               {}}};
    }
    valid += std::string(row.preset.name) + ", ";
  }
  return {Error::make(EINVAL, "no cost model is called '%s'; valid: %sor a TOML file", name_or_path.c_str(),
                      valid.c_str()),
          {}};
}

const CostModelPreset* cost_model_presets(std::size_t* count) {
  static const auto presets = [] {
    std::array<CostModelPreset, std::size(kRows)> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = kRows[i].preset;
    return out;
  }();
  *count = presets.size();
  return presets.data();
}

}  // namespace pinion
