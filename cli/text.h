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
std::string percent_text(double share);           ///< 0.123 -> "12.3 %"
std::string count_text(std::uint64_t n);          ///< 1234567 -> "1,234,567"

/// Columns as wide as their widest cell; the first is set left, the others right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Each line indented by `indent` spaces; a rule below the header.
  std::string text(std::size_t indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pinion::cli
