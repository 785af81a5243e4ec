// Errors of usage, options from the environment, help and version.

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "fixture.h"

namespace pinion::command_test {
namespace {

TEST_F(Cli, UsageErrorsAreOneLineAndStatus2) {
  expect_usage_error(
      {}, "no command given; valid commands: run, compare, report, top, stop, simulate, info, doctor, bench");
  expect_usage_error({"runn"}, "unknown command 'runn'; valid commands: run");
  expect_usage_error({"--limit", "2G"}, "unknown option '--limit'");
  expect_usage_error({"run"}, "no command given: pinion run [options] CMD...");
  expect_usage_error({"run", "--"}, "no command given");
  expect_usage_error({"run", "--limits", "2G", "--", "true"},
                     "unknown option '--limits'; the nearest is '--limit'; `pinion run --help`");
  expect_usage_error({"run", "--size=3", "true"}, "unknown option '--size'; `pinion run --help`");
  expect_usage_error({"run", "--limit", "100", "true"}, "of 4096 bytes at least, or 0");
  expect_usage_error({"run", "--limit", "2X", "--", "true"}, "expected a size such as 4096, 16K, 1.5M or 2G");
  expect_usage_error({"run", "--retention", "helpful", "--", "true"},
                     "not one of: observe, on-demand, leave-pinned");
  expect_usage_error({"run", "--tune", "poll=5", "--", "true"}, "expected a time");
  expect_usage_error({"run", "--tune", "poll", "--", "true"}, "'poll' is not of the form name=value");
  expect_usage_error({"run", "--tune", "pol=1ms", "--", "true"},
                     "unknown option 'pol'; the nearest is 'poll'; `pinion info options --all`");
  expect_usage_error({"run", "--poll", "1ms", "--", "true"},
                     "unknown option '--poll'; set it by --tune poll=VALUE");
  expect_usage_error({"run", "--device", "emulated", "--nic", "none-such", "--", "true"}, "connectx");
  expect_usage_error({"run", "--except", "gdb::nsys", "--", "true"},
                     "option except: 'gdb::nsys' is not valid; expected names, patterns or paths");
  expect_usage_error({"run", "--log", "a,b", "--", "true"}, "comma");
  expect_usage_error({"compare"}, "no command given: pinion compare [options] CMD...");
  expect_usage_error({"compare", "--retention", "helper,best", "--", "true"}, "'best' is not one of");
  expect_usage_error({"compare", "--repeat", "0", "--", "true"}, "--repeat");
  expect_usage_error({"compare", "--retention", "library", "--", "true"}, "where Pinion acts below them");
  expect_usage_error({"compare", "--retention", "helper-limited", "--", "true"},
                     "helper-limited: needs --limit");
  expect_usage_error({"compare", "--limit", "1M", "--retention", "best-limited", "--", "true"},
                     "'best' is not one of");
  expect_usage_error({"compare", "--limit", "1M", "--retention", "off-limited", "--", "true"}, "off-limited");
  expect_usage_error({"report"}, "logs is required");
  expect_usage_error(
      {"report", "--jsn", "x"},
      "unknown option '--jsn'; the nearest is '--json'; `pinion report --help` lists the valid ones");
  expect_usage_error({"info", "colours"}, "colours");
}

// Paths may have spaces.
TEST_F(Cli, FilesOfSettingsThatAreWrong) {
  const std::string config = (root() / "my options.conf").string();
  const std::string nic = (root() / "my own.nic").string();
  std::ofstream(config) << "# ours\nlimit=2X\n";
  std::ofstream(nic) << "register_ns_base=16us\n";
  expect_usage_error({"run", "--device", "emulated", "--nic", nic, "--", "true"},
                     (nic + ":1: register_ns_base: '16us' is not valid; expected a number").c_str());
  write_log(root() / "log", 0);
  expect_usage_error({"simulate", "log", "--nic", nic}, (nic + ":1: register_ns_base").c_str());
  ::setenv("PINION_CONFIG", config.c_str(), 1);
  expect_usage_error({"run", "--", "true"},
                     (config + ":2: option limit: '2X' is not valid; expected").c_str());
}

TEST_F(Cli, TheEnvironmentIsCheckedLikeFlags) {
  ::setenv("PINION", "limit=lots", 1);
  expect_usage_error({"run", "--", "true"}, "option limit: 'lots'");
  expect_usage_error({"doctor"}, "option limit: 'lots'");
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
  for (const char* option : {"--limit", "--limit-regions", "--node-limit", "--retention", "--remote-keys",
                             "--device", "--nic", "--time-budget", "--monitor"}) {
    expect_usage_error({"run", option, "", "--", "touch", "ran"}, "''");
    expect_usage_error({"run", std::string(option) + "=", "--", "touch", "ran"}, "''");
  }
  for (const char* setting : {"predictor=", "poll=", "threshold=", "window=2,log-size="})
    expect_usage_error({"run", "--tune", setting, "--", "touch", "ran"}, "''");
  const std::vector<std::vector<std::string>> others = {{"run", "--tune", "", "--", "touch", "ran"},
                                                        {"compare", "--repeat", "", "--", "touch", "ran"},
                                                        {"compare", "--log", "", "--", "touch", "ran"},
                                                        {"report", ""},
                                                        {"report", "x", "--trace", ""},
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
      {"run", "--tune", "window=-1", "--", "touch", "ran"},
      {"run", "--device", "mlx5_0", "--", "touch", "ran"},
      {"run", "--nic", "bogus", "--", "touch", "ran"},
      {"run", "--log", "/proc/none", "--", "touch", "ran"},
      {"compare", "--limit", "0.4", "--", "touch", "ran"},
      {"compare", "--repeat", "1.5", "--", "touch", "ran"},
      {"compare", "--retention", "helper,helper", "--", "touch", "ran"},
      {"compare", "--json=7", "--", "touch", "ran"},
      {"simulate", "--cores", "2x"},
      {"report", "absent"},
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

TEST_F(Cli, AnEmptyPartOfAListIsRefused) {
  install_harmless_preload();
  const std::vector<std::vector<std::string>> all = {
      {"compare", "--retention", ",helper", "--", "touch", "ran"}};
  for (const auto& arguments : all) expect_usage_error(arguments, "' is empty");
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

TEST_F(Cli, ALineBreakInAValueStaysInOneLine) {
  install_harmless_preload();
  const std::vector<std::vector<std::string>> all = {
      {"info", "x\ny"},
      {"doctor", "x\ny"},
      {"report", "x\ny"},
      {"run", "--tune", "x\ny=1", "--", "touch", "ran"},
      {"run", "--device", "x\ny", "--", "touch", "ran"},
      {"run", "--x\ny", "--", "touch", "ran"},
      {"compare", "--retention", "x\ny", "--", "touch", "ran"}};
  for (const auto& arguments : all) expect_usage_error(arguments, "x?y");
}

TEST_F(Cli, SettingsComeFromRegularFilesAlone) {
  install_harmless_preload();
  ASSERT_EQ(::mkfifo((root() / "fifo.conf").c_str(), 0600), 0);
  expect_usage_error({"run", "--nic", "./fifo.conf", "--", "touch", "ran"}, "fifo.conf: not a regular file");
  for (const char* path : {"fifo.conf", "."}) {
    ::setenv("PINION_CONFIG", path, 1);
    expect_usage_error({"run", "--", "touch", "ran"}, "not a regular file");
  }
  EXPECT_FALSE(fs::exists(root() / "ran"));
}

TEST_F(Cli, AnUnknownProviderStartsNoProgram) {
  install_harmless_preload();
  if (pinion({"info", "devices"}).out.find("tcp") == std::string::npos) GTEST_SKIP() << "no libfabric here";
  expect_usage_error({"run", "--device", "fabric:nosuch", "--", "touch", "ran"}, "no provider 'nosuch'");
  EXPECT_FALSE(fs::exists(root() / "ran"));
  EXPECT_EQ(pinion({"run", "--device", "fabric:tcp", "--", "touch", "ran"}).status, 0);
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
  make_nic();
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
       {"run", "compare", "report", "top", "stop", "simulate", "info", "doctor", "softroce"}) {
    const std::string help = pinion({"help", command}).out;
    EXPECT_EQ(help, pinion({command, "--help"}).out);
    EXPECT_NE(help.find("--help"), std::string::npos) << help;
    expect_narrow(help);
  }
}

TEST_F(Cli, TheBenchIsBuiltInACheckout) {
  for (const char* first : {"bench", "help"})
    expect_usage_error({first, first == std::string("bench") ? "hit" : "bench"},
                       "cmake --build build --target bench");
}

// The step is for a user at a terminal, and gone at the end.
TEST_F(Cli, StepsAreShownOnATerminalAlone) {
  write_log(root() / "log", 0);
  const std::vector<std::string> command = {"simulate", "log", "--retention", "helper"};
  EXPECT_EQ(pinion(command).err, "");
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) GTEST_SKIP() << "no terminal can be made here";
  if (child == 0) {
    if (::chdir(root().c_str()) == 0)
      ::execl((root() / "bin/pinion").c_str(), "pinion", "simulate", "log", "--retention", "helper", nullptr);
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
  const std::size_t table = shown.find("log: 1 rank");
  ASSERT_NE(step, std::string::npos) << shown;
  ASSERT_NE(table, std::string::npos) << shown;
  EXPECT_EQ(shown.substr(table - 4, 4), "\r\033[K") << shown;
  EXPECT_LT(step, table);
}

}  // namespace
}  // namespace pinion::command_test
