// Figures and tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pinion::cli {

constexpr const char* kNotKnown = "not available";

std::string bytes_text(double bytes);             ///< "512 B", "33.5 MiB"
std::string pair_text(double peak, double mean);  ///< of bytes: "512 MiB / 33.5 MiB"
std::string seconds_text(double seconds);         ///< "12.3 s", "4.56 ms", "780 ns"
/// 0.123 -> "12.3 %". "100 %" is all of it, and "0 %" nothing.
std::string percent_text(double share);
/// Compares a value with another: "-33 %". "-100 %" is for 0 alone.
std::string change_text(double value, double reference, int decimals);
std::string count_text(std::uint64_t n);  ///< 1234567 -> "1,234,567"
/// "1 rank", "2 ranks"
std::string plural_text(std::uint64_t n, const char* one, const char* many);

/// Bold where standard output is a terminal, and NO_COLOR is unset.
std::string strong(const std::string& text);

constexpr std::size_t kColumns = 100;
/// Words with a blank between them, but `gap` between a number and its unit: "64.0 MiB", "(6.59 %)".
std::string with_units_kept(const std::string& text, const std::string& gap);
/// Words in lines of kColumns at most, each after `indent`; a longer word has a line of its own. A unit stays
/// with its number.
std::string wrapped(const std::string& text, const std::string& indent);

/// Columns as wide as their widest cell; the first is set left, the others right. Where that makes lines
/// longer than kColumns, the first cells have lines of their own.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// The header is the first.
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  /// A rule below the header; each line begins with `indent`, or with so many spaces.
  std::string text(const std::string& indent) const;
  std::string text(std::size_t indent = 0) const { return text(std::string(indent, ' ')); }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pinion::cli
