// Figures that each process of a run leaves in the run's log directory at its end: one file a process,
// HOST.PID.EXTENSION, of `name=value` lines. Rows name the fields; the figures of a run are sums over its
// processes. Others may write to the directory: a file counts only if each of its lines is one of the rows.
// Ordinary code; allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pinion {

using FigureNames = std::vector<const char*>;
using FigureValues = std::vector<std::uint64_t>;

/// Processes that cannot write leave no file. Replaces a file of figures alone.
void write_figure_lines(const char* directory, const char* extension, const FigureNames& names,
                        const FigureValues& values);
/// The values by row, 0 for a row that is missing; nothing unless this is a file of these figures.
std::optional<FigureValues> read_figure_lines(const std::string& path, const char* extension,
                                              const FigureNames& names);
std::vector<std::string> files_in(const std::string& directory);

template <class Figures>
struct FigureRow {
  const char* name;
  std::uint64_t Figures::*at;
};

template <class Figures>
FigureNames names_of(std::span<const FigureRow<Figures>> rows) {
  FigureNames names;
  for (const auto& row : rows) names.push_back(row.name);
  return names;
}

template <class Figures>
void write_figures(const char* directory, const char* extension, std::span<const FigureRow<Figures>> rows,
                   const Figures& figures) {
  FigureValues values;
  for (const auto& row : rows) values.push_back(figures.*row.at);
  write_figure_lines(directory, extension, names_of(rows), values);
}

template <class Figures>
Figures read_figures(const std::string& directory, const char* extension,
                     std::span<const FigureRow<Figures>> rows) {
  const FigureNames names = names_of(rows);
  Figures sum;
  for (const std::string& path : files_in(directory)) {
    const auto values = read_figure_lines(path, extension, names);
    if (!values) continue;
    ++sum.processes;
    for (std::size_t i = 0; i < rows.size(); ++i) sum.*rows[i].at += (*values)[i];
  }
  return sum;
}

}  // namespace pinion
