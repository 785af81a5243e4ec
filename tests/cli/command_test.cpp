// The `pinion` command from outside. Needs build/bin/pinion beside build/tests/; sanitizer builds have none.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/call_kind.h"
#include "base/range.h"
#include "engine/profile_file.h"
#include "support/cli_fixture.h"
#include "support/eventually.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using test::Cli;
using test::content_of;
using test::Outcome;

TEST_F(Cli, UsageErrorsAreOneLineAndStatus2) {
  expect_usage_error(
      {}, "no command given; valid commands: run, compare, report, top, simulate, info, doctor, bench");
  expect_usage_error({"runn"}, "unknown command 'runn'; valid commands: run");
  expect_usage_error({"--limit", "2G"}, "unknown option '--limit'");
  expect_usage_error({"run"}, "no command given: pinion run [options] -- CMD...");
  expect_usage_error({"run", "--"}, "no command given");
  expect_usage_error({"run", "--limits", "2G", "--", "true"},
                     "unknown option '--limits'; valid options: --help, --off");
  expect_usage_error({"run", "true", "--size=3"}, "unknown option '--size'");
  expect_usage_error({"run", "--limit", "2X", "--", "true"}, "expected a size such as 4096, 16K, 1.5M or 2G");
  expect_usage_error({"run", "--retention", "helpful", "--", "true"},
                     "not one of: observe, on-demand, leave-pinned");
  expect_usage_error({"run", "--poll", "5", "--", "true"}, "expected a time");
  expect_usage_error({"run", "--device", "emulated", "--nic", "none-such", "--", "true"}, "connectx");
  expect_usage_error({"run", "--log", "a,b", "--", "true"}, "comma");
  expect_usage_error({"compare"}, "no command given: pinion compare [options] -- CMD...");
  expect_usage_error({"compare", "--retention", "helper,best", "--", "true"}, "'best' is not one of");
  expect_usage_error({"compare", "--repeat", "0", "--", "true"}, "--repeat");
  expect_usage_error({"compare", "--retention", "library", "--", "true"}, "where Pinion acts below them");
  expect_usage_error({"compare", "--retention", "helper-limited", "--", "true"},
                     "helper-limited: needs --limit");
  expect_usage_error({"compare", "--limit", "1M", "--retention", "best-limited", "--", "true"},
                     "'best' is not one of");
  expect_usage_error({"compare", "--limit", "1M", "--retention", "off-limited", "--", "true"}, "off-limited");
  expect_usage_error({"report"}, "logs is required");
  expect_usage_error({"report", "--jsn", "x"},
                     "unknown option '--jsn'; valid options: --help, --json, --trace, --html, --plot");
  expect_usage_error({"info", "colours"}, "colours");
  expect_usage_error({"bench"}, "no bench given; valid: acquire, events, firehose");
  expect_usage_error({"bench", "none-such"}, "unknown bench 'none-such'");
}

// A bench runs in a session of its own, out of reach of a terminal's signals.
TEST_F(Cli, ABenchEndsOnCtrlC) {
  const pid_t command = start({"bench", "hit", "--rounds", "1000"});
  pid_t session = 0;
  ASSERT_TRUE(test::eventually([&] {
    session = child_of(command);
    return session != 0 && ::getsid(session) == session;
  }));
  ASSERT_EQ(::kill(command, SIGINT), 0);
  EXPECT_EQ(finish(command).status, 1000 + SIGINT);
  EXPECT_TRUE(test::eventually([&] { return ::kill(-session, 0) != 0; })) << "it goes on";
}

TEST_F(Cli, WithoutTheBenchItsPackageIsNamed) {
  fs::remove(root() / "libexec/pinion/bench");
  expect_usage_error({"bench", "hit"}, "the package pinion-bench has it");
  expect_usage_error({"help", "bench"}, "the package pinion-bench has it");
}

TEST_F(Cli, ABenchThatFailsSaysSoToAnyParent) {
  ::signal(SIGCHLD, SIG_IGN);
  const pid_t command = start({"bench", "registration", "--device", "none-such"});
  ::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(finish(command).status, 2);
}

// Paths may have spaces.
TEST_F(Cli, FilesOfSettingsThatAreWrong) {
  const std::string config = (root() / "my options.conf").string();
  const std::string nic = (root() / "my own.nic").string();
  std::ofstream(config) << "# ours\nlimit=2X\n";
  std::ofstream(nic) << "register_ns_base=16us\n";
  expect_usage_error({"run", "--device", "emulated", "--nic", nic, "--", "true"},
                     (nic + ":1: register_ns_base: '16us' is not valid; expected a number").c_str());
  expect_usage_error({"simulate", "--pattern", "cg:S:2", "--nic", nic},
                     (nic + ":1: register_ns_base").c_str());
  ::setenv("PINION_CONFIG", config.c_str(), 1);
  expect_usage_error({"run", "--", "true"},
                     (config + ":2: option limit: '2X' is not valid; expected").c_str());
}

TEST_F(Cli, UsageErrorsOfSimulate) {
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
                    {"--skew", "1ms", "--skew is for logs"},
                    {"--figure", "2", "excludes --figure"}};
  for (const auto& [option, value, reason] : bad_values)
    expect({"--pattern", "bt:S:4", option, value}, reason);
  expect({"--figure", "4"}, "valid: 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14");
  expect({"--section", "4"}, "valid: 4.3");
  expect({"--figure", "2", "--paper"}, "excludes");
  expect({"--pattern", "bt:S:4", "--period-window", "0"}, "1 to 128");
  expect({"--table", "0"}, "valid: 1, 2, 3, 4");
  write_log(root() / "log", 0);
  expect({"log", "--iterations", "2"}, "--iterations is for patterns");
  expect({"log", "--placement", "random:1"}, "needs --ppn");
}

