#include "placement/figures_file.h"

#include "placement/figure_rows.h"
#include "placement/hugepage_heap.h"
#include "placement/static_data.h"

namespace pinion {

namespace {

constexpr const char* kExtension = ".hugepages";

constexpr FigureRow<PlacementFigures> kRows[] = {
    {"blocks", &PlacementFigures::blocks},
    {"peak_bytes", &PlacementFigures::peak_bytes},
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
  return {.processes = 1,
          .blocks = f.blocks,
          .peak_bytes = f.peak_bytes,
          .advised_bytes = most(Backing::transparent),
          .base_bytes = most(Backing::base),
          .used_bytes = heap.touched_bytes(),
          .hugepage_bytes = heap.transparent_bytes(),
          .returned_bytes = f.returned_bytes,
          .static_bytes = placed.placed_bytes,
          .static_hugepage_bytes = placed.hugepage_bytes};
}

}  // namespace

void PlacementFigures::add(const PlacementFigures& other) {
  processes += other.processes;
  for (const auto& row : kRows) this->*row.at += other.*row.at;
}

void write_placement_figures(const char* directory) {
  const PlacementFigures figures = own_figures();
  if (figures.blocks == 0 && figures.static_bytes == 0) return;
  write_figures<PlacementFigures>(directory, kExtension, kRows, figures);
}

PlacementFigures read_placement_figures(const std::string& directory) {
  return read_figures<PlacementFigures>(directory, kExtension, kRows);
}

bool is_placement_figures(const std::string& path) {
  return read_figure_lines(path, kExtension, names_of<PlacementFigures>(kRows)).has_value();
}

}  // namespace pinion
