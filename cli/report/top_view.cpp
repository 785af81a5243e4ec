#include "cli/report/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <tuple>

#include "cli/report/gpu_copies.h"
#include "cli/text.h"
#include "lease/engine_options.h"
#include "runlog/process_figures.h"

namespace pinion::cli {

namespace {

double seconds(double ns) { return ns * 1e-9; }

std::string share_text(const runlog::TimeBudgetUse& budget) {
  return budget.allowed > 0 ? percent_text(std::max(0.0, budget.spent() / budget.allowed)) : "-";
}

/// Adds up the figures of a node's line. Spent and allowed are of all its ranks.
void add(TopRow& sum, const TopRow& row) {
  sum.registered_now += row.registered_now;
  sum.registered_peak += row.registered_peak;
  sum.limit += row.limit;
  sum.acquires += row.acquires;
  sum.budget.on_threads += row.budget.on_threads;
  sum.budget.by_helper += row.budget.by_helper;
  sum.budget.allowed += row.budget.allowed;
}

/// Columns of the whole table, without bars and with them; a narrower terminal gets it without the peak and
/// the bounced.
constexpr std::size_t kWhole = 84, kWithBars = 100;
constexpr std::size_t kBar = 11;
constexpr const char* kFirstColumn = "node, rank";

struct Columns {
  bool whole, bars;
};

std::vector<std::string> header(Columns columns) {
  if (!columns.whole) return {kFirstColumn, "registered", "limit", "transfers", "misses", "late", "budget"};
  std::vector<std::string> names{kFirstColumn, "registered", "peak",    "limit", "transfers",
                                 "misses",     "late",       "bounced", "budget"};
  if (columns.bars) names.insert(names.begin() + 1, "of limit/peak");
  return names;
}

/// Draws the part of the limit, or of the peak where there is none.
std::string bar_text(const TopRow& r) {
  const std::uint64_t most = r.limit ? r.limit : r.registered_peak;
  const double share = most ? static_cast<double>(r.registered_now) / static_cast<double>(most) : 0;
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * kBar + 0.5);
  return "[" + std::string(filled, '|') + std::string(kBar - filled, ' ') + "]";
}

void add_line(Table& table, Columns columns, const std::string& name, const TopRow& r) {
  std::vector<std::string> cells{name};
  if (columns.bars) cells.push_back(bar_text(r));
  cells.push_back(bytes_text(static_cast<double>(r.registered_now)));
  if (columns.whole) cells.push_back(bytes_text(static_cast<double>(r.registered_peak)));
  cells.push_back(r.limit ? bytes_text(static_cast<double>(r.limit)) : "none");
  for (const std::uint64_t count : {r.acquires.total, r.acquires.misses, r.acquires.late})
    cells.push_back(count_text(count));
  if (columns.whole) cells.push_back(count_text(r.acquires.bounced));
  cells.push_back(share_text(r.budget));
  table.add(std::move(cells));
}

std::string rank_name(const TopRow& r) {
  return r.rank >= 0 ? fmt::format("  rank {}", r.rank) : fmt::format("  pid {}", r.process);
}

/// The command is shortened to `columns` in all; 0: any number.
std::string heading(const std::vector<TopRow>& rows, std::size_t nodes, std::size_t columns) {
  double longest = 0;
  std::uint64_t running = 0;
  for (const TopRow& row : rows) {
    longest = std::max(longest, row.seconds);
    running += row.is_running ? 1 : 0;
  }
  const std::string state =
      fmt::format(": {} on {}, {}, {}", plural_text(rows.size(), "rank", "ranks"),
                  plural_text(nodes, "node", "nodes"), seconds_text(longest),
                  running == 0             ? "ended"
                  : running == rows.size() ? "running"
                                           : fmt::format("{} running", count_text(running)));
  std::string command = rows.front().command;
  constexpr std::size_t kLeast = 8;
  if (columns != 0 && command.size() + state.size() > columns)
    command = command.substr(0, std::max(columns, state.size() + kLeast) - state.size() - 3) + "...";
  return command + state + "\n\n";
}

/// The first lines of `text`, and how many are left out; each line to its first columns.
std::string cut(const std::string& text, std::size_t columns, std::size_t lines) {
  const auto whole = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  const std::size_t shown = lines == 0 || whole <= lines ? whole : lines - 1;
  std::istringstream in(text);
  std::string out, line;
  for (std::size_t i = 0; i < shown && std::getline(in, line); ++i)
    out += (columns ? line.substr(0, columns) : line) + "\n";
  if (shown < whole)
    out += fmt::format("{} more\n", plural_text(whole - shown, "line", "lines"))
               .substr(0, columns ? columns : 80);
  return out;
}

}  // namespace

TopRow top_row(const runlog::Log& log) {
  const runlog::Counters& c = log.live.counters;
  TopRow row;
  row.host = log.header.host;
  row.command = log.header.command;
  row.rank = log.header.rank;
  row.process = log.header.process;
  row.is_running = log.written_to && !log.live.complete;
  row.seconds = seconds(static_cast<double>(log.live.last_ns - log.header.start_ns));
  row.registered_now = c.registered_now_bytes;
  row.registered_peak = c.registered_peak_bytes;
  row.limit = log.header.limit_bytes;
  row.node_limit = recorded_options(log.header.options).node_limit;
  row.acquires = runlog::acquires_of(c);
  row.budget = runlog::budget_of(c);
  row.copies = runlog::copies_of(c);
  return row;
}

std::string top_text(std::vector<TopRow> rows, std::size_t columns, std::size_t lines) {
  std::sort(rows.begin(), rows.end(), [](const TopRow& a, const TopRow& b) {
    return std::tie(a.host, a.rank, a.process) < std::tie(b.host, b.rank, b.process);
  });
  const Columns shown{columns == 0 || columns >= kWhole, columns >= kWithBars};
  Table table(header(shown));
  std::size_t nodes = 0;
  runlog::GpuCopies copies;
  for (const TopRow& row : rows) runlog::add(copies, row.copies);
  for (auto begin = rows.begin(); begin != rows.end();) {
    const auto end =
        std::find_if(begin, rows.end(), [&](const TopRow& row) { return row.host != begin->host; });
    TopRow sum;
    for (auto row = begin; row != end; ++row) add(sum, *row);
    if (begin->node_limit) sum.limit = std::min(sum.limit, begin->node_limit);
    add_line(table, shown, begin->host, sum);
    for (auto row = begin; row != end; ++row) add_line(table, shown, rank_name(*row), *row);
    begin = end;
    ++nodes;
  }
  // Ahead of the ranks, which may be more than the terminal has lines for.
  const std::string of_gpus = copies.any() ? gpu_copies_table(copies).text() + "\n" : "";
  return cut(heading(rows, nodes, columns) + of_gpus + table.text(), columns, lines);
}

std::string coloured(const std::string& picture) {
  static const std::regex bar("\\[(\\|*)( *)\\]");
  std::string out;
  std::istringstream in(picture);
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (line.starts_with(kFirstColumn)) {
      line = "\033[1m" + line + "\033[0m";
    } else if (std::regex_search(line, found, bar)) {
      const auto filled = static_cast<std::size_t>(found.length(1));
      const char* const colour = filled * 10 >= kBar * 9 ? "31" : filled * 10 >= kBar * 7 ? "33" : "32";
      line = found.prefix().str() + "[\033[" + colour + "m" + found.str(1) + "\033[0m" + found.str(2) + "]" +
             found.suffix().str();
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace pinion::cli
