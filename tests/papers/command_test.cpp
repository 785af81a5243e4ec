// `papers`: errors of usage, profiles, JSON, studies, patterns.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "helper/profile_file.h"
#include "support/cli_fixture.h"

namespace pinion::test {
namespace {

using nlohmann::json;

class PapersCommand : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    if (!fs::exists(build() / "libexec/pinion/papers")) GTEST_SKIP() << "papers is not built";
    executable_ = "libexec/pinion/papers";
    copy_of_build(executable_);
  }
};

TEST_F(PapersCommand, UsageErrorsOfSimulate) {
  const auto expect = [&](std::vector<std::string> arguments, const char* reason) {
    arguments.insert(arguments.begin(), "simulate");
    expect_usage_error(arguments, reason);
  };
  expect({}, "give logs, or --pattern NAME:CLASS:RANKS");
  expect({"nowhere"}, "nowhere: No such file or directory");
  expect({"--pattern", "bt:C:8"}, "a square number");
  const struct {
    const char *option, *value, *reason;
  } bad_values[] = {{"--retention", "best", "'best' is not one of"},
                    {"--predictor", "best", "periodicity, oracle, schedule"},
                    {"--limit", "lots", "expected a size"},
                    {"--noise", "loud", "a share such as 1%"},
                    {"--nic", "none-such", "connectx"},
                    {"--wake-latency", "5", "a time such as"},
                    {"--placement", "random:x", "needs a whole number as seed"},
                    {"--cores", "0", "--cores"},
                    {"--gflops", "nan", "nan is not from 0.001 to 1000000"},
                    {"--bandwidth", "0", "0 is not from 0.001 to 1000000"},
                    {"--ranks", "8", "--ranks is for logs"},
                    {"--placement", "nodes:2,1", "the ranks of each node, 4 together"},
                    {"--skew", "1ms", "--skew is for logs"}};
  for (const auto& [option, value, reason] : bad_values)
    expect({"--pattern", "bt:S:4", option, value}, reason);
  expect({"--pattern", "bt:S:4", "--period-window", "0"}, "1 to 128");
  write_log(root() / "log", 0);
  expect({"log", "--iterations", "2"}, "--iterations is for patterns");
  expect({"log", "--placement", "random:1"}, "needs --ppn");
}

