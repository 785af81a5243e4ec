// `pinion compare`: its table, its limits, and runs that fail.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "fixture.h"
#include "support/in_child.h"

namespace pinion::command_test {
namespace {

// A program that leaves the logs of two ranks at the place given by its environment.
constexpr const char* kLeavesLogs =
    "echo hello; d=$(echo $PINION | tr , '\\n' | sed -n s/^log=//p | tail -1); test -z \"$d\" || cp "
    "made/*.plog $d/";

TEST_F(Cli, CompareMakesOneTable) {
  install_harmless_preload();
  write_log(root() / "made", 0);
  write_log(root() / "made", 1);
  const Outcome o = pinion({"compare", "--retention", "off,on-demand,helper", "--repeat", "2", "--log", "cmp",
                            "--", "sh", "-c", kLeavesLogs});
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.err.find("run 6 of 6: helper"), std::string::npos) << o.err;
  for (const char* text :
       {"strategy", "wall time", "seconds added", "registered peak / mean", "oracle peak / mean",
        "misses / late / bounced", "\noff ", "\non-demand", "\nhelper", "Device: pins pages", "2 / 0 / 0"})
    EXPECT_NE(o.out.find(text), std::string::npos) << text << "\n" << o.out;
  EXPECT_EQ(o.out.find("hello"), std::string::npos);
  EXPECT_EQ(content_of(root() / "cmp/helper.2/output.txt"), "hello\n");
  EXPECT_EQ(pinion({"report", "cmp/helper.1"}).status, 0);
  // One clock for all rows: that of the logs would give 2.000 s.
  EXPECT_NE(o.out.find("of the whole command"), std::string::npos) << o.out;
  EXPECT_EQ(o.out.find("2.000 ("), std::string::npos) << o.out;
  EXPECT_EQ(o.out.find("20.0 ms (1.00 %)"), std::string::npos) << o.out;
  const Outcome logged = pinion(
      {"compare", "--retention", "helper", "--repeat", "1", "--log", "cmp", "--", "sh", "-c", kLeavesLogs});
  EXPECT_NE(logged.out.find("from MPI_Init to MPI_Finalize"), std::string::npos) << logged.out;
  EXPECT_NE(logged.out.find("2.000 ("), std::string::npos) << logged.out;
  EXPECT_NE(logged.out.find("20.0 ms (1.00 %)"), std::string::npos) << logged.out;
}

TEST_F(Cli, CompareNamesADifferenceThatRegistrationDoesNotExplain) {
  install_harmless_preload();
  write_log(root() / "made/helper", 0, 0, 1 << 16, 13 * kSecond);
  write_log(root() / "made/leave-pinned", 0);
  // Each strategy leaves the log made for it.
  const auto compared = [&](const char* from) {
    return pinion(
               {"compare", "--retention", "leave-pinned,helper", "--repeat", "1", "--log", "cmp", "--", "sh",
                "-c",
                std::string("d=$(echo $PINION | tr , '\\n' | sed -n s/^log=//p | tail -1); "
                            "s=$(echo $PINION | tr , '\\n' | sed -n s/^retention=//p | tail -1); cp made/") +
                    from + "/*.plog $d/"})
        .out;
  };
  const std::string longer = compared("${s:-helper}");
  EXPECT_NE(longer.find("helper for 3.00 s"), std::string::npos) << longer;
  EXPECT_NE(longer.find("Registration explains 0 s of the difference"), std::string::npos) << longer;
  const std::string equal = compared("helper");
  EXPECT_NE(equal.find("helper for 3.00 s"), std::string::npos) << equal;
  EXPECT_EQ(equal.find("Registration explains"), std::string::npos) << equal;
  for (const std::string& text : {longer, equal}) {
    EXPECT_EQ(text.find(" s (2.00 to 2.00): "), std::string::npos) << "a percentage of few runs: " << text;
    EXPECT_EQ(text.find("run --device"), std::string::npos) << "advice beside the MPI library: " << text;
  }
  // A gain that registration does not explain is noise as well.
  fs::remove_all(root() / "made/leave-pinned");
  write_log(root() / "made/leave-pinned", 0, 0, 1 << 16, 13 * kSecond);
  fs::remove_all(root() / "made/helper");
  write_log(root() / "made/helper", 0);
  const std::string shorter = compared("${s:-helper}");
  EXPECT_NE(shorter.find("helper for 2.00 s"), std::string::npos) << shorter;
  EXPECT_NE(std::regex_replace(shorter, std::regex("\\s+"), " ").find("the rest is noise"), std::string::npos)
      << shorter;
}

TEST_F(Cli, CompareAsJson) {
  install_harmless_preload();
  write_log(root() / "made", 0);
  const Outcome o =
      pinion({"compare", "--retention=helper", "--repeat=1", "--json", "--", "sh", "-c", kLeavesLogs});
  ASSERT_EQ(o.status, 0) << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j["device"], "pins pages");
  const json& row = j.at("rows").at(0);
  EXPECT_EQ(row["retention"], "helper");
  EXPECT_DOUBLE_EQ(row["wall_seconds"]["median"], 2);
  EXPECT_DOUBLE_EQ(row["seconds_added"]["median"], 0.02);
  EXPECT_EQ(row["registered_bytes"]["peak"], page_size());
  EXPECT_EQ(row["acquires"]["misses"], 1);
  EXPECT_TRUE(fs::exists(row["logs"][0].get<std::string>()));
}

