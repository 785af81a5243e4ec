// Figures that each process of a run leaves in the run's log directory at its end: one file a process,
// HOST.PID.EXTENSION, of `name=value` lines. Rows name the fields; the figures of a run are sums over its
// processes. Ordinary code; allocates.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace pinion {

/// Processes that cannot write leave no file.
void write_figure_lines(const char* directory, const char* extension, const std::string& lines);
/// Calls set(name, value) for each line of each file. Returns the number of files.
std::uint64_t read_figure_lines(const std::string& directory, const char* extension,
                                const std::function<void(std::string_view, std::uint64_t)>& set);

template <class Figures>
struct FigureRow {
  const char* name;
  std::uint64_t Figures::*at;
};

template <class Figures>
void write_figures(const char* directory, const char* extension, std::span<const FigureRow<Figures>> rows,
                   const Figures& figures) {
  std::string lines;
  for (const auto& row : rows) lines += std::string(row.name) + "=" + std::to_string(figures.*row.at) + "\n";
  write_figure_lines(directory, extension, lines);
}

template <class Figures>
Figures read_figures(const std::string& directory, const char* extension,
                     std::span<const FigureRow<Figures>> rows) {
  Figures sum;
  sum.processes = read_figure_lines(directory, extension, [&](std::string_view name, std::uint64_t value) {
    for (const auto& row : rows)
      if (name == row.name) sum.*row.at += value;
  });
  return sum;
}

}  // namespace pinion
