#include "base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace pinion {

namespace {

/// Letters to change, add or leave out to make one name of the other.
std::size_t edits(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view given, const std::vector<std::string_view>& valid) {
  std::string_view nearest;
  std::size_t fewest = given.size() + 1;
  for (const std::string_view other : valid) {
    const std::size_t needed = edits(given, other);
    if (needed >= fewest || 2 * needed > std::max(given.size(), other.size())) continue;
    fewest = needed;
    nearest = other;
  }
  return nearest;
}

}  // namespace pinion
