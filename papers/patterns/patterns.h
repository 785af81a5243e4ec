// Shared by the files of this folder: each pattern's maker, checks of classes and numbers of ranks.
#pragma once

#include <string>

#include "papers/patterns/pattern.h"

namespace pinion::simulate {

Error make_bt(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_sp(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_lu(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_cg(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_ft(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_mg(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_is(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_reuse(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_loop3(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_loop5(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_no_reuse(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_nested(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_warm_up(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_regime_change(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_drift(const std::string& scale, const std::string& ranks, Pattern& pattern);
Error make_irregular(const std::string& scale, const std::string& ranks, Pattern& pattern);

enum class RanksRule { any, power_of_two, square };
Error read_ranks(const std::string& text, const char* name, RanksRule rule, int& ranks);
int square_root(int n);  ///< rounded down
int log2_of(int n);      ///< rounded down

/// A class of a benchmark on a cube.
struct CubeClass {
  char name;
  int points;  ///< a side
  std::uint64_t steps;
};

Error unknown_class(const char* name, const std::string& given, const std::string& valid);

/// The row of `table` (each with a member `name`) that is the class, or null and an error with the valid
/// ones.
template <class Table>
auto find_class(const Table& table, const char* pattern, const std::string& given, Error& error)
    -> decltype(&table[0]) {
  std::string valid;
  for (const auto& row : table) {
    if (given.size() == 1 && given[0] == row.name) return &row;
    valid += (valid.empty() ? "" : ", ") + std::string(1, row.name);
  }
  error = unknown_class(pattern, given, valid);
  return nullptr;
}

constexpr std::uint64_t kDouble = 8;

/// A call site is a whole stack, so a line of a function that is called from two places is two call sites.
/// `line` numbers the calls in one function: from 1, below 16.
using Site = std::uint64_t;
constexpr Site called_from(Site caller, Site line) { return caller * 16 + line; }

}  // namespace pinion::simulate
