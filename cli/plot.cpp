#include "plot.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "command.h"
#include "launch.h"
#include "log_directory.h"
#include "report_json.h"
#include "system_files.h"

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

Json to_json(const Plot& plot) {
  Json panels = Json::array();
  for (const PlotPanel& panel : plot.panels) {
    Json lines = Json::array();
    for (const PlotLine& line : panel.lines) lines.push_back({{"name", line.name}, {"points", line.points}});
    panels.push_back({{"title", panel.title}, {"x", panel.x}, {"y", panel.y}, {"lines", std::move(lines)}});
  }
  return {{"title", plot.title}, {"columns", plot.columns}, {"panels", std::move(panels)}};
}

}  // namespace

void check_plot(const std::string& file) {
  const std::string ending = fs::path(file).extension().string();
  if (ending != ".svg" && ending != ".png")
    throw UsageError(fmt::format("--plot: '{}' ends in neither .svg nor .png", file));
  if (!python_with_matplotlib())
    throw UsageError("--plot needs Python's matplotlib (Debian: python3-matplotlib)");
}

void draw(const Plot& plot, const std::string& file) {
  const auto python = python_with_matplotlib();
  if (!python) throw Failure("no Python has matplotlib any more");
  const TemporaryLogDirectory directory;
  const std::string data = directory.path() + "/plot.json", output = directory.path() + "/output";
  std::ofstream(data) << dump(to_json(plot));
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const int status =
      run_and_wait({*python, (prefix / "share" / "pinion" / "plot").string(), data, file}, {}, output);
  if (status != 0) {
    const std::string said = read_text(output);
    throw Failure(fmt::format("--plot {}: {}", file, said.substr(said.rfind('\n') + 1)));
  }
}

}  // namespace pinion::cli