/// The rows of one of the paper's figures: `ours` by `what`.
std::map<std::string, json> paper_rows(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json figure = json::parse(outcome.out);
  EXPECT_EQ(figure.at("schema"), "pinion-paper-1");
  std::map<std::string, json> rows;
  for (const json& row : figure.at("rows")) rows[row.at("what")] = row.at("ours");
  return rows;
}

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

// By hand: 8 of 12 MiB are saved, a third of the time is added.
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

/// The rows of a bench: value by case, subject and metric.
using BenchValues = std::map<std::string, std::map<std::string, std::map<std::string, double>>>;
BenchValues bench_values(const json& bench, const std::map<std::string, std::string>& units,
                         const std::string& provider) {
  BenchValues values;
  for (const json& row : bench.at("rows")) {
    const std::string metric = row.at("metric");
    EXPECT_EQ(row.at("unit"), units.at(metric));
    EXPECT_NE(row.value("provider", "").find(provider), std::string::npos) << row;
    EXPECT_LE(row.at("min"), row.at("value"));
    EXPECT_LE(row.at("value"), row.at("max"));
    values[row.at("case")][row.at("subject")][metric] = row.at("value");
  }
  return values;
}
const std::map<std::string, std::string> kTransferUnits = {{"latency_us", "us"},
                                                           {"learning_us", "us"},  // with reuse
                                                           {"bandwidth_MBps", "MB/s"},
                                                           {"cpu_us", "us a message"},
                                                           {"remote_cpu_us", "us a message"},
                                                           {"registered_peak_bytes", "bytes"},
                                                           {"registered_mean_bytes", "bytes"}};

