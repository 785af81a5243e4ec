#include "placement/placement_options.h"

#include "placement/granules.h"

namespace pinion {

namespace {

constexpr Choice<Hugepages> kHugepages[] = {{"auto", Hugepages::automatic},
                                            {"heap", Hugepages::heap},
                                            {"off", Hugepages::off},
                                            {"yes", Hugepages::heap},
                                            {"no", Hugepages::off}};
constexpr Choice<bool> kYesNo[] = {{"yes", true}, {"no", false}};

bool set_arena(PlacementOptions& options, std::string_view text) {
  constexpr std::uint64_t kLeast = 64 << 20, kMost = Granules::kMostAddresses;
  const auto bytes = parse_size(text);
  if (!bytes || (*bytes != 0 && (*bytes < kLeast || *bytes > kMost))) return false;
  options.preregister = *bytes;
  return true;
}

}  // namespace

OptionTable<PlacementOptions> placement_options() {
  using O = PlacementOptions;
  return {
      choice_option(
          &O::hugepages,
          {"hugepages",
           "hugepages, which register faster: buffers that the helper has let go get them, or all large "
           "blocks of malloc lie in them (heap, or the name alone)",
           Listing::everyday, nullptr, nullptr, "heap"},
          kHugepages),
      size_option(&O::hugepage_threshold,
                  {"hugepage-threshold",
                   "smallest block that the hugepage heap serves, 4K to 1G; smaller ones go to the next "
                   "allocator",
                   Listing::advanced},
                  4 << 10, 1 << 30),
      make_option<O>({"preregister",
                      "size of an arena in each process for large blocks of malloc, whose segments are "
                      "registered once; 0: none",
                      Listing::everyday, "a size of 64M to 32G, or 0"},
                     "size", set_arena, [](const O& options) { return format_size(options.preregister); }),
      size_option(&O::preregister_mmaps,
                  {"preregister-mmaps",
                   "size of the smallest private anonymous mmap that lies in the arena too; 0: none",
                   Listing::advanced}),
      switch_option(&O::preregister_remote,
                    {"preregister-remote",
                     "registrations of the arena serve peers too, whose keys then reach whole segments",
                     Listing::advanced},
                    kYesNo),
      switch_option(&O::preregister_ahead,
                    {"preregister-ahead",
                     "the arena's segments are registered in the background as soon as they have blocks, "
                     "else at their first request",
                     Listing::advanced},
                    kYesNo),
      switch_option(
          &O::hugepage_static,
          {"hugepage-static", "static arrays (.data, .bss) lie in transparent hugepages too, with hugepages",
           Listing::advanced},
          kYesNo),
  };
}

}  // namespace pinion
