// `pinion report`: its keys, sections, series and events, and logs that are no good.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/call_kind.h"
#include "fixture.h"

namespace pinion::command_test {
namespace {

/// The last line of each kind that `--events` writes; of a process itself, "process".
class Events : public Cli {
 protected:
  std::map<std::string, json> last_of_kinds(const char* logs) {
    EXPECT_EQ(pinion({"report", logs, "--events", "events"}).status, 0);
    std::map<std::string, json> kinds;
    std::ifstream lines(root() / "events");
    for (std::string line; std::getline(lines, line);) {
      json event = json::parse(line);
      const std::string kind = event.value("kind", "process");
      kinds[kind] = std::move(event);
    }
    return kinds;
  }
};

TEST_F(Cli, ReportJsonHasTheKeysOfTheContract) {
  write_log(root() / "logs", 0);
  write_log(root() / "logs", 1);
  const Outcome o = pinion({"report", "logs", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  const json j = json::parse(o.out);
  for (const char* key : {"schema",
                          "command",
                          "host",
                          "version",
                          "ranks",
                          "retention",
                          "predictor",
                          "device",
                          "acts",
                          "strategies",
                          "limit_bytes",
                          "wall_seconds",
                          "seconds_added",
                          "registered_bytes",
                          "acquires",
                          "registrations",
                          "deregistrations",
                          "critical_path_seconds",
                          "prediction",
                          "helper_share",
                          "helper_cpu_seconds",
                          "pinned_at_exit_bytes",
                          "kernel_pinned_peak_bytes",
                          "per_rank",
                          "call_sites"})
    EXPECT_TRUE(j.contains(key)) << key;
  const std::uint64_t page = page_size();
  const json& bytes = j["registered_bytes"];
  for (const char* key :
       {"peak", "mean", "oracle_peak", "oracle_mean", "leave_pinned_peak", "leave_pinned_mean"})
    EXPECT_TRUE(bytes.at(key).is_number_integer()) << key;
  EXPECT_EQ(bytes["peak"], 2 * page);
  EXPECT_EQ(bytes["mean"], page);
  EXPECT_EQ(bytes["leave_pinned_mean"], 2 * page);
  for (const char* key : {"total", "hits", "waits", "misses", "late", "bounced"})
    EXPECT_TRUE(j["acquires"].at(key).is_number_integer()) << key;
  EXPECT_EQ(j["acquires"]["total"], 4);
  EXPECT_EQ(j["ranks"], 2);
  EXPECT_EQ(j["limit_bytes"], 1 << 30);
  EXPECT_DOUBLE_EQ(j["wall_seconds"], 2.0);
  EXPECT_DOUBLE_EQ(j["seconds_added"], 0.02);
  EXPECT_DOUBLE_EQ(j["critical_path_seconds"]["registration"], 0.02);
  EXPECT_DOUBLE_EQ(j["critical_path_seconds"]["bookkeeping"], 0);
  EXPECT_DOUBLE_EQ(j["prediction"]["within_5_percent"], 1);
  EXPECT_DOUBLE_EQ(j["prediction"]["within_0_5_percent"], 0);
  EXPECT_TRUE(j["prediction"]["at_release"].contains("within_0_5_percent"));
  EXPECT_TRUE(j["prediction"]["at_release"].contains("within_5_percent"));
  EXPECT_EQ(j["prediction"]["reuses"], 2);
  EXPECT_EQ(j["pinned_at_exit_bytes"], 8192);
  EXPECT_EQ(j["per_rank"].size(), 2u);
  EXPECT_EQ(j["per_rank"][1]["rank"], 1);
  ASSERT_EQ(j["call_sites"].size(), 1u);
  EXPECT_EQ(j["call_sites"][0]["name"], "exchange+0x10 (app)");
  EXPECT_EQ(j["call_sites"][0]["acquires"], 4);
}

TEST_F(Cli, ReportAsTextHasItsSections) {
  write_log(root() / "logs", 0);
  const Outcome o = pinion({"report", "logs"});
  EXPECT_EQ(o.status, 0);
  for (const char* title :
       {"Pinion report: ./app", "Registered memory of node", "Transfers", "Prediction",
        "Time lost to registration", "Call sites", "Ranks", "exchange+0x10 (app)", "pins pages"})
    EXPECT_NE(o.out.find(title), std::string::npos) << title << "\n" << o.out;
  EXPECT_EQ(o.out.find('\x1b'), std::string::npos) << "colour belongs on terminals";
}

TEST_F(Cli, TheVerdictComesFirst) {
  write_log(root() / "logs", 0);
  const std::string sentence =
      "Registered memory: 4.00 KiB at most (as leave-pinned), 2.00 KiB on average instead of 4.00 "
      "KiB (-50 %), for 20.0 ms of 2.00 s (1.00 %).";
  const json verdict = json::parse(pinion({"report", "logs", "--json"}).out).at("verdict");
  ASSERT_FALSE(verdict.at("sentences").empty());
  EXPECT_EQ(verdict["sentences"][0], sentence);
  EXPECT_TRUE(verdict.at("advice").is_array());

  const std::string text = pinion({"report", "logs"}).out;
  const std::size_t found = text.find("Registered memory: 4.00 KiB at most");
  ASSERT_NE(found, std::string::npos) << text;
  EXPECT_LT(found, text.find("\nRun\n"));
  expect_narrow(text);

  install_harmless_preload();
  const Outcome run = pinion({"run", "--log", "run", "--", "sh", "-c", "cp logs/*.plog run/"});
  EXPECT_NE(run.err.find("pinion: Registered memory: 4.00 KiB at most"), std::string::npos) << run.err;
}

TEST_F(Cli, TheSeriesCoversTheRun) {
  write_log(root() / "logs", 0);
  const json report = json::parse(pinion({"report", "logs", "--json"}).out);
  const json& series = report.at("series");
  EXPECT_GT(series.at("bin_seconds"), 0);
  const json& rank = series.at("per_rank").at(0);
  std::uint64_t peak = 0;
  for (const json& bytes : rank.at("registered").at("peak"))
    peak = std::max(peak, bytes.get<std::uint64_t>());
  EXPECT_EQ(peak, report["registered_bytes"]["peak"]) << rank;
}

TEST_F(Events, EventsAreLinesOfJson) {
  write_log(root() / "logs", 0);
  const std::map<std::string, json> events = last_of_kinds("logs");
  EXPECT_EQ(events.at("process").at("counters").at("registered bytes").size(), 2u);
  EXPECT_EQ(events.at("registration").at("name"), "deregister");
  EXPECT_EQ(events.at("lease").at("outcome"), "hit");
  EXPECT_EQ(pinion({"report", "logs", "--events", "/nowhere/events"}).status, 2);
}

// A pool of 16 pages from the start to the end, and a buffer of one page in five transfers.
TEST_F(Cli, ReportHasTheMemoryThatLibrariesHold) {
  using namespace runlog;
  const auto write = [&](const char* directory, Acts acts, int rank) {
    RunInfo info;
    info.acts = acts;
    info.retention = "helper";
    info.rank = rank;
    info.ranks = rank + 1;
    info.start = kSecond;
    LogWriter writer;
    ASSERT_FALSE(writer.open((root() / directory).string(), info, 1 << 16));
    const std::uint64_t page = page_size();
    for (int i = 0; i < 5; ++i)
      writer.append(lease(2 * kSecond + i * kSecond, 2 * kSecond + i * kSecond + 1000, 64 * page, page));
    writer.append(lease(kSecond, 9 * kSecond, 16 * page, 16 * page));
    writer.finish(Counters{}, Series{}, 9 * kSecond, 0);
  };
  const auto held = [&](const char* directory) {
    return json::parse(pinion({"report", directory, "--json"}).out).at("held_by_libraries");
  };
  write("below", Acts::verbs, 0);
  EXPECT_EQ(held("below").at("bytes"), 16 * page_size());
  EXPECT_EQ(held("below").at("regions"), 1);
  EXPECT_NE(pinion({"report", "below"}).out.find("in 1 region throughout"), std::string::npos);
  write("beside", Acts::pinned, 0);  // no library registers there
  EXPECT_TRUE(held("beside").is_null());
  write("alone", Acts::verbs, -1);  // a program that may use libibverbs itself
  EXPECT_TRUE(held("alone").is_null());
}

TEST_F(Events, ReportHasTheDomainsOfARun) {
  using namespace runlog;
  RunInfo info;
  info.command = "./app";
  info.retention = "helper";
  info.device = "pins pages";
  info.rank = 0;
  info.ranks = 1;
  info.start = kSecond;
  LogWriter writer;
  ASSERT_FALSE(writer.open((root() / "logs").string(), info, 1 << 16));
  writer.add_domain({"pin", "connectx", "pins pages", 16384, 0, 0});
  writer.add_domain({"verbs:mlx5_0", "connectx", "registers with mlx5_0", 1000, 1 << 20, 0});
  DomainState state{};
  state.registered_peak_bytes = 3 << 20;
  state.registered_byte_ns = static_cast<double>(kSecond) * (1 << 20);
  state.acquires = state.hits = 9;
  state.fit_register_a_ns = 246;
  writer.set_domain_state(1, state);
  state.registered_peak_bytes = 0;
  writer.set_domain_state(0, state);
  Event run = lease(kSecond, kSecond + 500, 0x10000, 4096, 0);
  run.kind = EventKind::uses;
  run.count = 9;
  run.leased_ns = 90;
  Event moved = event(EventKind::transfer, kSecond, kSecond + 700, 0x10000, 4096);
  moved.protocol = Protocol::rendezvous;
  moved.call = static_cast<std::uint8_t>(CallKind::put);
  moved.peer = 4;
  for (const Event& e : {run, moved, event(EventKind::hold_begin, kSecond, kSecond, 0x10000, 4096),
                         event(EventKind::hold_end, kSecond + 1, kSecond + 1, 0x10000, 4096)})
    writer.append(e);
  Counters counters{};
  counters.acquires = counters.hits = 9;
  writer.finish(counters, Series{}, 3 * kSecond, 0);

  const Outcome o = pinion({"report", "logs", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  const json domains = json::parse(o.out).at("domains");
  ASSERT_EQ(domains.size(), 2u);
  EXPECT_EQ(domains[0]["device"], "pin");
  EXPECT_EQ(domains[1]["number"], 1);
  EXPECT_EQ(domains[1]["description"], "registers with mlx5_0");
  EXPECT_EQ(domains[1]["caps"]["max_region_bytes"], 1 << 20);
  EXPECT_EQ(domains[1]["registered_bytes"]["peak"], 3 << 20);
  EXPECT_EQ(domains[1]["registered_bytes"]["mean"], 1 << 19);
  EXPECT_EQ(domains[1]["acquires"]["hits"], 9);
  EXPECT_EQ(domains[1]["cost"]["register_ns_per_page"], 246);
  EXPECT_EQ(json::parse(o.out)["call_sites"][0]["acquires"], 9);

  const std::map<std::string, json> events = last_of_kinds("logs");
  EXPECT_EQ(events.at("lease").at("uses"), 9);
  EXPECT_EQ(events.at("transfer").at("protocol"), "rendezvous");
  EXPECT_EQ(events.at("transfer").at("peer"), 4);
  EXPECT_EQ(events.at("transfer").at("name"), "put");
  EXPECT_EQ(events.at("hold").at("name"), "hold ends");

  const Outcome text = pinion({"report", "logs"});
  for (const char* part : {"Domains, sums over their ranks", "1: verbs:mlx5_0", "1: registers with mlx5_0"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  // One domain needs no table.
  write_log(root() / "one", 0);
  EXPECT_EQ(pinion({"report", "one"}).out.find("Domains"), std::string::npos);
}

TEST_F(Cli, ReportSaysWhyALogIsNoGood) {
  Outcome o = pinion({"report", "absent"});
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "pinion report: absent: No such file or directory\n");
  fs::create_directories(root() / "empty");
  o = pinion({"report", "empty"});
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "pinion report: empty: no run logs (*.plog) in this directory\n");
  write_log(root() / "logs", 0);
  const fs::path log = fs::directory_iterator(root() / "logs")->path();
  fs::resize_file(log, fs::file_size(log) - 1);
  o = pinion({"report", "logs", "--json"});
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(o.lines_of_error(), 1);
  EXPECT_NE(o.err.find("truncated"), std::string::npos) << o.err;
}

TEST_F(Cli, TwoRunsAreNotAddedUp) {
  write_log(root() / "a", 0, 1);
  write_log(root() / "b", 0, 2);
  for (const char* command : {"report", "simulate"}) {
    expect_usage_error({command, "a", "b"}, "two runs: a/");
    expect_usage_error({command, "a", "b"}, "(app, 1 of 2 ranks on ");
    expect_usage_error({command, "a", "b"}, "and b/");
  }
  write_log(root() / "c", 1, 1);  // another node of the first
  EXPECT_EQ(pinion({"report", "a", "c"}).status, 0);
}

TEST_F(Events, WhatLacksEventsIsNotZero) {
  write_log(root() / "logs", 0, 0, 0);
  const std::string line = "4 events are missing (no space left where the log is; rank 0 on ";
  const Outcome text = pinion({"report", "logs"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find(line), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("oracle        not available"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("not available: their events are missing"), std::string::npos) << text.out;
  const json process = last_of_kinds("logs").at("process");
  EXPECT_EQ(process.at("events_missing"), 4);
  EXPECT_EQ(process.at("counters").at("registered bytes").size(), 2u) << "from the time series";

  const json j = json::parse(pinion({"report", "logs", "--json"}).out);
  for (const char* key : {"oracle_peak", "oracle_mean", "leave_pinned_peak", "leave_pinned_mean"})
    EXPECT_TRUE(j["registered_bytes"][key].is_null()) << key;
  EXPECT_TRUE(j["call_sites"].is_null());
  EXPECT_EQ(j["registered_bytes"]["peak"], page_size());
  EXPECT_EQ(j["events"]["dropped"], 4);

  install_harmless_preload();
  const Outcome run = pinion({"run", "--log", "run", "--", "sh", "-c", "cp logs/*.plog run/"});
  EXPECT_NE(run.err.find("pinion: " + line), std::string::npos) << run.err;
  for (const char* reference : {"(oracle): not available", "(leave-pinned): not available"})
    EXPECT_NE(run.err.find(reference), std::string::npos) << run.err;
}

TEST_F(Cli, OutputsOfAReportLeadNowhereByLinksOfOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes a link another user's";
  constexpr uid_t kAnother = 12345;
  write_log(root() / "logs", 0);
  std::ofstream(root() / "victim") << "Dear all";
  for (const char* output : {"--events", "--trace", "--prometheus"}) {
    fs::remove(root() / "link");
    fs::create_symlink(root() / "victim", root() / "link");
    ASSERT_EQ(::lchown((root() / "link").c_str(), kAnother, kAnother), 0);
    const Outcome o = pinion({"report", "logs", output, "link"});
    EXPECT_EQ(o.status, 2) << output;
    EXPECT_NE(o.err.find("link: a link of another user's"), std::string::npos) << o.err;
  }
  EXPECT_EQ(content_of(root() / "victim"), "Dear all");
  ASSERT_EQ(::lchown((root() / "link").c_str(), ::geteuid(), ::getegid()), 0);
  EXPECT_EQ(pinion({"report", "logs", "--trace", "link"}).status, 0);
  EXPECT_TRUE(fs::is_symlink(root() / "link"));
  EXPECT_TRUE(json::parse(content_of(root() / "victim")).contains("traceEvents"));
}

TEST_F(Cli, AReportOfNowHasTheCountersAlone) {
  write_log(root() / "logs", 0);
  const json now = json::parse(pinion({"report", "logs", "--now", "--json"}).out);
  EXPECT_EQ(now.at("acquires").at("total"), 2);
  EXPECT_EQ(now.at("per_rank").at(0).at("registered_bytes").at("peak"), page_size());
  EXPECT_TRUE(now.at("call_sites").is_null());
  expect_usage_error({"report", "logs", "--now"}, "--json");
  expect_usage_error({"report", "absent", "--now", "--json"}, "absent: No such file or directory");
}

}  // namespace
}  // namespace pinion::command_test
