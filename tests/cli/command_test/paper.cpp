// Figures of the papers, from simulations and from measured transfers.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "fixture.h"

namespace pinion::command_test {
namespace {

// Figures that depend on call sites: the window separates CG's products from the residual, and the arrays of
// FT's start are predicted only for real uses.
TEST_F(Cli, PaperFiguresThatDependOnCallSites) {
  const auto windows = paper_rows(pinion({"simulate", "--figure", "6", "--json"}));
  EXPECT_GT(windows.at("a: cg:D:8: lost without a window"), 15);
  EXPECT_GT(windows.at("b: ft:B:4, periodicity, window of 1: within 5 %"),
            50 + windows.at("b: ft:B:4, periodicity, window of 128: within 5 %").get<double>());
  const auto grouped = paper_rows(pinion({"simulate", "--figure", "12", "--json"}));
  for (const std::string test : {"test 1", "test 2"})
    EXPECT_EQ(grouped.at(test + ": peak saved"), grouped.at(test + ": peak that an oracle saves"));
}

// The pipeline hides registration where memory is met for the first time, and pays for it anew where it is
// not left pinned.
TEST_F(Cli, PaperFiguresOfSchemes) {
  const auto reuse = paper_rows(pinion({"simulate", "--figure", "9", "--json"}));
  EXPECT_GT(reuse.at("helper against pipeline, pinned: saved"), 50);
  EXPECT_GT(reuse.at("4M: pipeline, not pinned over leave-pinned, a message"), 0);
  EXPECT_GT(reuse.at("helper against leave-pinned: peak saved"), 50);
  const auto once = paper_rows(pinion({"simulate", "--figure", "10", "--json"}));
  EXPECT_EQ(once.at("4M: helper over leave-pinned, a message"), 0) << "each registers every message once";
  EXPECT_LT(once.at("4M: pipeline, pinned over leave-pinned, a message"), 0);
  const auto limit = paper_rows(pinion({"simulate", "--figure", "3", "--json"}));
  EXPECT_GT(limit.at("a rank needs"), limit.at("the limit"));
  const auto overhead = paper_rows(pinion({"simulate", "--section", "4.3", "--json"}));
  EXPECT_GT(overhead.at("overhead of a message of 17K"), overhead.at("overhead of a message of 4M"));
}

// Worked out by hand: 8 of 12 MiB are saved, a third of the time is added.
TEST_F(Cli, PaperFiguresOfMeasuredTransfers) {
  const std::string file = (root() / "transfers.json").string();
  json rows = json::array();
  const auto add = [&](const char* name, const char* subject, const char* metric, double value) {
    rows.push_back(
        {{"provider", "shm"}, {"case", name}, {"subject", subject}, {"metric", metric}, {"value", value}});
  };
  add("reuse-4M", "helper", "registered_peak_bytes", 4 << 20);
  rows.push_back({{"provider", "the library's own"},
                  {"case", "reuse-4M"},
                  {"subject", "openmpi"},
                  {"metric", "latency_us"},
                  {"value", 1}});
  add("reuse-4M", "leave-pinned", "registered_peak_bytes", 12 << 20);
  add("reuse-17K", "helper", "latency_us", 12);
  add("reuse-17K", "leave-pinned", "latency_us", 9);
  add("reuse-17K", "everything-registered", "latency_us", 8);
  add("reuse-5M", "on-demand", "latency_us", 5);
  add("reuse-5M", "leave-pinned", "latency_us", 4);
  add("no-reuse-4M", "helper", "registered_peak_bytes", 4 << 20);
  add("no-reuse-4M", "pipeline-pinned", "registered_peak_bytes", 10 << 20);
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  write(json{{"schema", "pinion-bench-1"}, {"bench", "transfers"}, {"rows", rows}}.dump());
  const auto figure = [&](const char* option, const char* number) {
    return pinion({"simulate", option, number, "--from", file, "--json"});
  };
  const auto reuse = paper_rows(figure("--figure", "9"));
  EXPECT_NEAR(reuse.at("helper against leave-pinned: peak saved"), 100 * 2 / 3.0, 1e-9);
  EXPECT_TRUE(reuse.at("helper against pipeline, pinned: peak saved").is_null());
  EXPECT_NEAR(reuse.at("17K: helper over leave-pinned, a message"), 100 / 3.0, 1e-9);
  EXPECT_EQ(paper_rows(figure("--figure", "10")).at("peak of pipeline, pinned, over helper's"), 2.5);
  EXPECT_NEAR(paper_rows(figure("--figure", "2")).at("communication takes longer without leave-pinned"), 25,
              1e-9);
  EXPECT_EQ(paper_rows(figure("--section", "4.3")).at("17K: helper over everything registered, a message"),
            50);

  expect_usage_error({"simulate", "--figure", "3", "--from", file}, "valid: --figure 2, --figure 9");
  expect_usage_error({"simulate", "--from", file}, "--from goes with");
  expect_usage_error({"simulate", "--figure", "9", "--from", file + "x"}, "No such file");
  for (const char* wrong :
       {"", "{", "[1]", "{\"schema\": \"pinion-bench-1\", \"bench\": \"hit\", \"rows\": []}",
        "{\"schema\": \"pinion-bench-1\", \"bench\": \"transfers\", \"rows\": [{}]}",
        "{\"schema\": \"pinion-bench-1\", \"bench\": \"transfers\", \"rows\": []}"}) {
    write(wrong);
    expect_usage_error({"simulate", "--figure", "9", "--from", file}, file.c_str());
  }
}

}  // namespace
}  // namespace pinion::command_test
