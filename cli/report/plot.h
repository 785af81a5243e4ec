// Plots as files and as parts of pages. SVG is written here (svg.h); PNG is drawn by share/pinion/plot, a
// program in Python beside this command. It needs matplotlib, which the command itself does without.
// Single-threaded.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pinion::cli {

enum class Scale { linear, powers_of_two, powers_of_ten };

struct PlotLine {
  std::string name;  ///< lines of one name have one colour in all panels
  std::vector<std::pair<double, double>> points;
  bool is_bound = false;      ///< dashed, without marks at its points
  std::string strategy = {};  ///< whose colour it has; empty: of the name up to a comma
};
struct PlotPanel {
  std::string title, x, y;
  std::vector<PlotLine> lines;
  Scale x_scale = Scale::powers_of_two, y_scale = Scale::powers_of_ten;
  bool has_marks = true;  ///< at the points of its lines
};
struct Plot {
  std::string title;
  unsigned columns = 1;
  std::vector<PlotPanel> panels;
};

/// Before long work. Throws UsageError: `file` ends in neither .svg nor .png, or a PNG is asked for and no
/// Python has matplotlib.
void check_plot(const std::string& file);
/// Throws Failure.
void draw(const Plot& plot, const std::string& file);

}  // namespace pinion::cli
