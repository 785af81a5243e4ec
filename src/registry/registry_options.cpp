#include "registry/registry_options.h"

namespace pinion {

OptionTable<RegistryOptions> registry_options() {
  using O = RegistryOptions;
  return {
      size_option(
          &O::limit,
          {"limit",
           "most bytes registered at a time in one process; 0: the rest that the system allows. Below "
           "libraries: "
           "of their registrations for transfers, beyond those that they hold themselves; measured only: of "
           "the "
           "simulated strategies"}),
      count_option(&O::limit_regions,
                   {"limit-regions",
                    "most regions registered at a time in one process; 0: the limits of its devices alone",
                    Listing::advanced}),
  };
}

}  // namespace pinion
