#include "registry/options.h"

namespace pinion {

OptionTable<RegistryOptions> registry_options() {
  using O = RegistryOptions;
  return {
      size_option(
          &O::limit,
          {"limit",
           "most bytes registered at a time in one process; 0: what the system leaves to it. Below "
           "libraries: "
           "of what they register for transfers, beyond what they hold themselves; measured only: of the "
           "simulated strategies"}),
      count_option(&O::limit_regions,
                   {"limit-regions",
                    "most regions registered at a time in one process; 0: the limits of its devices alone",
                    Listing::advanced}),
  };
}

}  // namespace pinion
