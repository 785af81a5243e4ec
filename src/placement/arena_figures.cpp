#include "placement/arena_figures.h"

#include "placement/figure_rows.h"

namespace pinion {

namespace {

constexpr const char* kExtension = ".arena";

using Figures = ArenaFigures;
constexpr FigureRow<Figures> kRows[] = {
    {"bytes", &Figures::bytes},
    {"segments", &Figures::segments},
    {"segment_bytes", &Figures::segment_bytes},
    {"registrations", &Figures::registrations},
    {"ahead", &Figures::ahead},
    {"refused", &Figures::refused},
    {"doomed", &Figures::doomed},
    {"let_go", &Figures::let_go},
    {"requests", &Figures::requests},
    {"served", &Figures::served},
    {"served_bytes", &Figures::served_bytes},
    {"cleared_bytes", &Figures::cleared_bytes},
    {"withheld_bytes", &Figures::withheld_bytes},
};

}  // namespace

void ArenaFigures::add(const ArenaFigures& other) {
  processes += other.processes;
  for (const auto& row : kRows) this->*row.at += other.*row.at;
}

void write_arena_figures(const char* directory, const ArenaFigures& figures) {
  if (figures.processes != 0) write_figures<Figures>(directory, kExtension, kRows, figures);
}

ArenaFigures read_arena_figures(const std::string& directory) {
  return read_figures<Figures>(directory, kExtension, kRows);
}

bool is_arena_figures(const std::string& path) {
  return read_figure_lines(path, kExtension, names_of<Figures>(kRows)).has_value();
}

}  // namespace pinion
