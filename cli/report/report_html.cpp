#include "cli/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"
#include "cli/report/report_notes.h"
#include "cli/report/report_plots.h"
#include "cli/report/report_tables.h"
#include "cli/report/svg.h"
#include "cli/text.h"

namespace pinion::cli {

namespace {

using runlog::Report;

constexpr std::size_t kMostRows = 512;

const char* const kPageStyle = R"(
:root { color-scheme: light dark; --text: #1f2328; --soft: #59636e; --line: #d0d7de; --back: #ffffff; --box: #f6f8fa; --bar: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9198a1; --line: #3d444d; --back: #0d1117; --box: #151b23; --bar: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 16px; color: var(--text); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 22px; margin: 8px 0 0; } h2 { font-size: 18px; margin: 32px 0 8px; border-bottom: 1px solid var(--line); }
p { margin: 8px 0; } .soft { color: var(--soft); }
.verdict { background: var(--box); border-left: 4px solid var(--bar); padding: 8px 16px; margin: 16px 0; font-size: 16px; }
code { display: block; background: var(--back); border: 1px solid var(--line); border-radius: 4px; padding: 6px 10px;
  font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; }
.tile { background: var(--box); border-radius: 6px; padding: 10px 12px; }
.tile b { display: block; font-size: 20px; } .tile span { color: var(--soft); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 12px; }
svg.plot { width: 100%; max-width: 480px; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; overflow-wrap: normal; margin: 8px 0 16px; }
td { white-space: nowrap; } td:first-child, td.words { white-space: normal; min-width: 8em; overflow-wrap: anywhere; }
th, td { padding: 4px 12px 4px 0; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, td.words { text-align: left; } th { color: var(--soft); font-weight: 600; }
td.bar { width: 30%; min-width: 80px; }
td.bar svg { width: 100%; height: 10px; } td.bar rect { fill: var(--bar); }
@media screen and (max-width: 600px) { td:first-child, td.words { min-width: 6em; }
  .rows thead { display: none; } .rows table, .rows tbody { display: block; } .rows tr { display: block; padding: 6px 0; border-bottom: 1px solid var(--line); }
  .rows td { display: flex; justify-content: space-between; gap: 12px; border: 0; padding: 1px 0; white-space: normal; }
  .rows td:first-child { font-weight: 600; } .rows td + td::before { content: attr(data-name); color: var(--soft); } }
@media print { :root { --text: #000; --soft: #333; --line: #bbb; --back: #fff; --box: #fff; --bar: #0072b2; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 11px; } .wide { overflow: visible; } table { font-size: 10px; }
  .plots { grid-template-columns: 1fr 1fr; } svg.plot, tr, .verdict, .tile { break-inside: avoid; } h2 { break-after: avoid; } }
)";

std::string element(const char* name, const std::string& text) {
  return fmt::format("<{0}>{1}</{0}>\n", name, escaped(text));
}

std::string words(const std::string& text) { return escaped(with_units_kept(text, "\u00a0")); }

std::string head(const std::vector<std::string>& names) {
  std::string out = "<tr>";
  for (const std::string& name : names) out += fmt::format("<th>{}</th>", escaped(name));
  return out + "</tr>\n";
}

/// Each cell has the name of its column: on a phone, a row is a list of names and values.
std::string row(const std::vector<std::string>& cells, const std::vector<std::string>& names) {
  std::string out = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i)
    out += fmt::format("<td data-name=\"{}\">{}</td>", escaped(i < names.size() ? names[i] : ""),
                       escaped(cells[i]));
  return out + "</tr>\n";
}

std::string table_html(const Table& table) {
  const auto& rows = table.rows();
  std::string out = "<div class=\"wide rows\"><table>\n<thead>" + head(rows.front()) + "</thead>\n<tbody>\n";
  for (std::size_t i = 1; i < std::min(rows.size(), kMostRows); ++i) out += row(rows[i], rows.front());
  out += "</tbody></table></div>\n";
  if (rows.size() > kMostRows)
    out += element(
        "p", fmt::format("The first {} of {} rows.", count_text(kMostRows - 1), count_text(rows.size() - 1)));
  return out;
}

/// Draws a bar over `share` of its cell.
std::string bar_cell(double share) {
  return fmt::format(
      "<td class=\"bar\"><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
      "<rect width=\"{:.1f}\" height=\"10\"/></svg></td>",
      std::clamp(share, 0.0, 1.0) * 100);
}

std::string words_cell(const std::string& text) {
  return fmt::format("<td class=\"words\">{}</td>", escaped(text));
}

/// The cells that any of the figures has.
std::string figures_html(const std::vector<Figure>& figures) {
  const bool have_shares =
      std::any_of(figures.begin(), figures.end(), [](const Figure& f) { return !f.share.empty(); });
  const bool have_meanings =
      std::any_of(figures.begin(), figures.end(), [](const Figure& f) { return !f.meaning.empty(); });
  std::string out = "<div class=\"wide\"><table><tbody>\n";
  for (const Figure& f : figures) {
    out += "<tr>" + words_cell(f.name);
    out += have_meanings ? fmt::format("<td>{}</td>", escaped(f.value)) : words_cell(f.value);
    if (have_shares) out += fmt::format("<td>{}</td>", escaped(f.share));
    if (have_meanings) out += words_cell(f.meaning);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string plots_html(const std::vector<PlotPanel>& panels) {
  const LineClasses classes = line_classes(panels);
  std::string out = "<div class=\"plots\">\n";
  for (const PlotPanel& panel : panels) out += svg_panel(panel, classes);
  return out + "</div>\n";
}

std::string tile(const std::string& value, const std::string& meaning) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escaped(value), words(meaning));
}

std::string verdict_html(const Verdict& verdict) {
  std::string out = "<section class=\"verdict\">\n";
  out += fmt::format("<p>{}</p>\n", words(fmt::format("{}", fmt::join(verdict.sentences, " "))));
  for (const Advice& advice : verdict.advice)
    out += fmt::format("<p>{}</p>\n", words(advice.text)) + element("code", advice.command);
  return out + "</section>\n";
}

/// Registered memory and time, of this run or simulated. `compares`: with leave-pinned; less memory is no
/// merit where transfers were refused.
std::string memory_tiles(const char* who, const runlog::RegisteredBytes& b, double added, double seconds,
                         bool compares) {
  const auto against = [&](double value, double reference) {
    return compares && b.bounds_known && reference > 0
               ? fmt::format(" ({} against leave-pinned)", change_text(value, reference, 0))
               : std::string();
  };
  const auto peak = static_cast<double>(b.peak);
  return tile(bytes_text(peak), fmt::format("{}registered at most{}", who,
                                            against(peak, static_cast<double>(b.leave_pinned_peak)))) +
         tile(bytes_text(b.mean),
              fmt::format("{}registered on average{}", who, against(b.mean, b.leave_pinned_mean))) +
         tile(seconds_text(added), fmt::format("{}added to {} ({})", who, seconds_text(seconds),
                                               percent_text(seconds > 0 ? added / seconds : 0)));
}

std::string measured_tiles(const Report& r, const Strategies* strategies) {
  const simulate::Result* const helper = row_of(strategies, RetentionKind::helper);
  std::string out;
  if (helper != nullptr)
    out = memory_tiles("simulated helper: ", helper->registered, helper->cost.added(), helper->seconds,
                       helper->acquires.bounced == 0);
  return out +
         tile(bytes_text(static_cast<double>(r.registered().leave_pinned_peak)),
              "leave-pinned: all memory of transfers") +
         tile(count_text(r.acquires.total),
              r.acquires.total == 1 ? "transfer recorded" : "transfers recorded");
}

std::string tiles_html(const Report& r, const Strategies* strategies) {
  const std::string tiles =
      is_measured(r)
          ? measured_tiles(r, strategies)
          : memory_tiles("", r.registered(), r.cost.added(), r.wall_seconds, r.acquires.bounced == 0) +
                tile(count_text(r.acquires.misses),
                     fmt::format("of {} missed", plural_text(r.acquires.total, "transfer", "transfers"))) +
                tile(count_text(r.acquires.late), "of them late: their memory had been used before");
  return "<div class=\"tiles\">\n" + tiles + "</div>\n";
}

std::string memory_html(const Report& r, const Strategies* strategies) {
  std::string out = element("h2", "Registered memory over time");
  out += plots_html(node_panels(r, strategies, kMostNodePanels));
  if (r.nodes.size() > kMostNodePanels)
    out += element("p", fmt::format("The {} nodes with the highest peaks, of {}.", kMostNodePanels,
                                    count_text(r.nodes.size())));
  out += fmt::format("<p class=\"soft\">{} A point of a line is the mean, or the peak, of {}.</p>\n",
                     escaped(kRegisteredMeaning), seconds_text(static_cast<double>(r.series_bin) * 1e-9));
  out += element("h2", registered_title(r)) + table_html(registered_table(r));
  if (r.per_rank.size() < 2) return out;
  out += element("h2", r.per_rank.size() > kMostRankPanels
                           ? fmt::format("Ranks over time, the {} of {} with the highest peaks",
                                         kMostRankPanels, count_text(r.per_rank.size()))
                           : std::string("Ranks over time"));
  return out + plots_html(rank_panels(r, kMostRankPanels));
}

std::string time_html(const Report& r) {
  const runlog::Cost& c = r.cost;
  std::string out = element("h2", kTimeTitle) + figures_html(time_figures(r));
  const std::pair<const char*, double> parts[] = {{"registration by transfers", c.on_demand},
                                                  {"waits", c.waits},
                                                  {"copies", c.bounce},
                                                  {"bookkeeping", c.bookkeeping},
                                                  {"helper", c.helper_charged}};
  double sum = 0;
  for (const auto& [name, seconds] : parts) sum += seconds;
  if (sum <= 0) return out;
  out += "<table><tbody>\n";
  for (const auto& [name, seconds] : parts)
    out += fmt::format("<tr><td>{}</td><td>{}</td>{}</tr>\n", name, percent_text(seconds / sum),
                       bar_cell(seconds / sum));
  return out + "</tbody></table>\n";
}

std::string prediction_html(const Report& r) {
  if (r.prediction.reuses == 0)
    return element("h2", "Prediction of the next use") + element("p", "No region was used twice.");
  return element("h2", prediction_title(r)) + table_html(prediction_table(r.prediction)) +
         element("p", kPredictionMeaning);
}

std::string strategies_html(const Report& r, const ReportParts& parts) {
  if (parts.strategies == nullptr) return {};
  std::string out = element("h2", "What each strategy would hold and cost");
  out += fmt::format("<p class=\"soft\">These figures are {}.</p>\n",
                     escaped(strategies_title(*parts.strategies)));
  out += table_html(strategies_table(*parts.strategies, r));
  if (const Table table = what_if_table(*parts.strategies); table.rows().size() > 1)
    out += element("p", kWhatIfMeaning) + table_html(table);
  if (parts.grid == nullptr) return out;
  out += element("h2", "What if: strategies, limits and time budgets");
  if (const std::vector<PlotPanel> panels = grid_panels(r, *parts.grid); !panels.empty())
    out += plots_html(panels);
  out += table_html(grid_table(*parts.grid));
  if (!parts.grid->is_whole)
    out += element("p", "Rows are missing: the simulation took more time than a report may.");
  return out;
}

std::string call_sites_html(const Report& r, const SiteText& site_text) {
  if (!r.call_sites_known())
    return element("h2", "Call sites") + element("p", "Not available: their events are missing.");
  if (r.call_sites.empty()) return {};
  std::string out = element("h2", call_sites_title(r)) + "<div class=\"wide\"><table><tbody>\n";
  for (std::size_t i = 0; i < sites_shown(r); ++i)
    out += fmt::format("<tr><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>\n",
                       escaped(site_text(r.call_sites[i])), escaped(call_site_figures(r, r.call_sites[i])));
  return out + "</tbody></table></div>\n";
}

std::string domains_html(const Report& r) {
  const std::vector<std::string> descriptions = domain_descriptions(r);
  if (descriptions.empty()) return {};
  std::string out = element("h2", "Domains, sums over their ranks") + table_html(domains_table(r));
  for (const std::string& description : descriptions) out += element("p", description);
  return out;
}

}  // namespace

std::string report_html(const Report& r, const ReportParts& parts, const Verdict& verdict,
                        const SiteText& site_text) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<title>Pinion report: {}</title>\n<style>{}{}</style>\n</head>\n<body>\n",
      escaped(r.command), kPageStyle, svg_style());
  out += element("h1", r.command);
  out += fmt::format("<p class=\"soft\">Pinion report: {} on {}, {}</p>\n",
                     plural_text(r.per_rank.size(), "rank", "ranks"),
                     plural_text(r.nodes.size(), "node", "nodes"), seconds_text(r.wall_seconds));
  out += verdict_html(verdict) + tiles_html(r, parts.strategies) + memory_html(r, parts.strategies) +
         time_html(r) + prediction_html(r);
  out += strategies_html(r, parts) + call_sites_html(r, site_text);
  out += element("h2", "Transfers") + figures_html(transfer_figures(r)) + element("p", device_calls_text(r));
  out += domains_html(r) + element("h2", "Ranks") + table_html(ranks_table(r));
  out += element("h2", "Run") + figures_html(run_figures(r, parts.held));
  return out + fmt::format("<p class=\"soft\">Recorded by Pinion {}, reported by {}.</p>\n</body>\n</html>\n",
                           escaped(r.version), PINION_VERSION);
}

}  // namespace pinion::cli
