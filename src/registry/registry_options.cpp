#include "registry/registry_options.h"

namespace pinion {

OptionTable<RegistryOptions> registry_options() {
  using O = RegistryOptions;
  return {
      size_limit_option(&O::limit,
                        {"limit",
                         "upper bound on bytes registered at a time in one process; 0: what the system "
                         "allows. Below libraries "
                         "it bounds their registrations for transfers, beyond those that they hold "
                         "themselves; in a measured "
                         "run it bounds the simulated strategies"}),
      count_option(
          &O::limit_regions,
          {"limit-regions",
           "upper bound on regions registered at a time in one process; 0: only the limits of its devices"}),
  };
}

}  // namespace pinion
