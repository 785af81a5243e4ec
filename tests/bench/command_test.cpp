// `pinion bench`: what each bench reports, how it ends, and what it refuses.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/cli_fixture.h"
#include "support/eventually.h"

namespace pinion::test {
namespace {

using nlohmann::json;

class BenchCommand : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    if (!fs::exists(build() / "libexec/pinion/bench")) GTEST_SKIP() << "the bench is not built";
    copy_of_build("libexec/pinion/bench");
  }
};

// A bench runs in a session of its own, out of reach of a terminal's signals.
TEST_F(BenchCommand, ABenchEndsOnCtrlC) {
  const pid_t command = start({"bench", "hit", "--rounds", "1000"});
  pid_t session = 0;
  ASSERT_TRUE(eventually([&] {
    session = child_of(command);
    return session != 0 && ::getsid(session) == session;
  }));
  ASSERT_EQ(::kill(command, SIGINT), 0);
  EXPECT_EQ(finish(command).status, 1000 + SIGINT);
  EXPECT_TRUE(eventually([&] { return ::kill(-session, 0) != 0; })) << "it goes on";
}

TEST_F(BenchCommand, ABenchThatFailsSaysSoToAnyParent) {
  ::signal(SIGCHLD, SIG_IGN);
  const pid_t command = start({"bench", "registration", "--device", "none-such"});
  ::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(finish(command).status, 2);
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

TEST_F(BenchCommand, BenchTransfersMeasuresWhatFiguresAreMadeOf) {
  const Outcome o = without_mpi({"bench", "transfers", "--size", "17K,4M", "--rounds", "1", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
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
}

// The wire's sleep is a lower bound of each message's time, on any machine.
TEST_F(BenchCommand, BenchTransfersOnAnEmulatedWire) {
  std::vector<std::string> command = {"bench",  "transfers", "--wire",   "2GB/s",
                                      "--size", "512K",      "--rounds", "1"};
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
  EXPECT_NE(o.err.find("--plot draws nothing any more"), std::string::npos) << o.err;
}

TEST_F(BenchCommand, BenchPrepareHasTheDelaysOfOthers) {
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

TEST_F(BenchCommand, BenchPreregHasEachWayAndTheCollectiveOn16Nodes) {
  const Outcome o = without_mpi({"bench", "prereg", "--size", "64M", "--rounds", "1", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  BenchValues values = bench_values(json::parse(o.out),
                                    {{"ns", "ns"},
                                     {"ms", "ms"},
                                     {"us", "us"},
                                     {"saved", "%"},
                                     {"saved_of_offloaded", "%"},
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
  for (const char* name : {"allreduce-2M-16-nodes-1.5GBps", "allreduce-4M-16-nodes-12GBps"}) {
    auto& by = values[name];
    EXPECT_GT(by["arena"]["saved"], 0) << name;
    EXPECT_LE(by["none"]["us"], by["arena"]["us"]) << name;
    EXPECT_LT(by["once"]["us"], by["on-demand"]["us"]) << name;
    EXPECT_LT(by["once"]["us"], by["offloaded"]["us"]) << name;
  }
  for (const char* subject : {"pinion", "under-lease", "unregistered"})
    EXPECT_GT(values["fork-64M"][subject]["ms"], 0) << subject;
}

TEST_F(BenchCommand, BenchGatherHasEachWay) {
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

TEST_F(BenchCommand, BenchesOfMpiRunForRootToo) {
  // A launcher that refuses root as Open MPI's does. Its program prints no figures.
  std::ofstream(root() / "mpirun.openmpi") << "#!/bin/sh\ncase \"$(id -u) $*\" in\n"
                                              "*--allow-run-as-root*) echo as root;;\n"
                                              "0*) echo refused; exit 1;;\n*) echo as a user;;\nesac\n";
  std::ofstream(root() / "libexec/pinion/p2p-openmpi") << "#!/bin/sh\n";
  for (const char* program : {"mpirun.openmpi", "libexec/pinion/p2p-openmpi"})
    fs::permissions(root() / program, fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (root().string() + ":" + path).c_str(), 1);
  const Outcome o = pinion({"bench", "p2p", "--rounds", "1"});
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_NE(o.out.find(::geteuid() == 0 ? "as root" : "as a user"), std::string::npos) << o.out << o.err;
}

TEST_F(BenchCommand, UsageErrorsAreOneLineAndStatus2) {
  expect_usage_error({"bench"}, "no bench given; valid: acquire, events, firehose");
  for (const char* name : {"none-such", "best", "Helper", "helper;lru"})
    expect_usage_error({"bench", name}, (std::string("unknown bench '") + name + "'").c_str());
  expect_usage_error({"bench", "hit", "--rounds"}, "");
  for (const char* rounds : {"-1", "1.5", "1e3", "0x", "many", "99999999999999999999"})
    expect_usage_error({"bench", "hit", "--rounds", rounds}, "");
  expect_usage_error({"bench", "hit", "--rounds", ""}, "the value is empty");
  expect_usage_error({"bench", "registration", "--device", ""}, "the value is empty");
  expect_usage_error({"bench", "registration", "--device", "mlx5_0"}, "");
  expect_usage_error({"bench", "prepare", "--size", "1M,,2M"}, "' is empty");
  const std::string help = pinion({"help", "bench"}).out;
  EXPECT_EQ(help, pinion({"bench", "--help"}).out);
  EXPECT_NE(help.find("--help"), std::string::npos) << help;
  expect_narrow(help);
}

TEST_F(BenchCommand, BenchesRefuseOptionsOfOthers) {
  expect_usage_error({"bench", "hit", "--wire", "1GB/s"}, "bench hit has no --provider or --wire");
  expect_usage_error({"bench", "hit", "--full"}, "bench hit has no --full");
  expect_usage_error({"bench", "hit", "--size", "4M"}, "bench hit has no --size");
  expect_usage_error({"bench", "transfers", "--size", "4M,5000"}, "'5000' is no size in whole KiB");
  for (const char* wire : {"1GiB/s", "1", "-1GB/s", "0MB/s", "nanGB/s"})
    expect_usage_error({"bench", "transfers", "--wire", wire}, "such as 1.5GB/s");
  expect_usage_error({"bench", "transfers", "--wire", "1GB/s", "--provider", "tcp"}, "--provider");
}

TEST_F(BenchCommand, ABenchNamesTheRatioToItsFirstSubject) {
  const std::string table = pinion({"bench", "queue", "--rounds", "1"}).out;
  EXPECT_NE(table.find("beside the first"), std::string::npos) << table;
  EXPECT_NE(table.find(" x\n"), std::string::npos) << table;
  EXPECT_NE(table.find("ns: time of the case's work"), std::string::npos) << table;
  expect_narrow(table);
}

}  // namespace
}  // namespace pinion::test
