#include "cli/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/shown_text.h"
#include "base/units.h"

namespace pinion::cli {

namespace {

// Sizes of a panel, in its own units: its text is legible on a phone, where the panel is as wide as the
// screen.
constexpr double kWidth = 440, kLines = 190;
constexpr double kLeft = 64, kRight = 14, kBottom = 48;
constexpr double kLegendTop = 40, kLegendRow = 17;
/// The strategy at each place has the colour of that number.
constexpr const char* kStrategies[] = {"helper", "leave-pinned", "oracle", "on-demand",
                                       "lru",    "observe",      "off",    "limit"};

/// Maps values, `least` to `most`, to places along one side of a panel.
class Axis {
 public:
  Axis(Scale scale, double least, double most, double from, double to)
      : scale_(scale), least_(least), most_(most), from_(from), to_(to) {
    if (scale_ == Scale::linear) {
      if (most_ <= least_) most_ = least_ + 1;
      return;
    }
    least_ = std::floor(power_of(least > 0 ? least : 1));
    most_ = std::max(std::ceil(power_of(most > 0 ? most : 1)), least_ + 1);
  }

  double place(double value) const {
    const double at = scale_ == Scale::linear ? value : value > 0 ? power_of(value) : least_;
    return from_ + (to_ - from_) * std::clamp((at - least_) / (most_ - least_), 0.0, 1.0);
  }

  std::vector<std::pair<double, std::string>> ticks() const {
    std::vector<std::pair<double, std::string>> ticks;
    const double step = scale_ == Scale::linear ? round_step((most_ - least_) / 5)
                                                : std::max(1.0, std::ceil((most_ - least_) / 8));
    for (double at = std::ceil(least_ / step) * step; at <= most_ + step * 1e-6; at += step) {
      const double value = scale_ == Scale::linear          ? at
                           : scale_ == Scale::powers_of_two ? std::exp2(at)
                                                            : std::pow(10, at);
      ticks.emplace_back(
          value,
          scale_ == Scale::powers_of_two && value >= 1
              ? format_size(static_cast<std::uint64_t>(value))
              : fmt::format("{:.10g}", std::fabs(at) < step * 1e-6 && scale_ == Scale::linear ? 0 : value));
    }
    return ticks;
  }

 private:
  double power_of(double value) const {
    return scale_ == Scale::powers_of_two ? std::log2(value) : std::log10(value);
  }
  /// 1, 2 or 5 times a power of ten, at least `step`.
  static double round_step(double step) {
    const double power = std::pow(10, std::floor(std::log10(step)));
    for (const double part : {1.0, 2.0, 5.0})
      if (part * power >= step * (1 - 1e-9)) return part * power;
    return 10 * power;
  }

