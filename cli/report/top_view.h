// A running job as a screen of text: a line for each node and each rank. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runlog/analysis.h"
#include "runlog/reader.h"

namespace pinion::cli {

/// The state of one process.
struct TopRow {
  std::string host, command;
  std::int32_t rank = -1;
  std::uint32_t process = 0;
  bool is_running = false;
  double seconds = 0;
  std::uint64_t registered_now = 0, registered_peak = 0, limit = 0, node_limit = 0;
  runlog::Acquires acquires;
  runlog::TimeBudgetUse budget;
  runlog::GpuCopies copies;
};

TopRow top_row(const runlog::Log& log);

/// Cut to `columns` and `lines`; 0: whole, without bars. `rows`: at least one.
std::string top_text(std::vector<TopRow> rows, std::size_t columns, std::size_t lines);

/// Adds the escape codes of colours: a bar is green, from 70 % on yellow, from 90 % on red, and the heads of
/// columns are bold.
std::string coloured(const std::string& picture);

}  // namespace pinion::cli
