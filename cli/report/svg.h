// Plots as SVG. Colours are classes, so that a page or the picture's own style chooses them, light and dark.
// Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cli/report/plot.h"

namespace pinion::cli {

/// Text for XML and HTML: markup as entities, control characters as '?', bytes that are no UTF-8 as U+FFFD.
std::string escaped(const std::string& text);

/// The CSS classes of lines, by their names: a strategy has one colour in all plots, and its lines differ in
/// their dashes. Other lines have the remaining colours in their order.
using LineClasses = std::map<std::string, std::string>;
LineClasses line_classes(const std::vector<PlotPanel>& panels);

/// A panel as an <svg> element, for a page that has svg_style().
std::string svg_panel(const PlotPanel& panel, const LineClasses& classes);

/// The panels in their grid, as a file of its own.
std::string svg_file(const Plot& plot);

/// CSS for panels.
std::string svg_style();

/// The colours of the classes c0, c1, ... on paper.
constexpr std::size_t kColours = 8;
extern const std::array<const char*, kColours> kPlotColours;

}  // namespace pinion::cli
