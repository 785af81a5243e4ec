#include "placement/figures_file.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include "base/settings_file.h"
#include "base/units.h"
#include "placement/hugepage_heap.h"
#include "placement/static_data.h"

namespace pinion {

namespace {

constexpr const char* kExtension = ".hugepages";

struct Row {
  const char* name;
  std::uint64_t PlacementFigures::*at;
};
constexpr Row kRows[] = {
    {"blocks", &PlacementFigures::blocks},
    {"peak_bytes", &PlacementFigures::peak_bytes},
    {"pool_bytes", &PlacementFigures::pool_bytes},
    {"advised_bytes", &PlacementFigures::advised_bytes},
    {"base_bytes", &PlacementFigures::base_bytes},
    {"used_bytes", &PlacementFigures::used_bytes},
    {"hugepage_bytes", &PlacementFigures::hugepage_bytes},
    {"returned_bytes", &PlacementFigures::returned_bytes},
    {"static_bytes", &PlacementFigures::static_bytes},
    {"static_hugepage_bytes", &PlacementFigures::static_hugepage_bytes},
};

PlacementFigures own_figures() {
  HugepageHeap& heap = process_heap();
  const ChunkHeap::Figures f = heap.figures();
  const StaticData placed = static_data();
  const auto most = [&](Backing backing) { return f.most_mapped[static_cast<std::size_t>(backing)]; };
  const auto now = [&](Backing backing) { return f.mapped_bytes[static_cast<std::size_t>(backing)]; };
  return {.processes = 1,
          .blocks = f.blocks,
          .peak_bytes = f.peak_bytes,
          .pool_bytes = most(Backing::pool),
          .advised_bytes = most(Backing::transparent),
          .base_bytes = most(Backing::base),
          .used_bytes = heap.used_bytes(),
          .hugepage_bytes = now(Backing::pool) + heap.transparent_bytes(),
          .returned_bytes = f.returned_bytes,
          .static_bytes = placed.placed_bytes,
          .static_hugepage_bytes = placed.hugepage_bytes};
}

}  // namespace

void PlacementFigures::add(const PlacementFigures& other) {
  processes += other.processes;
  for (const Row& row : kRows) this->*row.at += other.*row.at;
}

void write_placement_figures(const char* directory) {
  const PlacementFigures figures = own_figures();
  if (figures.blocks == 0 && figures.static_bytes == 0) return;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string path =
      std::string(directory) + "/" + host + "." + std::to_string(::getpid()) + kExtension;
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return;
  for (const Row& row : kRows) std::fprintf(file, "%s=%" PRIu64 "\n", row.name, figures.*row.at);
  std::fclose(file);
}

PlacementFigures read_placement_figures(const std::string& directory) {
  namespace fs = std::filesystem;
  PlacementFigures sum;
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() != kExtension) continue;
    const Error error =
        read_settings(entry->path().string(), [&](std::string_view name, std::string_view value) {
          for (const Row& row : kRows)
            if (name == row.name) sum.*row.at += parse_count(value).value_or(0);
          return Error{};
        });
    if (!error) ++sum.processes;
  }
  return sum;
}

}  // namespace pinion