TEST_F(PapersCommand, SimulateBeginsWithAProfile) {
  const auto within = [&] {
    const Outcome o = pinion(
        {"simulate", "--pattern", "ft:C:4", "--retention", "helper", "--profile", "app.profile", "--json"});
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(o.err, "");
    return json::parse(o.out)["rows"][0]["prediction"]["within_0_5_percent"].get<double>();
  };
  const double first = within();
  EXPECT_TRUE(std::filesystem::exists(root() / "app.profile"));
  EXPECT_GT(within(), first + 0.05);

  std::ofstream(root() / "app.profile") << "PINIONPR, then nonsense";
  const Outcome o = pinion({"simulate", "--pattern", "ft:C:4", "--profile", "app.profile"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.err.find("no profile"), std::string::npos) << o.err;
}

TEST_F(PapersCommand, AFileThatIsNoProfileStays) {
  const std::string letter = (root() / "letter").string();
  std::ofstream(letter) << "Dear all";
  const std::string refusal = letter + ": not a profile of Pinion";
  expect_usage_error({"simulate", "--pattern", "is:S:2", "--profile", letter}, refusal.c_str());
  executable_ = "bin/pinion";
  expect_usage_error({"run", "--profile", letter, "--", "true"}, refusal.c_str());
  // The engine takes it from the environment too.
  EXPECT_TRUE(write_profile(letter, "PINIONPR"));
  std::string kept;
  std::getline(std::ifstream(letter), kept);
  EXPECT_EQ(kept, "Dear all");

  const std::string pipe = (root() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(write_profile(pipe, "PINIONPR"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(PapersCommand, SimulateJson) {
  write_log(root() / "log", 0);
  write_log(root() / "log", 1);
  const Outcome o = pinion(
      {"simulate", "log", "--pattern", "cg:A:4", "--json", "--limit", "0,1M", "--node-limit", "0,512K"});
  ASSERT_EQ(o.status, 0) << o.err;
  const json all = json::parse(o.out);
  EXPECT_EQ(all["schema"], "pinion-simulate-1");
  ASSERT_EQ(all["rows"].size(), 24u);  // two programs, two limits of either kind, three strategies
  for (const json& row : all["rows"]) {
    EXPECT_NE(row["log"].is_null(), row["pattern"].is_null());
    EXPECT_EQ(row["predictor"].is_null(), row["retention"] != "helper");
    EXPECT_EQ(row["policy"], "sleeping");
    for (const char* key : {"limit_bytes", "node_limit_bytes", "ranks", "seconds", "seconds_added"})
      EXPECT_TRUE(row[key].is_number()) << key;
    for (const char* key :
         {"peak", "mean", "oracle_peak", "oracle_mean", "leave_pinned_peak", "leave_pinned_mean"})
      EXPECT_TRUE(row["registered_bytes"][key].is_number_unsigned()) << key;
    for (const char* key : {"total", "hits", "waits", "misses", "late", "bounced"})
      EXPECT_TRUE(row["acquires"][key].is_number_unsigned()) << key;
    for (const char* key : {"reuses", "within_0_5_percent", "within_5_percent", "late"})
      EXPECT_TRUE(row["prediction"][key].is_number()) << key;
    EXPECT_EQ(row["time_budget"].is_null(), row["retention"] != "helper");
    for (const char* key : {"within_0_5_percent", "within_5_percent"})
      EXPECT_TRUE(row["prediction"]["at_release"][key].is_number()) << key;
  }
  const json& replayed = all["rows"].back();
  EXPECT_EQ(replayed["log"], "log");
  EXPECT_EQ(replayed["nic"], "recorded");
  EXPECT_EQ(replayed["ranks"], 2);
  EXPECT_EQ(replayed["acquires"]["total"], 4);
}

TEST_F(PapersCommand, SimulateTakesListsOfValues) {
  const Outcome o = pinion({"simulate", "--pattern", "cg:S:2", "--retention", "leave-pinned,helper", "--nic",
                            "connectx,myrinet", "--poll", "1ms,5ms", "--window", "1,2", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  const json rows = json::parse(o.out)["rows"];
  ASSERT_EQ(rows.size(), 10u);  // two NICs; leave-pinned neither polls nor predicts
  EXPECT_EQ(rows[0]["nic"], "connectx");
  EXPECT_EQ(rows[9]["nic"], "myrinet");
  EXPECT_EQ(rows[9]["options"]["poll"], "5ms");
  EXPECT_EQ(rows[9]["options"]["window"], "2");
  EXPECT_FALSE(rows[0]["options"].contains("poll"));
  const std::string text = pinion({"simulate", "--pattern", "cg:S:2", "--poll", "1ms,5ms"}).out;
  EXPECT_NE(text.find("\nhelper (adaptive), poll 5ms "), std::string::npos) << text;
  expect_narrow(text);
}

TEST_F(PapersCommand, StudiesAreTablesOfManyRows) {
  const Outcome curve = pinion({"simulate", "--study", "budget", "--pattern", "cg:S:4", "--json"});
  ASSERT_EQ(curve.status, 0) << curve.err;
  std::size_t budgets = 0, others = 0;
  const json rows = json::parse(curve.out)["rows"];
  for (const json& row : rows) (row["predictor"] == "adaptive" ? budgets : others) += 1;
  EXPECT_EQ(budgets, 8u);
  EXPECT_EQ(others, 6u);
  const Outcome text = pinion({"simulate", "--study", "prediction", "--pattern", "cg:S:4"});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* word : {"(adaptive), noise 1%", "(schedule), noise drift", "within 0.5 / 5 %"})
    EXPECT_NE(text.out.find(word), std::string::npos) << word;
}

// Behind a pattern, each wrong in one place.
TEST_F(PapersCommand, MalformedCommandLinesAreOneLineAndStatus2) {
  const struct {
    std::vector<const char*> options, values;
  } wrong[] = {{{"--limit", "--node-limit"},
                {"0.4", "nan", "inf", "-1", "-1G", "2X", "1Gi", "K", "0x10", "99999999999G", "1G2", "much"}},
               {{"--seed"}, {"-1", "1.5", "1e3", "0x", "many", "99999999999999999999", ""}},
               {{"--retention", "--nic", "--study"}, {"best", "Helper", "helper;lru"}},
               {{"--json"}, {"=maybe", "=1", "=on"}},
               {{"--retention"}, {"helper,", ",helper", "helper,,lru"}},
               {{"--cores", "--ppn"}, {"2x", ""}},
               {{"--skew", "--gflops", "--limit"}, {"", "1M,,2M"}}};
  for (const auto& [options, values] : wrong)
    for (const std::string option : options)
      for (const std::string value : values) {
        SCOPED_TRACE(option + ' ' + value);
        std::vector<std::string> line{"simulate", "--pattern", "cg:S:4"};
        if (value.starts_with("="))
          line.push_back(option + value);
        else
          line.insert(line.end(), {option, value});
        expect_usage_error(line, "");
      }
  for (const char* pattern : {"cg:S", "cg:S:0", "cg:S:x", "cg:Q:4", "gc:S:4", "cg:S:4,"})
    expect_usage_error({"simulate", "--pattern", pattern}, "");
  expect_usage_error({"simulate", "--pattern", "x\ny"}, "x?y");
  expect_usage_error({"simulate", "--study", "x\ny"}, "x?y");
  const std::string nic = (root() / "my own.nic").string();
  std::ofstream(nic) << "register_ns_base=16us\n";
  expect_usage_error({"simulate", "--pattern", "cg:S:2", "--nic", nic},
                     (nic + ":1: register_ns_base").c_str());
}

}  // namespace
}  // namespace pinion::test
