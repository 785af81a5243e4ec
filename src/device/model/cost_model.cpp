#include "device/model/cost_model.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/settings_file.h"
#include "base/units.h"

namespace pinion {

namespace {

/// A preset and its costs in ns: a page's share, and the base.
struct Row {
  CostModelPreset preset;
  double register_per_page, register_base;
  double deregister_per_page, deregister_base;
};

// connectx: UCX's model of registration (uct/ib/base/ib_md.c); deregistration is 0.27 of it, the middle of
// measurements on such NICs (0.25 to 0.3). myrinet: 40 us for the first page and 6 ms for a deregistration
// are Bell and Bonachea's (Firehose, 2003). They give
//   nothing for further pages; 3 us each is an assumption: pinning by kernels of that time plus one write
//   into the NIC's table over PCI. Deregistration stalls the NIC at any size, so pages add nothing to it.
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

/// Presets have neither.
bool is_file(const std::string& name) { return name.find_first_of("/.") != std::string::npos; }

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
  bool is_size;
};
constexpr CapKey kCapKeys[] = {
    {"max_regions", &DeviceCaps::max_regions, false},
    {"max_region_bytes", &DeviceCaps::max_region_bytes, true},
    {"max_bytes", &DeviceCaps::max_bytes, true},
};

/// Parses a second at most: a page that costs more is a mistake of units, and sums of costs must fit a
/// Duration.
std::optional<double> parse_nanoseconds(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value <= 1e9)) return {};
  return value;
}

Error set_key(CostModel& model, std::string_view key, std::string_view value) {
  const std::string shown(value.substr(0, 80));
  for (const CostKey& cost : kCostKeys) {
    if (key != cost.name) continue;
    const auto number = parse_nanoseconds(value);
    if (!number)
      return Error::make(EINVAL, "%s: '%s' is not valid; expected a number of nanoseconds from 0 to 1e9",
                         cost.name, shown.c_str());
    model.*cost.value = *number;
    return {};
  }
  for (const CapKey& cap : kCapKeys) {
    if (key != cap.name) continue;
    const bool whole = value.find_first_not_of("0123456789") == std::string_view::npos;
    const auto number = whole || cap.is_size ? parse_size(value) : std::nullopt;
    if (!number)
      return Error::make(EINVAL, "%s: '%s' is not valid; expected %s (0: no limit)", cap.name, shown.c_str(),
                         cap.is_size ? "a size such as 4096, 16K, 1.5M or 2G" : "a whole number");
    model.caps.*cap.value = *number;
    return {};
  }
  std::string valid;
  for (const CostKey& cost : kCostKeys) valid += std::string(cost.name) + ", ";
  for (const CapKey& cap : kCapKeys) valid += std::string(cap.name) + ", ";
  valid.resize(valid.size() - 2);
  return Error::make(EINVAL, "unknown key '%s'; valid keys: %s", std::string(key.substr(0, 60)).c_str(),
                     valid.c_str());
}

CostModelResult load_file(const std::string& path) {
  CostModelResult result;
  result.model.name = path;
  result.error = read_settings(
      path, [&](std::string_view key, std::string_view value) { return set_key(result.model, key, value); });
  // Any error of the file makes the option that names it wrong.
  if (result.error) result.error.code = EINVAL;
  return result;
}

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
  return {
      Error::make(EINVAL, "no cost model is called '%s'; valid: %sor a file's path, with a / or a . in it",
                  name_or_path.c_str(), valid.c_str()),
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
