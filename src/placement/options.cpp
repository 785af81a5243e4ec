#include "placement/options.h"

namespace pinion {

namespace {

constexpr Choice<bool> kYesNo[] = {{"yes", true}, {"no", false}};

}  // namespace

OptionTable<PlacementOptions> placement_options() {
  using O = PlacementOptions;
  return {
      switch_option(&O::hugepages,
                    {"hugepages", "large blocks of malloc lie in hugepages, which register faster"}, kYesNo),
      size_option(&O::hugepage_threshold,
                  {"hugepage-threshold",
                   "smallest block that the hugepage heap serves, 4K to 1G; smaller ones go to the next "
                   "allocator",
                   Listing::advanced},
                  4 << 10, 1 << 30),
      switch_option(
          &O::hugepage_static,
          {"hugepage-static", "with hugepages: static arrays (.data, .bss) lie in transparent hugepages too",
           Listing::advanced},
          kYesNo),
  };
}

}  // namespace pinion