// A limit is for the rows that are named so, where there are any.
TEST_F(Cli, CompareLimitsTheRowsThatSaySo) {
  install_harmless_preload();
  write_log(root() / "made", 0);
  const auto options = [&](const char* rows) {
    const Outcome o = pinion({"compare", "--limit", "5M", "--retention", rows, "--repeat", "1", "--log",
                              "cmp", "--", "sh", "-c", "echo $PINION; " + std::string(kLeavesLogs)});
    EXPECT_EQ(o.status, 0) << o.err;
    return content_of(root() / "cmp/helper.1/output.txt");
  };
  EXPECT_NE(options("helper").find("limit=5M"), std::string::npos);
  EXPECT_EQ(options("helper,helper-limited,lru-limited").find("limit="), std::string::npos);
  for (const char* row : {"helper", "lru"}) {
    const std::string text = content_of(root() / "cmp" / (std::string(row) + "-limited.1/output.txt"));
    EXPECT_NE(text.find("limit=5M"), std::string::npos) << text;
  }
  EXPECT_NE(content_of(root() / "cmp/lru-limited.1/output.txt").find("retention=lru"), std::string::npos);
}

// The libraries' caches, beside which Pinion stands: a process that keeps four pages for itself from the
// start to the end, and uses another page four times, unregistered but for the second.
TEST_F(Cli, CompareBelowLibraries) {
  install_harmless_preload();
  make_nic();
  const std::uint64_t page = page_size();
  {
    using namespace runlog;
    RunInfo info;
    info.retention = "observe";
    info.device = "made up";
    info.start = 10 * kSecond;
    LogWriter writer;
    ASSERT_FALSE(writer.open((root() / "made").string(), info, 1 << 16));
    for (const Time second : {12, 13, 14, 15})
      writer.append(lease(second * kSecond, second * kSecond + 100, 64 * page, page, 0,
                          second == 13 ? runlog::Outcome::hit : runlog::Outcome::miss));
    writer.append(lease(10 * kSecond, 19 * kSecond, 16 * page, 4 * page, 0, runlog::Outcome::miss));
    Series series;
    series.start(10 * kSecond);
    series.advance(20 * kSecond);
    writer.finish({}, series, 20 * kSecond, 0);
  }
  const auto compared = [&](std::uint64_t limit) {
    return pinion({"compare", "--json", "--front", "verbs", "--limit", std::to_string(limit), "--repeat", "1",
                   "--log", "cmp", "--", "sh", "-c", kLeavesLogs});
  };
  const Outcome o = compared(6 * page);
  ASSERT_EQ(o.status, 0) << o.err;
  const json rows = json::parse(o.out).at("rows");
  std::vector<std::string> names;
  for (const json& row : rows) {
    names.push_back(row.at("retention"));
    EXPECT_TRUE(row.contains("nic"));
    EXPECT_EQ(row.at("unregistered").at("uses"), 4) << row;
    EXPECT_EQ(row.at("unregistered").at("reuses"), 2) << row;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"library", "library-limited", "on-demand", "leave-pinned",
                                             "helper", "helper-limited"}));
  const auto command = [&](std::size_t row) { return rows.at(row).at("command").get<std::string>(); };
  EXPECT_EQ(command(0).find("sh -c "), 0u) << command(0);
  EXPECT_EQ(command(4).find("limit"), std::string::npos) << command(4);
  EXPECT_NE(command(5).find("--limit " + std::to_string(6 * page / 1024) + "K"), std::string::npos)
      << command(5);
  // The variable exists only with UCX or libfabric.
  if (const auto at = command(1).find("MAX_SIZE="); at != std::string::npos) {
    EXPECT_EQ(command(1).substr(at).find("MAX_SIZE=" + std::to_string(2 * page) + " "), 0u) << command(1);
  }

  const Outcome low = compared(4 * page);
  EXPECT_EQ(low.status, 1);
  EXPECT_NE(low.err.find("no room beside the " + std::to_string(4 * page) + " bytes"), std::string::npos)
      << low.err;
}