TEST_F(Cli, BenchTransfersMeasuresWhatFiguresAreMadeOf) {
  const Outcome o = without_mpi({"bench", "transfers", "--size", "17K,4M", "--rounds", "1", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  std::ofstream(root() / "transfers.json") << o.out;
  BenchValues values = bench_values(json::parse(o.out), kTransferUnits, "");
  if (values.empty()) GTEST_SKIP() << "no provider of libfabric";
  for (const char* name : {"reuse-17K", "no-reuse-17K", "reuse-4M", "no-reuse-4M"})
    for (const char* subject : {"everything-registered", "bounce", "on-demand", "leave-pinned", "helper",
                                "pipeline", "pipeline-pinned", "prepared"}) {
      auto& metrics = values[name][subject];
      EXPECT_EQ(metrics.contains("learning_us"), std::string_view(name).starts_with("reuse"));
      EXPECT_EQ(metrics.size() + !metrics.contains("learning_us"), kTransferUnits.size())
          << name << ' ' << subject;
      EXPECT_GT(metrics["latency_us"], 0);
      EXPECT_GT(metrics["bandwidth_MBps"], 0);
      EXPECT_LE(metrics["registered_mean_bytes"], metrics["registered_peak_bytes"]);
    }
  auto& once = values["no-reuse-4M"];
  EXPECT_GE(once["leave-pinned"]["registered_peak_bytes"], 8 << 20);
  EXPECT_LT(once["bounce"]["registered_peak_bytes"], 4 << 20) << "only the pool";

  const auto figure = [&](const char* option, const char* number) {
    return paper_rows(pinion({"simulate", option, number, "--from", "transfers.json", "--json"}));
  };
  EXPECT_NEAR(figure("--figure", "10").at("peak of leave-pinned over helper's"),
              once["leave-pinned"]["registered_peak_bytes"] / once["helper"]["registered_peak_bytes"], 1e-6);
  const auto latency = [&](const char* name, const char* subject) {
    return values[name][subject]["latency_us"];
  };
  EXPECT_NEAR(figure("--figure", "9").at("17K: helper over leave-pinned, a message"),
              100 * (latency("reuse-17K", "helper") / latency("reuse-17K", "leave-pinned") - 1), 1e-6);
  EXPECT_NEAR(figure("--section", "4.3").at("4M: helper over everything registered, a message"),
              100 * (latency("reuse-4M", "helper") / latency("reuse-4M", "everything-registered") - 1), 1e-6);
}

// The wire's sleep is a lower bound of each message's time, on any machine.
TEST_F(Cli, BenchTransfersOnAnEmulatedWire) {
  fs::create_directories(root() / "share/pinion");
  fs::copy_file(fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share/pinion/plot",
                root() / "share/pinion/plot");
  std::vector<std::string> command = {"bench",  "transfers", "--wire",   "2GB/s",
                                      "--size", "512K",      "--rounds", "1"};
  const bool plots =
      std::system(
          "{ python3 -c 'import matplotlib' || /usr/bin/python3 -c 'import matplotlib'; } 2> /dev/null") == 0;
  if (!plots) {
    std::vector<std::string> with_png = command;
    with_png.insert(with_png.end(), {"--plot", "plot.png"});
    expect_usage_error(with_png, "python3-matplotlib");
  }
  command.insert(command.end(), {"--plot", "plot.svg", "--json"});
  const Outcome o = pinion(command);
  ASSERT_EQ(o.status, 0) << o.err;
  if (o.out.find("process_vm_readv: Operation not permitted") != std::string::npos)
    GTEST_SKIP() << "processes here may not read each other's memory";
  BenchValues values = bench_values(json::parse(o.out), kTransferUnits, "emulated wire of 2000 MB/s");
  for (const char* name : {"reuse-512K", "no-reuse-512K"})
    for (const char* subject :
         {"everything-registered", "bounce", "on-demand", "leave-pinned", "helper", "pipeline", "prepared"}) {
      ASSERT_TRUE(values[name].contains(subject)) << name << ' ' << subject << o.out;
      EXPECT_GE(values[name][subject]["latency_us"], (512 << 10) / 2000.0) << name << ' ' << subject;
      EXPECT_LE(values[name][subject]["bandwidth_MBps"], 2000.0) << name << ' ' << subject;
    }
  EXPECT_NE(content_of(root() / "plot.svg").find("<svg"), std::string::npos);
}

TEST_F(Cli, BenchPrepareHasTheDelaysOfOthers) {
  const Outcome o = pinion({"bench", "prepare", "--size", "32M", "--rounds", "1", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  std::map<std::string, std::string> units{{"seconds", "s"}};
  for (const std::string kind : {"hit", "registration", "mmap", "munmap"})
    for (const char* part : {"_p50_us", "_p99_us", "_max_us"}) units[kind + part] = "us";
  BenchValues values = bench_values(json::parse(o.out), units, "");
  for (const char* subject : {"pinion", "pinion-hugepages", "one-registration", "computing"}) {
    auto& metrics = values["32M"][subject];
    EXPECT_EQ(metrics.size(), units.size()) << subject;
    EXPECT_GT(metrics["seconds"], 0);
    for (const std::string kind : {"hit", "registration", "mmap", "munmap"}) {
      EXPECT_LE(metrics[kind + "_p50_us"], metrics[kind + "_p99_us"]) << subject << ' ' << kind;
      EXPECT_LE(metrics[kind + "_p99_us"], metrics[kind + "_max_us"]) << subject << ' ' << kind;
    }
  }
}

TEST_F(Cli, BenchPreregHasEachWayAndTheCollectiveOn16Nodes) {
  const Outcome o = without_mpi({"bench", "prereg", "--size", "64M", "--rounds", "1", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  BenchValues values = bench_values(json::parse(o.out),
                                    {{"ns", "ns"},
                                     {"ms", "ms"},
                                     {"us", "us"},
                                     {"saved", "%"},
                                     {"faster_than_on-demand", "times"},
                                     {"faster_than_unfaulted", "times"}},
                                    "");
  for (const char* name : {"unfaulted", "offloaded", "on-demand"})
    EXPECT_GE(values[name]["pinion"]["ns"], 78'000) << name << ": 256 pages as connectx registers them";
  for (const char* name : {"leave-pinned", "arena", "arena-lease"}) {
    EXPECT_GT(values[name]["pinion"]["ns"], 0) << name;
    EXPECT_LT(values[name]["pinion"]["ns"], values["on-demand"]["pinion"]["ns"]) << name;
  }
  EXPECT_GT(values["arena"]["atomic-pair"]["ns"], 0);
  for (const char* name : {"allreduce-2M-16-nodes", "allreduce-4M-16-nodes"})
    EXPECT_GT(values[name]["arena"]["saved"], 0) << name;
  for (const char* subject : {"pinion", "under-lease", "unregistered"})
    EXPECT_GT(values["fork-64M"][subject]["ms"], 0) << subject;
}

TEST_F(Cli, BenchGatherHasEachWay) {
  const Outcome o = pinion({"bench", "gather", "--rounds", "1", "--json"});
  if (o.status == 2) GTEST_SKIP() << "this machine lacks the provider";
  ASSERT_EQ(o.status, 0) << o.err;
  const json result = json::parse(o.out);
  std::map<std::string, std::map<std::string, double>> ns;  // by case and subject
  for (const json& row : result.at("rows"))
    if (row.at("metric") == "ns") ns[row.at("case")][row.at("subject")] = row.at("value");
  for (const char* name : {"1x8", "4x128", "128x32768"})
    for (const char* subject : {"request-each", "in-place", "packed", "pinion"})
      EXPECT_GT(ns[name][subject], 0) << name << ' ' << subject;
  EXPECT_GT(ns["offset-64"]["in-place"], 0);
  expect_usage_error({"bench", "gather", "--provider", "none-such"}, "none-such");
}

TEST_F(Cli, BenchesRefuseOptionsOfOthers) {
  expect_usage_error({"bench", "hit", "--wire", "1GB/s"}, "bench hit has no --provider, --full or --wire");
  expect_usage_error({"bench", "hit", "--size", "4M"}, "bench hit has no --size");
  expect_usage_error({"bench", "prepare", "--plot", "x.svg"}, "bench prepare has no --plot");
  expect_usage_error({"bench", "transfers", "--plot", "x.pdf"}, "'x.pdf' ends in neither .svg nor .png");
  expect_usage_error({"bench", "transfers", "--size", "4M,5000"}, "'5000' is no size in whole KiB");
  for (const char* wire : {"1GiB/s", "1", "-1GB/s", "0MB/s", "nanGB/s"})
    expect_usage_error({"bench", "transfers", "--wire", wire}, "such as 1.5GB/s");
  expect_usage_error({"bench", "transfers", "--wire", "1GB/s", "--provider", "tcp"}, "--provider");
}

TEST_F(Cli, SimulateBeginsWithAProfile) {
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

TEST_F(Cli, AFileThatIsNoProfileStays) {
  const std::string letter = (root() / "letter").string();
  std::ofstream(letter) << "Dear all";
  const std::string refusal = letter + ": not a profile of Pinion";
  expect_usage_error({"simulate", "--pattern", "is:S:2", "--profile", letter}, refusal.c_str());
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

TEST_F(Cli, SimulateJson) {
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

TEST_F(Cli, SimulateTakesListsOfValues) {
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

TEST_F(Cli, StudiesAreTablesOfManyRows) {
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

TEST_F(Cli, TheStudyOfFirehoseHasJobsOfItsOwn) {
  const Outcome refused = pinion({"simulate", "--study", "firehose", "--pattern", "cg:S:4"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("jobs of its own"), std::string::npos) << refused.err;
}

TEST_F(Cli, TheEnvironmentIsCheckedLikeFlags) {
  ::setenv("PINION", "limit=lots", 1);
  expect_usage_error({"run", "--", "true"}, "option limit: 'lots'");
  ::setenv("PINION", "limit=0.4", 1);
  expect_usage_error({"run", "--", "true"}, "option limit: '0.4'");
  ::unsetenv("PINION");
  std::ofstream(root() / "options") << "limit = 0.4\n";
  ::setenv("PINION_CONFIG", "options", 1);
  expect_usage_error({"run", "--", "true"}, "option limit: '0.4'");
}

// An unset variable of the shell is an error, rather than the choice of a default.
TEST_F(Cli, EmptyValuesAreRefused) {
  install_harmless_preload();
  for (const char* option :
       {"--limit", "--limit-regions", "--node-limit", "--retention", "--predictor", "--device", "--nic",
        "--poll", "--time-budget", "--threshold", "--log-size", "--monitor"}) {
    expect_usage_error({"run", option, "", "--", "touch", "ran"}, "''");
    expect_usage_error({"run", std::string(option) + "=", "--", "touch", "ran"}, "''");
  }
  const std::vector<std::vector<std::string>> others = {{"compare", "--repeat", "", "--", "touch", "ran"},
                                                        {"compare", "--log", "", "--", "touch", "ran"},
                                                        {"report", ""},
                                                        {"report", "x", "--trace", ""},
                                                        {"simulate", "--pattern", "cg:S:4", "--seed", ""},
                                                        {"simulate", "--pattern", "cg:S:4", "--skew", ""},
                                                        {"simulate", "--pattern", "cg:S:4", "--gflops="},
                                                        {"simulate", "--figure", ""},
                                                        {"bench", "hit", "--rounds", ""},
                                                        {"bench", "registration", "--device", ""},
                                                        {"info", ""},
                                                        {"doctor", "--monitor", ""},
                                                        {"softroce", "--memory", "", "--", "touch", "ran"},
                                                        {"softroce", "--cpus", "", "--", "touch", "ran"}};
  for (const auto& arguments : others) expect_usage_error(arguments, "the value is empty");
  EXPECT_FALSE(fs::exists(root() / "ran"));
  EXPECT_EQ(pinion({"run", "sh", "-c"}).status, 2);
  EXPECT_EQ(pinion({"run", "echo", ""}).status, 0);  // a program's own argument
}

TEST_F(Cli, ValuesThatAreNone) {
  install_harmless_preload();
  const std::vector<std::vector<std::string>> all = {
      {"run", "--limit", "0.4", "--", "touch", "ran"},
      {"run", "--limit", "nan", "--", "touch", "ran"},
      {"run", "--limit", "99999999999G", "--", "touch", "ran"},
      {"run", "--window", "-1", "--", "touch", "ran"},
      {"run", "--device", "mlx5_0", "--", "touch", "ran"},
      {"run", "--nic", "bogus", "--", "touch", "ran"},
      {"run", "--log", "/proc/none", "--", "touch", "ran"},
      {"compare", "--limit", "0.4", "--", "touch", "ran"},
      {"compare", "--repeat", "1.5", "--", "touch", "ran"},
      {"compare", "--retention", "helper,helper", "--", "touch", "ran"},
      {"compare", "--json=7", "--", "touch", "ran"},
      {"simulate", "--pattern", "cg:S:4", "--limit", "0.4"},
      {"simulate", "--pattern", "cg:S:4", "--seed", "-1"},
      {"simulate", "--pattern", "cg:S:4", "--seed", "99999999999999999999"},
      {"simulate", "--pattern", "cg:S:4", "--ppn", "4x"},
      {"simulate", "--figure", "2x"},
      {"report", "absent"},
      {"bench", "hit", "--rounds", "1e3"},
      {"bench", "registration", "--device", "mlx5_0"},
      {"info", "options", "more"},
      {"doctor", "--monitor", "best"},
      {"doctor", "more"},
      {"softroce", "--memory", "0.4", "--", "touch", "ran"},
      {"softroce", "--timeout", "0.4ns", "--", "touch", "ran"},
      {"softroce", "--cpus", "0", "--", "touch", "ran"}};
  for (const auto& arguments : all) expect_usage_error(arguments, "");
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);  // a rank does as little
  expect_usage_error({"run", "--limit", "0.4", "--", "touch", "ran"}, "0.4");
  expect_usage_error({"run", "--log", "/proc/none", "--", "touch", "ran"}, "/proc/none");
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

TEST_F(Cli, OptionsWithoutEffectAreNamed) {
  install_harmless_preload();
  const auto error_of = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "true"});
    return pinion(options).err;
  };
  EXPECT_NE(error_of({"--nic", "myrinet", "--device", "pin"})
                .find("--nic myrinet has no effect: it is for --device emulated"),
            std::string::npos);
  EXPECT_EQ(error_of({"--nic", "myrinet"}).find("no effect"), std::string::npos);  // of what is simulated
  EXPECT_EQ(error_of({"--nic", "myrinet", "--device", "emulated"}).find("no effect"), std::string::npos);
  EXPECT_EQ(error_of({}).find("no effect"), std::string::npos);
  EXPECT_NE(error_of({"--front", "verbs", "--device", "verbs"}).find("--device verbs has no effect"),
            std::string::npos);
}

TEST_F(Cli, WithoutThePreloadLibraryNothingRuns) {
  expect_usage_error({"run", "--", "touch", "ran"}, "preload library is missing");
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

TEST_F(Cli, HelpAndVersionAreWordsToo) {
  const Outcome o = pinion({"--version"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "pinion " PINION_VERSION "\n");
  EXPECT_EQ(pinion({"version"}).out, o.out);
  EXPECT_EQ(pinion({"help"}).out, pinion({"--help"}).out);
  expect_narrow(pinion({"help"}).out);
  expect_usage_error({"help", "runn"}, "unknown command 'runn'; valid commands: run");
  expect_usage_error({"help", "run", "report"}, "one command at most");
  for (const char* command :
       {"run", "compare", "report", "top", "simulate", "info", "doctor", "bench", "softroce"}) {
    const std::string help = pinion({"help", command}).out;
    EXPECT_EQ(help, pinion({command, "--help"}).out);
    EXPECT_NE(help.find("--help"), std::string::npos) << help;
    expect_narrow(help);
  }
}

// The step is for a user at a terminal, and gone at the end.
TEST_F(Cli, StepsAreShownOnATerminalAlone) {
  const std::vector<std::string> command = {"simulate", "--pattern", "cg:S:2", "--retention", "helper"};
  EXPECT_EQ(pinion(command).err, "");
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) GTEST_SKIP() << "no terminal can be made here";
  if (child == 0) {
    ::execl((root() / "bin/pinion").c_str(), "pinion", "simulate", "--pattern", "cg:S:2", "--retention",
            "helper", nullptr);
    ::_exit(98);
  }
  std::string shown;
  char part[4096];
  for (ssize_t n; (n = ::read(terminal, part, sizeof part)) > 0;)
    shown.append(part, static_cast<std::size_t>(n));
  ::close(terminal);
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const std::size_t step = shown.find("\r\033[Kpinion simulate: row 1 of 1: helper (adaptive)");
  const std::size_t table = shown.find("cg:S:2: 2 ranks");
  ASSERT_NE(step, std::string::npos) << shown;
  ASSERT_NE(table, std::string::npos) << shown;
  EXPECT_EQ(shown.substr(table - 4, 4), "\r\033[K") << shown;
  EXPECT_LT(step, table);
}

TEST_F(Cli, ABenchNamesTheRatioToItsFirstSubject) {
  const std::string table = pinion({"bench", "queue", "--rounds", "1"}).out;
  EXPECT_NE(table.find("beside the first"), std::string::npos) << table;
  EXPECT_NE(table.find(" x\n"), std::string::npos) << table;
  expect_narrow(table);
}

TEST_F(Cli, RunPassesOptionsAndStatusOn) {
  install_harmless_preload();
  ::setenv("PINION", "window=3", 1);
  ::setenv("LD_PRELOAD", "/other.so", 1);
  const Outcome o = pinion(
      {"run", "--limit", "2G", "--log", "logs", "--", "sh", "-c", "echo $PINION; echo $LD_PRELOAD; exit 7"});
  EXPECT_EQ(o.status, 7);
  EXPECT_EQ(o.out.substr(0, o.out.find('\n')), "window=3,limit=2G,log=" + (root() / "logs").string());
  EXPECT_NE(o.out.find(preload() + ":/other.so\n"), std::string::npos) << o.out;
  EXPECT_NE(o.err.find("no rank left a log: the command failed with exit status 7"), std::string::npos)
      << o.err;
}

// The options that `pinion run` passes to launchers, as a rank on another node has them: without this
// environment.
TEST_F(Cli, OpenMpisAgentCarriesEveryOption) {
  install_harmless_preload();
  std::ofstream(root() / "options.conf") << "limit=2G\n";
  ::setenv("PINION_CONFIG", "options.conf", 1);
  ::setenv("PINION", "threshold=8K", 1);
  for (const char* variable :
       {"OMPI_MCA_orte_fork_agent", "PRTE_MCA_odls_base_exec_agent", "PRTE_MCA_rtos"}) {
    const Outcome o = pinion(
        {"run", "--log", "my logs", "--", "sh", "-c",
         std::string("agent=${") + variable +
             "#exec-agent=}; env -i PATH=$PATH PINION=window=3 OMPI_COMM_WORLD_RANK=1 $agent sh -c 'echo "
             "\"$PINION|$PINION_CONFIG|$LD_PRELOAD|$PINION_SUMMARY\"'"});
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(o.out, "window=3,limit=2G,threshold=8K,log=" + (root() / "my logs").string() + "||" +
                         preload() + "|\n")
        << variable;
  }
}

TEST_F(Cli, WhatTheUserToldLaunchersStays) {
  install_harmless_preload();
  ::setenv("OMPI_MCA_orte_fork_agent", "strace -f", 1);
  ::setenv("PRTE_MCA_odls_base_exec_agent", "ltrace -f", 1);
  ::setenv("PRTE_MCA_rtos", "recoverable", 1);
  ::setenv("SLURM_EXPORT_ENV", "HOME", 1);
  const Outcome o = pinion({"run", "--", "sh", "-c",
                            "echo $OMPI_MCA_orte_fork_agent; echo $PRTE_MCA_odls_base_exec_agent; echo "
                            "$PRTE_MCA_rtos; echo $SLURM_EXPORT_ENV"});
  EXPECT_NE(o.out.find(" -- strace -f\n"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" -- ltrace -f\nexec-agent="), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" -- ltrace -f,recoverable\nHOME,ASAN_OPTIONS,LD_PRELOAD,PINION,"), std::string::npos)
      << o.out;
}

TEST_F(Cli, HydrasVariablesAreAddedWhereItForwardsFew) {
  install_harmless_preload();
  fs::create_symlink("/bin/echo", root() / "mpiexec");
  Outcome o = pinion({"run", "--", "./mpiexec", "-f", "hosts", "./app"});
  EXPECT_EQ(o.out, "-f hosts ./app\n");
  o = pinion({"run", "--", "./mpiexec", "-genvnone", "-f", "hosts", "./app"});
  EXPECT_NE(o.out.find("-genv LD_PRELOAD " + preload() + " -genv PINION log="), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" -genvnone -f hosts ./app\n"), std::string::npos) << o.out;
}

// A batch script only has the variables of a task: `run` starts the launcher there, and sums up.
TEST_F(Cli, ABatchScriptIsNoRank) {
  install_harmless_preload();
  ::setenv("SLURM_PROCID", "0", 1);
  EXPECT_NE(pinion({"run", "--", "true"}).err.find("no rank left a log"), std::string::npos);
  ::setenv("SLURM_STEP_ID", "4294967290", 1);  // the shell of an allocation
  EXPECT_NE(pinion({"run", "--", "true"}).err.find("no rank left a log"), std::string::npos);
  ::setenv("SLURM_STEP_ID", "0", 1);
  EXPECT_EQ(pinion({"run", "--", "true"}).err, "");
}

TEST_F(Cli, MissingRanksAreNamed) {
  write_log(root() / "logs", 1);
  const Outcome o = pinion({"report", "logs"});
  EXPECT_NE(o.out.find("1 of 2 ranks (0) left no log here"), std::string::npos) << o.out;
}

TEST_F(Cli, RunGivesTheStatusesOfShells) {
  install_harmless_preload();
  std::ofstream(root() / "data") << "no program";
  EXPECT_EQ(pinion({"run", "--", "./absent"}).status, 127);
  EXPECT_EQ(pinion({"run", "--", "./data"}).status, 126);
  EXPECT_EQ(pinion({"run", "--", "sh", "-c", "kill -TERM $$"}).status, 128 + SIGTERM);
  EXPECT_EQ(pinion({"run", "sh", "-c"}).status, 2);  // run has no option -c
}

TEST_F(Cli, OutputThatIsLostIsAFailure) {
  const std::string command = (root() / "bin/pinion").string();
  const auto status = [](const std::string& text) {
    const int whole = std::system(text.c_str());
    return WIFEXITED(whole) ? WEXITSTATUS(whole) : -1;
  };
  EXPECT_EQ(status(command + " version 2>/dev/null >/dev/full"), 1);
  EXPECT_EQ(status(command + " --help 2>/dev/null >/dev/full"), 1);
  EXPECT_EQ(status(command + " version >&-"), 0);
  EXPECT_EQ(status(command + " run --off -- sh -c 'test -e /proc/self/fd/1 || exit 5' >&-"), 5);
}

TEST_F(Cli, AMissingDirectoryForTemporaryFilesStopsNoRun) {
  install_harmless_preload();
  ::setenv("TMPDIR", "/nonexistent", 1);
  EXPECT_EQ(pinion({"run", "--", "sh", "-c", "exit 3"}).status, 3);
  ::unsetenv("TMPDIR");
}

TEST_F(Cli, ALogDirectoryKeepsTheFilesOfOthers) {
  install_harmless_preload();
  fs::create_directory(root() / "mine");
  for (const char* name : {"my.arena", "notes.hugepages"})
    std::ofstream(root() / "mine" / name) << "Dear all";
  std::ofstream(root() / "mine" / "host.123.arena") << "bytes=0\n";
  EXPECT_EQ(pinion({"run", "--log", "mine", "--", "true"}).status, 0);
  EXPECT_FALSE(fs::exists(root() / "mine/host.123.arena")) << "of an earlier run";
  std::ofstream(root() / "mine/letter.plog") << "Dear all";
  expect_usage_error({"run", "--log", "mine", "--", "true"}, "letter.plog: not a log of Pinion");
  for (const char* name : {"my.arena", "notes.hugepages", "letter.plog"})
    EXPECT_EQ(content_of(root() / "mine" / name), "Dear all") << name;
}

TEST_F(Cli, RunOffLeavesTheProgramAlone) {
  const auto script = {"run", "--off", "yes", "--", "sh", "-c", "echo [$LD_PRELOAD]; exit 3"};
  Outcome o = pinion({script.begin(), script.end()});
  EXPECT_EQ(o.status, 3);
  EXPECT_EQ(o.out, "[]\n");
  EXPECT_EQ(o.err, "");
  ::setenv("PINION", "off", 1);
  o = pinion({"run", "--", "sh", "-c", "echo [$LD_PRELOAD]"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "[]\n");
}

TEST_F(Cli, RunForwardsSignals) {
  install_harmless_preload();
  const pid_t child =
      start({"run", "--", "sh", "-c", "trap 'exit 5' TERM; touch ready; while :; do sleep 0.01; done"});
  EXPECT_TRUE(pinion::test::eventually([&] { return fs::exists(root() / "ready"); })) << "it has not begun";
  ::kill(child, SIGTERM);
  EXPECT_EQ(finish(child).status, 5);
}

TEST_F(Cli, InsideALauncherRunBecomesTheProgram) {
  install_harmless_preload();
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  const pid_t child = start({"run", "--", "sh", "-c", "echo $$"});
  const Outcome o = finish(child);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, std::to_string(child) + "\n");
  EXPECT_EQ(o.err, "");
  expect_usage_error({"compare", "--", "true"}, "pinion compare -- mpirun");
}

TEST_F(Cli, RunSumsUpTheLogsOfAllRanks) {
  install_harmless_preload();
  fs::create_directories(root() / "made");
  write_log(root() / "made", 0);
  write_log(root() / "made", 1);
  fs::create_directories(root() / "logs");
  std::ofstream(root() / "logs/older.plog") << "PINIONLG of another run";
  const Outcome o = pinion({"run", "--log", "logs", "--", "sh", "-c", "cp made/*.plog logs/"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.err.find("pinion: 2 ranks, 2.00 s, retention helper"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("4 transfers: 2 hits, 0 waits, 2 misses"), std::string::npos) << o.err;
  EXPECT_EQ(o.out, "");
}

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

TEST_F(Cli, TraceIsTraceEventJson) {
  write_log(root() / "logs", 0);
  const Outcome o = pinion({"report", "logs", "--trace", "trace.json"});
  ASSERT_EQ(o.status, 0) << o.err;
  const json trace = json::parse(content_of(root() / "trace.json"));
  std::map<std::string, int> phases;
  for (const json& event : trace.at("traceEvents")) {
    ++phases[event["name"] == "registered bytes" ? "registered" : event.at("ph")];
    EXPECT_TRUE(event.contains("pid"));
  }
  EXPECT_EQ(phases["b"], 2);
  EXPECT_EQ(phases["e"], 2);
  EXPECT_EQ(phases["X"], 2);
  EXPECT_EQ(phases["registered"], 2);
  EXPECT_EQ(pinion({"report", "logs", "--trace", "/nowhere/trace.json"}).status, 2);
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

TEST_F(Cli, ReportHasTheDomainsOfARun) {
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

  const Outcome o = pinion({"report", "logs", "--json", "--trace", "trace.json"});
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

  std::map<std::string, json> events;
  const json trace = json::parse(content_of(root() / "trace.json"));
  for (const json& event : trace["traceEvents"])
    if (event.contains("cat") && event["ph"] != "e") events[event["cat"]] = event;
  EXPECT_EQ(events["lease"]["args"]["uses"], 9);
  EXPECT_EQ(events["transfer"]["args"]["protocol"], "rendezvous");
  EXPECT_EQ(events["transfer"]["args"]["peer"], 4);
  EXPECT_EQ(events["transfer"]["name"], "put");
  EXPECT_EQ(events["hold"]["name"], "hold ends");

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
    expect_usage_error({command, "a", "b"}, "(./app, 1 of 2 ranks on ");
    expect_usage_error({command, "a", "b"}, "and b/");
  }
  write_log(root() / "c", 1, 1);  // another node of the first
  EXPECT_EQ(pinion({"report", "a", "c"}).status, 0);
}

TEST_F(Cli, WhatLacksEventsIsNotZero) {
  write_log(root() / "logs", 0, 0, 0);
  const std::string line = "4 events are missing (no space left where the log is; rank 0 on ";
  const Outcome text = pinion({"report", "logs", "--trace", "trace.json"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find(line), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("oracle        not available"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("not available: their events are missing"), std::string::npos) << text.out;
  const json trace = json::parse(content_of(root() / "trace.json"));
  EXPECT_EQ(trace["otherData"]["events missing"], 4);
  EXPECT_EQ(std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                          [](const json& event) { return event["name"] == "registered bytes"; }),
            2);  // from the time series

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
  const auto options = [&](const char* rows) {
    const Outcome o = pinion({"compare", "--limit", "5M", "--retention", rows, "--repeat", "1", "--log",
                              "cmp", "--", "sh", "-c", "echo $PINION"});
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_NE(o.out.find("Rows library and library-limited"), std::string::npos) << o.out;
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

TEST_F(Cli, InfoKnowsEveryOptionDeviceAndStrategy) {
  const Outcome o = pinion({"info"});
  EXPECT_EQ(o.status, 0);
  for (const char* text : {"time-budget", "node-limit", "emulated", "connectx", "leave-pinned", "Predictors"})
    EXPECT_NE(o.out.find(text), std::string::npos) << text;
  const std::string everyday = pinion({"info", "options"}).out,
                    all = pinion({"info", "options", "--all"}).out;
  EXPECT_EQ(everyday.find("Strategies"), std::string::npos);
  EXPECT_NE(everyday.find("more: pinion info options --all"), std::string::npos) << everyday;
  EXPECT_EQ(all.find("more: "), std::string::npos);
  EXPECT_EQ(all.find("Strategies"), std::string::npos);
  for (const char* name : {"  limit ", "  retention ", "  monitor "}) {
    EXPECT_NE(everyday.find(name), std::string::npos) << name;
    EXPECT_NE(all.find(name), std::string::npos) << name;
  }
  const std::string help = pinion({"run", "--help"}).out;
  EXPECT_NE(help.find("--limit "), std::string::npos) << help;
  for (const char* name : {"predictor", "policy", "limit-regions", "log-size", "poll"}) {
    EXPECT_EQ(everyday.find(std::string("  ") + name + " "), std::string::npos) << name;
    EXPECT_EQ(help.find(std::string("--") + name + " "), std::string::npos) << name;
    EXPECT_NE(all.find(std::string("  ") + name + " "), std::string::npos) << name;
  }
}

TEST_F(Cli, InfoHasTheOptionsInForce) {
  std::ofstream(root() / "ours.conf") << "limit=1G\nthreshold=8K\n";
  ::setenv("PINION_CONFIG", "ours.conf", 1);
  ::setenv("PINION", "limit=2G", 1);
  const Outcome o = pinion({"info", "options", "--all"});
  EXPECT_EQ(o.status, 0) << o.err;
  for (const char* text : {"size    2G, from PINION (default: 0)\n",
                           "size    8K, from ours.conf (default: 16K)\n", "share   0.5%, the default\n"})
    EXPECT_NE(o.out.find(text), std::string::npos) << text << "\n" << o.out;
  ::setenv("PINION", "limit=2X", 1);
  expect_usage_error({"info", "options"}, "option limit: '2X'");
}

TEST_F(Cli, InfoKnowsNics) {
  ::setenv("PINION_TEST_INFINIBAND", (root() / "infiniband").c_str(), 1);
  fs::create_directories(root() / "infiniband/mlx5_0/ports/1");
  std::ofstream(root() / "infiniband/mlx5_0/ports/1/state") << "4: ACTIVE\n";
  const Outcome o = pinion({"info", "nics"});
  ::unsetenv("PINION_TEST_INFINIBAND");
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find("  mlx5_0 port 1: ACTIVE\n"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("  connectx  "), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("registers 64 KiB in 19.9 us, 1 MiB in 79.0 us"), std::string::npos) << o.out;
  expect_narrow(pinion({"info"}).out);
}

TEST_F(Cli, DoctorSaysWhatWillAct) {
  const auto acts = [&](const char* state) {
    ::setenv("PINION_TEST_INFINIBAND", (root() / "infiniband").c_str(), 1);
    if (state) {
      fs::create_directories(root() / "infiniband/hfi1_0/ports/1");
      std::ofstream(root() / "infiniband/hfi1_0/ports/1/state") << state << "\n";
    }
    const Outcome o = pinion({"doctor", "--json"});
    ::unsetenv("PINION_TEST_INFINIBAND");
    std::map<std::string, std::string> texts;
    const json found = json::parse(o.out);
    for (const json& check : found.at("checks")) texts[check.at("name")] = check.at("text");
    return texts;
  };
  constexpr const char* kMeasured =
      "measured only: no NIC registers here; your MPI's own registrations are unchanged";
  EXPECT_EQ(acts(nullptr)["acts"],
            std::string(kMeasured) + ". This node has no RDMA device (/sys/class/infiniband)");
  EXPECT_EQ(acts("1: DOWN")["acts"], std::string(kMeasured) + ". No RDMA port is active: hfi1_0 port 1 DOWN");
  auto active = acts("4: ACTIVE");
  EXPECT_NE(active["acts"].find("hfi1_0 port 1 ACTIVE"), std::string::npos) << active["acts"];
  EXPECT_NE(active["interconnect Omni-Path"].find("cache_size"), std::string::npos);
}

/// A program's file: a header, an interpreter where it asks for one, and one symbol that it defines.
void write_program(const fs::path& file, bool interpreter, const char* symbol) {
  struct {
    ElfW(Ehdr) header{};
    ElfW(Phdr) segment{};
    ElfW(Shdr) sections[2]{};
    ElfW(Sym) symbols[2]{};
    char names[32]{};
  } program;
  using Program = decltype(program);
  std::memcpy(program.header.e_ident, ELFMAG, SELFMAG);
  program.header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  program.header.e_type = ET_EXEC;
  program.header.e_phoff = offsetof(Program, segment);
  program.header.e_phentsize = sizeof program.segment;
  program.header.e_phnum = 1;
  program.segment.p_type = interpreter ? PT_INTERP : PT_NULL;
  program.header.e_shoff = offsetof(Program, sections);
  program.header.e_shnum = 2;
  program.sections[0].sh_type = SHT_SYMTAB;
  program.sections[0].sh_offset = offsetof(Program, symbols);
  program.sections[0].sh_size = sizeof program.symbols;
  program.sections[0].sh_link = 1;
  program.sections[1].sh_type = SHT_STRTAB;
  program.sections[1].sh_offset = offsetof(Program, names);
  program.symbols[1].st_name = 1;
  program.symbols[1].st_shndx = 1;
  std::strncpy(program.names + 1, symbol, sizeof program.names - 2);
  std::ofstream(file).write(reinterpret_cast<const char*>(&program), sizeof program);
  fs::permissions(file, fs::perms::owner_all);
}

TEST_F(Cli, RunAndDoctorNameProgramsThatThePreloadDoesNotReach) {
  install_harmless_preload();
  write_program(root() / "static", false, "main");
  write_program(root() / "bundled", true, "ibv_cmd_reg_mr");
  write_program(root() / "plain", true, "main");
  const auto said = [&](const char* name) { return pinion({"run", "--", "./" + std::string(name)}).err; };
  EXPECT_NE(said("static").find("./static: it is linked statically"), std::string::npos);
  EXPECT_NE(said("bundled").find("./bundled: it has a libibverbs of its own inside"), std::string::npos);
  EXPECT_EQ(said("plain").find("./plain: it"), std::string::npos);
  // A launcher's word.
  EXPECT_NE(pinion({"run", "--", "true", "./static"}).err.find("./static: it"), std::string::npos);
  EXPECT_EQ(pinion({"run", "--", "true", "static"}).err.find("static: it"), std::string::npos);

  const auto findings = [&](const char* name) {
    const json found = json::parse(pinion({"doctor", "--json", "./" + std::string(name)}).out);
    for (const json& check : found.at("checks"))
      if (check.at("name") == "preload") return check.at("status").get<std::string>();
    return std::string();
  };
  EXPECT_EQ(findings("bundled"), "warn");
  EXPECT_EQ(findings("plain"), "ok");
}

TEST_F(Cli, RunNamesProgramsWithPrivileges) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  install_harmless_preload();
  const fs::path file = root() / "privileged";
  fs::copy_file("/bin/true", file);
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(file.c_str(), 04755), 0);
  const Outcome o = pinion({"run", "--", "./privileged"});
  EXPECT_NE(o.err.find("./privileged: it is set-user-ID"), std::string::npos) << o.err;
}

// Without its preload library Pinion starts no program: nothing gains more than that.
TEST_F(Cli, DoctorBeginsWithTheLargestGain) {
  ::setenv("UCX_MEM_EVENTS", "y", 1);
  const Outcome o = pinion({"doctor"});
  ::unsetenv("UCX_MEM_EVENTS");
  const auto found = [&](const char* text) {
    EXPECT_NE(o.out.find(text), std::string::npos) << text << "\n" << o.out;
    return o.out.find(text);
  };
  EXPECT_LT(found("warn  preload library: "), found("warn  competing cache: "));
  EXPECT_LT(found("warn  competing cache: "), found("ok    "));
  found("      effect: `pinion run` starts no program\n      user: install the whole package\n");
  expect_narrow(o.out);
}

TEST_F(Cli, DoctorChecksAndCures) {
  ::setenv("UCX_MEM_EVENTS", "y", 1);
  const Outcome o = pinion({"doctor", "--json"});
  ::unsetenv("UCX_MEM_EVENTS");
  ASSERT_EQ(o.status, 0) << o.err;
  bool competing = false, problems_go_on = true;
  std::string last;
  const json checked = json::parse(o.out);
  for (const json& check : checked.at("checks")) {
    const bool warns = check.at("status") == "warn";
    EXPECT_TRUE(warns || check.at("status") == "ok");
    EXPECT_EQ(warns, check.at("cure") != "");
    EXPECT_NE(check.at("text"), "");
    EXPECT_EQ(warns, check.contains("effect"));
    if (warns) {
      EXPECT_TRUE(check.at("by") == "user" || check.at("by") == "admin") << check;
      EXPECT_TRUE(problems_go_on) << "a problem after " << last << ": " << check;
    }
    problems_go_on = warns;
    last = check.at("name");
    competing |= check.at("name") == "competing cache" && warns;
  }
  EXPECT_TRUE(competing);
  const auto events = std::find_if(checked.at("checks").begin(), checked.at("checks").end(),
                                   [](const json& check) { return check.at("name") == "memory events"; });
  ASSERT_NE(events, checked.at("checks").end());
  for (const char* text : {"munmap by syscall()", "mprotect that takes rights", "never seen: "})
    EXPECT_NE(events->at("text").get<std::string>().find(text), std::string::npos) << text;
}

}  // namespace
}  // namespace pinion