  Scale scale_;
  double least_, most_;  ///< of a logarithmic axis: powers
  double from_, to_;
};

std::string colour_key(const PlotLine& line) {
  return line.strategy.empty() ? line.name.substr(0, line.name.find(',')) : line.strategy;
}

/// kColours: the key is no strategy's.
std::size_t colour_of_strategy(const std::string& key) {
  const auto found = std::find(std::begin(kStrategies), std::end(kStrategies), key);
  return found == std::end(kStrategies) ? kColours : static_cast<std::size_t>(found - kStrategies);
}

/// Attributes that squeeze a text which would be wider than `most`.
std::string squeezed(const std::string& text, double most) {
  constexpr double kCharacter = 8;
  if (kCharacter * static_cast<double>(text.size()) <= most) return {};
  return fmt::format(" textLength=\"{:.0f}\" lengthAdjust=\"spacingAndGlyphs\"", most);
}

struct Extent {
  double least = INFINITY, most = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

std::string ticks_of(const Axis& x, const Axis& y, double bottom) {
  std::string out;
  for (const auto& [value, text] : x.ticks())
    out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
                       x.place(value), bottom + 18, escaped(text));
  for (const auto& [value, text] : y.ticks())
    out += fmt::format(
        "<path class=\"grid\" d=\"M{:.0f} {:.1f}H{:.0f}\"/>"
        "<text class=\"tick\" x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, y.place(value), kWidth - kRight, kLeft - 8, y.place(value) + 4, escaped(text));
  return out;
}

/// The names of the lines in rows above the panel, by their colours.
struct Legend {
  std::string text;
  double bottom = kLegendTop;
};

Legend legend_of(const PlotPanel& panel, const LineClasses& classes) {
  Legend legend;
  double at = kLeft;
  for (const PlotLine& line : panel.lines) {
    const double width = 42 + 7.2 * static_cast<double>(line.name.size());
    if (at > kLeft && at + width > kWidth) {
      at = kLeft;
      legend.bottom += kLegendRow;
    }
    legend.text += fmt::format(
        "<path class=\"line {}\" d=\"M{:.0f} {:.0f}h18\"/>"
        "<text class=\"key\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        classes.at(line.name), at, legend.bottom - 4, at + 23, legend.bottom, escaped(line.name));
    at += width;
  }
  return legend;
}

std::string line_of(const PlotLine& line, const PlotPanel& panel, const Axis& x, const Axis& y,
                    const std::string& classes) {
  std::string path, marks;
  for (const auto& [at, value] : line.points) {
    if (!std::isfinite(at) || !std::isfinite(value)) continue;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x.place(at), y.place(value));
    if (panel.has_marks && !line.is_bound)
      marks += fmt::format("<circle class=\"mark {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", classes,
                           x.place(at), y.place(value));
  }
  if (path.empty()) return {};
  return fmt::format("<path class=\"line {}\" d=\"{}\"><title>{}</title></path>{}\n", classes, path,
                     escaped(line.name), marks);
}

double bottom_of(const Legend& legend) { return legend.bottom + 14 + kLines; }

double height_of(const PlotPanel& panel, const LineClasses& classes) {
  return bottom_of(legend_of(panel, classes)) + kBottom;
}

std::string titles_of(const PlotPanel& panel, double top, double bottom) {
  return fmt::format(
      "<text class=\"title\" x=\"{:.0f}\" y=\"20\"{}>{}</text>\n"
      "<text class=\"label\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n"
      "<text class=\"label\" transform=\"translate(16 {:.0f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      kLeft, squeezed(panel.title, kWidth - kLeft - kRight), escaped(panel.title),
      (kLeft + kWidth - kRight) / 2, bottom + kBottom - 8, escaped(panel.x), (top + bottom) / 2,
      escaped(panel.y));
}

std::string content_of(const PlotPanel& panel, const LineClasses& classes) {
  Extent across, up;
  for (const PlotLine& line : panel.lines)
    for (const auto& [at, value] : line.points) {
      across.add(at);
      up.add(value);
    }
  const Axis x(panel.x_scale, across.least, across.most, kLeft, kWidth - kRight);
  const Legend legend = legend_of(panel, classes);
  const double top = legend.bottom + 14, bottom = bottom_of(legend);
  const Axis y(panel.y_scale, panel.y_scale == Scale::linear ? std::min(0.0, up.least) : up.least, up.most,
               bottom, top);
  std::string out = titles_of(panel, top, bottom) + ticks_of(x, y, bottom) + legend.text;
  // The first one on top.
  for (auto line = panel.lines.rbegin(); line != panel.lines.rend(); ++line)
    out += line_of(*line, panel, x, y, classes.at(line->name));
  return out;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8_sequence(text, at);
    const char c = text[at];
    if (bytes == 0) {
      out += "\xEF\xBF\xBD";
    } else if (bytes > 1) {
      out += text.substr(at, bytes);
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F ? '?' : c;
    }
    at += std::max<std::size_t>(bytes, 1);
  }
  return out;
}

LineClasses line_classes(const std::vector<PlotPanel>& panels) {
  std::map<std::string, std::size_t> colours, lines_of;
  std::size_t next = 0;
  LineClasses classes;
  std::vector<bool> is_taken(kColours, false);
  for (const PlotPanel& panel : panels)
    for (const PlotLine& line : panel.lines)
      if (const std::size_t colour = colour_of_strategy(colour_key(line)); colour < kColours)
        is_taken[colour] = true;
  for (const PlotPanel& panel : panels)
    for (const PlotLine& line : panel.lines) {
      if (classes.count(line.name)) continue;
      const std::string key = colour_key(line);
      if (!colours.count(key)) {
        std::size_t colour = colour_of_strategy(key);
        if (colour == kColours) {
          while (next < kColours && is_taken[next]) ++next;
          colour = next++;
        }
        colours[key] = colour;
      }
      // Colours come again in dots.
      const std::size_t dashes = lines_of[key]++ + colours[key] / kColours;
      static constexpr const char* kDashes[] = {"", " again", " third"};
      classes[line.name] =
          fmt::format("c{}{}{}", colours[key] % kColours, kDashes[std::min<std::size_t>(dashes, 2)],
                      line.is_bound ? " bound" : "");
    }
  return classes;
}

std::string svg_panel(const PlotPanel& panel, const LineClasses& classes) {
  return fmt::format(
      "<svg class=\"plot\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n{}</svg>\n",
      kWidth, height_of(panel, classes), escaped(panel.title), content_of(panel, classes));
}

std::string svg_file(const Plot& plot) {
  constexpr double kHead = 40;
  const std::size_t columns = std::max(1u, plot.columns);
  const std::size_t rows = (plot.panels.size() + columns - 1) / columns;
  const LineClasses classes = line_classes(plot.panels);
  double panel_height = 0;
  for (const PlotPanel& panel : plot.panels) panel_height = std::max(panel_height, height_of(panel, classes));
  const double width = kWidth * static_cast<double>(columns);
  const double height = kHead + panel_height * static_cast<double>(rows);
  std::string out = fmt::format(
      "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" "
      "height=\"{1:.0f}\">\n<style>{2}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
      "<text class=\"title\" x=\"{3:.0f}\" y=\"26\" text-anchor=\"middle\"{5}>{4}</text>\n",
      width, height, svg_style(), width / 2, escaped(plot.title), squeezed(plot.title, width - 2 * kRight));
  for (std::size_t i = 0; i < plot.panels.size(); ++i)
    out += fmt::format(
        "<g transform=\"translate({:.0f} {:.0f})\">\n{}</g>\n", kWidth * static_cast<double>(i % columns),
        kHead + panel_height * static_cast<double>(i / columns), content_of(plot.panels[i], classes));
  return out + "</svg>\n";
}

// Colours that are told apart with any colour vision (Okabe and Ito), darker on paper, lighter at night.
const std::array<const char*, kColours> kPlotColours = {"#0072b2", "#d55e00", "#00805c", "#a8327d",
                                                        "#7a5195", "#8a6d00", "#3a86c8", "#5c5c5c"};
constexpr std::array<const char*, kColours> kNightColours = {"#56b4e9", "#ff9a4d", "#3fd0a4", "#f09ccf",
                                                             "#c3a6f0", "#e8c84a", "#9ecbff", "#b0b0b0"};

std::string svg_style() {
  const auto theme = [](const char* ink, const std::array<const char*, kColours>& colours) {
    std::string out = fmt::format(".plot {{ {}", ink);
    for (std::size_t i = 0; i < kColours; ++i) out += fmt::format(" --c{}: {};", i, colours[i]);
    return out + " }";
  };
  return "\n" + theme("--ink: #1f2328; --faint: #d0d7de; --page: #ffffff;", kPlotColours) +
         "\n@media (prefers-color-scheme: dark) { " +
         theme("--ink: #e6edf3; --faint: #3d444d; --page: #0d1117;", kNightColours) + " }\n@media print { " +
         theme("--ink: #000000; --faint: #c0c0c0; --page: #ffffff;", kPlotColours) + " }" + R"(
.plot text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.plot .title { font-weight: 600; font-size: 15px; }
.plot .paper { fill: var(--page); }
.plot .grid { stroke: var(--faint); fill: none; }
.plot .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.plot .bound { stroke-dasharray: 6 4; stroke-width: 1.5; }
.plot .again { stroke-dasharray: 2 3; } .plot .third { stroke-dasharray: 9 3; }
.plot .c0 { stroke: var(--c0); } .plot .c1 { stroke: var(--c1); } .plot .c2 { stroke: var(--c2); }
.plot .c3 { stroke: var(--c3); } .plot .c4 { stroke: var(--c4); } .plot .c5 { stroke: var(--c5); }
.plot .c6 { stroke: var(--c6); } .plot .c7 { stroke: var(--c7); }
.plot .mark { fill: var(--page); stroke-width: 2; }
)";
}

}  // namespace pinion::cli
