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

}  // namespace pinion::command_test