TEST_F(Cli, CompareOfAProgramWithoutLogsLeavesNothing) {
  install_harmless_preload();
  const std::vector<std::string> compared = {"compare", "--retention", "on-demand,helper", "--", "true"};
  const Outcome o = pinion(compared);
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(
      o.err.find("\npinion compare: no rank left a log: did the program use MPI? The preload does not reach"),
      std::string::npos)
      << o.err;
  EXPECT_EQ(o.err.find("run 3 of 6"), std::string::npos) << o.err;
  EXPECT_FALSE(fs::exists(root() / "pinion-compare.logs"));
  // A directory of the user's stays.
  fs::create_directory(root() / "pinion-compare.logs");
  EXPECT_EQ(pinion(compared).status, 2);
  EXPECT_TRUE(fs::exists(root() / "pinion-compare.logs"));
  // Without Pinion there is no log to miss.
  EXPECT_EQ(pinion({"compare", "--retention", "off", "--", "true"}).status, 0);
}

TEST_F(Cli, CompareNeedsItsDirectoryBeforeItRuns) {
  install_harmless_preload();
  std::ofstream(root() / "file") << "mine";
  for (const char* place : {"file", "/proc/none"})
    expect_usage_error({"compare", "--log", place, "--", "touch", "ran"}, place);
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

TEST_F(Cli, CompareRaisesTheSoftLimitOfLockedMemory) {
  install_harmless_preload();
  test::in_child([&] {
    ASSERT_NO_FATAL_FAILURE(limit_locked_memory());
    const auto limit_in = [&](const char* row) {
      const Outcome o = pinion({"compare", "--log", "cmp", "--repeat", "1", "--retention", row, "--", "sh",
                                "-c", "ulimit -S -l; exit 1"});
      const bool raised = o.err.find("raised from 64.0 KiB") != std::string::npos;
      const std::string inside = content_of(root() / "cmp" / (std::string(row) + ".1/output.txt"));
      EXPECT_EQ(raised, inside == "4096\n") << o.err;
      return inside;
    };
    EXPECT_EQ(limit_in("off"), "64\n");
    EXPECT_EQ(limit_in("helper"), "4096\n");
  });
}

TEST_F(Cli, CompareSaysWhichRunFailed) {
  install_harmless_preload();
  const Outcome o =
      pinion({"compare", "--retention", "helper", "--log", "cmp", "--", "sh", "-c", "echo why; exit 9"});
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(o.err.find("failed under helper with exit status 9; its output is in " +
                       (root() / "cmp/helper.1/output.txt").string()),
            std::string::npos)
      << o.err;
  EXPECT_EQ(content_of(root() / "cmp/helper.1/output.txt"), "why\n");
}

}  // namespace
}  // namespace pinion::command_test
