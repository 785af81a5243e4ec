// Says what the metrics of `pinion bench` mean, for the headings of its tables.
#pragma once

#include <string>

namespace pinion::cli {

/// The meaning of a metric; empty: its name and unit say it.
std::string meaning_of(const std::string& metric);

}  // namespace pinion::cli
