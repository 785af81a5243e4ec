// Shared by the tests of the `pinion` command from outside. They need build/bin/pinion beside build/tests/;
// sanitizer builds have none.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/range.h"
#include "support/cli_fixture.h"

namespace pinion::command_test {

namespace fs = std::filesystem;
using nlohmann::json;

using test::Cli;
using test::content_of;
using test::Outcome;

/// The rows of one of the paper's figures: `ours` by `what`.
inline std::map<std::string, json> paper_rows(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json figure = json::parse(outcome.out);
  EXPECT_EQ(figure.at("schema"), "pinion-paper-1");
  std::map<std::string, json> rows;
  for (const json& row : figure.at("rows")) rows[row.at("what")] = row.at("ours");
  return rows;
}

}  // namespace pinion::command_test
