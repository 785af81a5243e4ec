#include "cli/report/plot.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/report/report_json.h"
#include "cli/report/svg.h"
#include "cli/run/launch.h"
#include "cli/run/log_directory.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

namespace fs = std::filesystem;

/// The user's Python, else the system's, to which packages add modules.
std::optional<std::string> python_with_matplotlib() {
  const TemporaryLogDirectory directory;
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (run_and_wait({python, "-c", "import matplotlib"}, {}, directory.path() + "/output") == 0)
      return python;
  return std::nullopt;
}

bool is_svg(const std::string& file) { return fs::path(file).extension() == ".svg"; }

const char* scale_text(Scale scale) {
  static const char* const names[] = {"linear", "powers of two", "powers of ten"};
  return names[static_cast<int>(scale)];
}

Json to_json(const Plot& plot) {
  const LineClasses classes = line_classes(plot.panels);
  Json panels = Json::array();
  for (const PlotPanel& panel : plot.panels) {
    Json lines = Json::array();
    for (const PlotLine& line : panel.lines)
      lines.push_back({{"name", line.name},
                       {"points", line.points},
                       {"is_bound", line.is_bound},
                       {"classes", classes.at(line.name)}});
    panels.push_back({{"title", panel.title},
                      {"x", panel.x},
                      {"y", panel.y},
                      {"x_scale", scale_text(panel.x_scale)},
                      {"y_scale", scale_text(panel.y_scale)},
                      {"has_marks", panel.has_marks},
                      {"lines", std::move(lines)}});
  }
  return {{"title", plot.title},
          {"columns", plot.columns},
          {"colours", kPlotColours},
          {"panels", std::move(panels)}};
}

}  // namespace

void check_plot(const std::string& file) {
  if (is_svg(file)) return;
  if (fs::path(file).extension() != ".png")
    throw UsageError(fmt::format("--plot: '{}' ends in neither .svg nor .png", file));
  if (!python_with_matplotlib())
    throw UsageError(
        "--plot: a PNG needs Python's matplotlib (Debian: python3-matplotlib); an SVG does without");
}

void draw(const Plot& plot, const std::string& file) {
  if (is_svg(file)) return write_text(file, svg_file(plot));
  const auto python = python_with_matplotlib();
  if (!python) throw Failure("no Python has matplotlib any more");
  const TemporaryLogDirectory directory;
  const std::string data = directory.path() + "/plot.json", output = directory.path() + "/output";
  std::ofstream(data) << dump(to_json(plot));
  const int status =
      run_and_wait({*python, (installation() / "share/pinion/plot").string(), data, file}, {}, output);
  if (status != 0) {
    const std::string said = read_text(output);
    throw Failure(fmt::format("--plot {}: {}", file, said.substr(said.rfind('\n') + 1)));
  }
}

}  // namespace pinion::cli
