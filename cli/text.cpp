#include "cli/text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>
#include <sstream>

namespace pinion::cli {

namespace {

// Three significant digits where there are fewer before the point.
std::string figure(double value) {
  const double size = std::fabs(value);
  const int decimals = size >= 99.95 || size == 0 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

bool is_unit(const std::string& word) {
  static const std::set<std::string> units = {"%",   "B",  "KiB", "MiB", "GiB", "TiB",
                                              "PiB", "ns", "us",  "ms",  "s"};
  return units.count(word.substr(0, word.find_first_of(").,:;"))) != 0;  // "%" of "(6.59 %)."
}

}  // namespace

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::fabs(bytes) >= 1023.5 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", unit == 0 ? fmt::format("{:.0f}", bytes) : figure(bytes), units[unit]);
}

std::string pair_text(double peak, double mean) { return bytes_text(peak) + " / " + bytes_text(mean); }

std::string seconds_text(double seconds) {
  const double size = std::fabs(seconds);
  if (size == 0) return "0 s";
  if (size < 0.9995e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (size < 0.9995e-3) return figure(seconds * 1e6) + " us";
  if (size < 0.9995) return figure(seconds * 1e3) + " ms";
  return figure(seconds) + " s";
}

std::string percent_text(double share) {
  if (share < 1 && share >= 0.9995) return "99.9 %";
  if (share > 0 && share < 0.5e-4) return "< 0.01 %";
  return figure(share * 100) + " %";
}

std::string change_text(double value, double reference, int decimals) {
  const double change = (value / reference - 1) * 100;
  const std::string text = fmt::format("{:+.{}f} %", change, decimals);
  return value > 0 && text.starts_with("-100") ? fmt::format("{:+.1f} %", std::max(change, -99.9)) : text;
}

std::string count_text(std::uint64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string plural_text(std::uint64_t n, const char* one, const char* many) {
  return fmt::format("{} {}", count_text(n), n == 1 ? one : many);
}

std::string strong(const std::string& text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  return terminal ? "\033[1m" + text + "\033[0m" : text;
}

std::string with_units_kept(const std::string& text, const std::string& gap) {
  std::string out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool after_number = !out.empty() && std::isdigit(static_cast<unsigned char>(out.back())) != 0;
    if (!out.empty()) out += after_number && is_unit(word) ? gap : " ";
    out += word;
  }
  return out;
}

std::string wrapped(const std::string& text, const std::string& indent) {
  constexpr char kGap = '\1';  // as wide as the blank that it stands for
  std::string out, line;
  const auto end_line = [&] {
    std::replace(line.begin(), line.end(), kGap, ' ');
    if (!line.empty()) out += indent + line + "\n";
    line.clear();
  };
  std::istringstream words(with_units_kept(text, std::string(1, kGap)));
  for (std::string word; words >> word;) {
    if (indent.size() + line.size() + 1 + word.size() > kColumns) end_line();
    line += (line.empty() ? "" : " ") + word;
  }
  end_line();
  return out;
}

std::string Table::text(const std::string& indent) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto width = [&] {
    std::size_t sum = indent.size() - 2;
    for (const std::size_t w : widths) sum += w + 2;
    return sum;
  };
  // Names on lines of their own, above their figures.
  const bool is_wide = width() > kColumns;
  if (is_wide) widths[0] = std::min<std::size_t>(widths[0], 4);
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const std::string& name = rows_[r][0];
    std::string line = indent + fmt::format("{:<{}}", name, widths[0]);
    if (name.size() > widths[0]) line += fmt::format("\n{}{:{}}", indent, "", widths[0]);
    for (std::size_t i = 1; i < rows_[r].size(); ++i) line += fmt::format("  {:>{}}", rows_[r][i], widths[i]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    if (r == 0) out += indent + std::string(width() - indent.size(), '-') + "\n";
  }
  return out;
}

}  // namespace pinion::cli
