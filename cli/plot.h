// Plots as files, drawn by share/pinion/plot, a program in Python beside this command. It needs matplotlib,
// which the command itself does without. Single-threaded.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pinion::cli {

struct PlotLine {
  std::string name;  ///< lines of one name have one colour in all panels
  std::vector<std::pair<double, double>> points;
};
/// Both axes are logarithmic.
struct PlotPanel {
  std::string title, x, y;
  std::vector<PlotLine> lines;
};
struct Plot {
  std::string title;
  unsigned columns = 1;
  std::vector<PlotPanel> panels;
};

/// Before long work. Throws UsageError: `file` ends in neither .svg nor .png, or no Python has matplotlib.
void check_plot(const std::string& file);
/// Throws Failure.
void draw(const Plot& plot, const std::string& file);

}  // namespace pinion::cli
