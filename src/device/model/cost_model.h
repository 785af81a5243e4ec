// The cost of registration on a NIC: t = a * translation entries + b (Ou et al. 2009, the model of the
// paper's section 3.2). Pure values; presets and files are read before threads start.
#pragma once

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/range.h"
#include "device/device.h"

namespace pinion {

/// No call is modelled longer: sums of calls have to fit a Duration for any ranges in a log.
constexpr Duration kLongestCall = 60 * kSecond;

struct CostModel {
  std::string name = "none";
  double register_ns_per_page = 0;    ///< a, registration
  double register_ns_base = 0;        ///< b, registration
  double deregister_ns_per_page = 0;  ///< a, deregistration
  double deregister_ns_base = 0;      ///< b, deregistration
  DeviceCaps caps;
  bool byte_ranges = false;  ///< DeviceCapabilities::byte_ranges

  Duration register_cost(std::size_t pages) const {
    return cost(register_ns_per_page, pages, register_ns_base);
  }
  Duration deregister_cost(std::size_t pages) const {
    return cost(deregister_ns_per_page, pages, deregister_ns_base);
  }

 private:
  static Duration cost(double per_page, std::size_t pages, double base) {
    return static_cast<Duration>(
        std::min(per_page * static_cast<double>(pages) + base, static_cast<double>(kLongestCall)));
  }
};

/// Time of the copy that stands in for a registration. Bounded, as a log may state any speed.
inline Duration copy_time(std::size_t bytes, double bytes_per_ns) {
  if (bytes_per_ns <= 0) return 0;
  return static_cast<Duration>(
      std::min(static_cast<double>(bytes) / bytes_per_ns, static_cast<double>(kLongestCall)));
}

/// A preset by name (`connectx`, `myrinet`, `none`) or the path of a file, which has a '/' or a '.' in it.
/// Lines of a file (base/settings_file.h): register_ns_per_page, register_ns_base, deregister_ns_per_page,
/// deregister_ns_base (numbers of ns), max_regions (a whole number), max_region_bytes and max_bytes (sizes
/// such as 2G); a key that is left out is 0. Errors name the presets, or the file, the line and the valid
/// form.
struct CostModelResult {
  Error error;
  CostModel model;
};
CostModelResult load_cost_model(const std::string& name_or_path);

/// Names of the presets with a line of text each, for `pinion info`.
struct CostModelPreset {
  const char* name;
  const char* text;
};
const CostModelPreset* cost_model_presets(std::size_t* count);

}  // namespace pinion
