#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <set>

#include "lease/engine_options.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

void expect_refused(std::string_view text, const char* reason) {
  Options options;
  const Error error = parse_options(options, text);
  ASSERT_TRUE(error) << text;
  EXPECT_EQ(error.code, EINVAL);
  EXPECT_NE(std::strstr(error.message, reason), nullptr) << error.message;
  EXPECT_EQ(std::strchr(error.message, '\n'), nullptr);
}

TEST(Options, Sizes) {
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("4K"), 4096u);
  EXPECT_EQ(parse_size("16M"), 16u << 20);
  EXPECT_EQ(parse_size("1.5M"), 3u << 19);
  EXPECT_EQ(parse_size("2G"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("1T"), std::uint64_t{1} << 40);
  EXPECT_EQ(parse_size("7B"), 7u);
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("1048576T"), std::uint64_t{1} << 60);
  EXPECT_EQ(parse_size("0.4K"), 410u);
  EXPECT_EQ(parse_size("0K"), 0u);
  for (const char* same : {"3M", "3m", "3MB", "3mb", "3MiB", "3mib"})
    EXPECT_EQ(parse_size(same), 3u << 20) << same;
  for (const char* bad : {"",    "K",   "-1",       "4kB ",  "4Ki", "4KBs", "4Bi",  "4P",      "4b",
                          "4 K", " 4",  "4K ",      "1e30",  "inf", "nan",  "infG", "nanM",    "0x10",
                          "+4",  "-0K", "1048577T", "1e999", "0.4", "1.5",  "7.5B", "0.0001K", "1e-30T"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(Options, Durations) {
  EXPECT_EQ(parse_duration("100ns"), 100);
  EXPECT_EQ(parse_duration("10us"), 10 * kMicrosecond);
  EXPECT_EQ(parse_duration("0.5ms"), 500 * kMicrosecond);
  EXPECT_EQ(parse_duration("2s"), 2 * kSecond);
  for (const char* bad : {"", "5", "ms", "-5ms", "5 ms", "5m", "1e20s", "nanns", "0.4ns", "1e-9us", "infs"})
    EXPECT_FALSE(parse_duration(bad)) << bad;
}

TEST(Options, Shares) {
  EXPECT_DOUBLE_EQ(parse_share("0.5%").value(), 0.005);
  EXPECT_DOUBLE_EQ(parse_share("100%").value(), 1);
  EXPECT_DOUBLE_EQ(parse_share("0.0001%").value(), 1e-6);
  EXPECT_EQ(parse_share("0%"), 0);
  for (const char* bad : {"", "%", "5", "-1%", "101%", "1 %", "nan%", "inf%", "0.00000001%", "0.5%x"})
    EXPECT_FALSE(parse_share(bad)) << bad;
  for (const double share : {0.005, 0.0001, 0.05, 0.0})
    EXPECT_DOUBLE_EQ(parse_share(format_share(share)).value(), share);
}

TEST(Options, WrittenAsRead) {
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{1500}, std::uint64_t{65536}, std::uint64_t{3} << 30})
    EXPECT_EQ(parse_size(format_size(size)), size);
  EXPECT_EQ(format_size(65536), "64K");
  for (const Duration d : {Duration{0}, 1500 * kMicrosecond, 7 * kSecond, Duration{13}})
    EXPECT_EQ(parse_duration(format_duration(d)), d);
}

TEST(Options, EveryTypeIsSetByName) {
  Options o;
  const Error error = parse_options(
      o,
      "off=yes,retention=lru,window=4,threshold=1,limit=2G,limit-regions=77,lru-size=1M,device=emulated,"
      "nic=myrinet,poll=2ms,time-budget=1.5%,profile=p,log=/some/"
      "where,log-size=128K,"
      "node-limit=8G,policy=conservative,policy-every=7");
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(o.node_limit, std::uint64_t{8} << 30);
  EXPECT_EQ(o.policy, PolicyKind::conservative);
  EXPECT_EQ(o.policy_every, 7u);
  EXPECT_TRUE(o.off);
  EXPECT_EQ(o.retention, RetentionKind::lru);
  EXPECT_EQ(o.window, 4u);
  EXPECT_EQ(o.threshold, 1u);
  EXPECT_EQ(o.limit, std::uint64_t{2} << 30);
  EXPECT_EQ(o.limit_regions, 77u);
  EXPECT_EQ(o.lru_size, 1u << 20);
  EXPECT_EQ(o.device, "emulated");
  EXPECT_EQ(o.nic, "myrinet");
  EXPECT_EQ(o.poll, 2 * kMillisecond);
  EXPECT_DOUBLE_EQ(o.time_budget, 0.015);
  EXPECT_EQ(o.profile, "p");
  ASSERT_FALSE(set_option(o, "time-budget", "off"));
  EXPECT_LT(o.time_budget, 0);
  EXPECT_EQ(o.log, "/some/where");
  EXPECT_EQ(o.log_size, 128u << 10);
}

TEST(Options, ThoseOfTheVersionBeforeAreWarnedOfOnceAndHaveNoEffect) {
  Options o;
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(
      parse_options(o, "helper-share=3%,start-credit=5ms,helper-share=off,preregister-alias=yes,limit=2G"));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(format_options(o), "limit=2G");
  EXPECT_NE(said.find("option helper-share has no effect any more: time-budget bounds"), std::string::npos);
  EXPECT_NE(said.find("option preregister-alias has no effect any more: segments"), std::string::npos);
  EXPECT_NE(said.find("option start-credit has no effect any more: time-budget allows"), std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
}

// Logs of the version before name them.
TEST(Options, ThoseOfALogAreReadPastUnknownOnes) {
  EXPECT_EQ(recorded_options("start-credit=5ms,unknown=1,time-budget=2%").time_budget, 0.02);
}

TEST(Options, EveryRetentionHasItsName) {
  for (const RetentionKind kind : {RetentionKind::observe, RetentionKind::on_demand,
                                   RetentionKind::leave_pinned, RetentionKind::lru, RetentionKind::helper}) {
    Options o;
    ASSERT_FALSE(set_option(o, "retention", to_string(kind)));
    EXPECT_EQ(o.retention, kind);
  }
}

TEST(Options, DefaultsOfTheTableAreTheDefaults) {
  Options o;
  for (const OptionSpec& spec : option_specs()) {
    if (spec.default_value.empty()) continue;
    const Error error = set_option(o, spec.name, spec.default_value);
    EXPECT_FALSE(error) << error.message;
  }
  EXPECT_EQ(format_options(o), "");
}

TEST(Options, TheTableIsComplete) {
  const std::set<std::string> types = {"size", "count", "time", "share", "choice", "text", "switch"};
  std::set<std::string> names;
  for (const OptionSpec& spec : option_specs()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_TRUE(types.count(spec.type)) << spec.type;
    EXPECT_NE(spec.text[0], 0);
    EXPECT_EQ(!spec.choices.empty(), !std::strcmp(spec.type, "choice") || !std::strcmp(spec.type, "switch"));
  }
}

// The everyday list has the user's decisions; the rest is for comparisons, and for experts.
TEST(Options, TheEverydayListIsShort) {
  std::set<std::string> everyday;
  for (const OptionSpec& spec : option_specs())
    if (spec.listing == Listing::everyday) everyday.insert(spec.name);
  EXPECT_EQ(everyday,
            (std::set<std::string>{"off",        "minimum-gain", "except",    "cuda",        "verify",
                                   "retention",  "time-budget",  "profile",   "limit",       "limit-regions",
                                   "node-limit", "device",       "nic",       "front",       "remote-keys",
                                   "only-ranks", "monitor",      "hugepages", "preregister", "log"}));
}

// Combinations of monitors are the choice of `auto`; tests reach them without it.
TEST(Options, MonitorsForUsersAndOfTests) {
  for (const char* name : {"auto", "libc", "userfaultfd", "brackets"}) {
    Options o;
    EXPECT_FALSE(set_option(o, "monitor", name)) << name;
    EXPECT_STREQ(to_string(o.monitor), name);
  }
  for (const char* name : {"symbols", "libc+userfaultfd", "symbols+userfaultfd"}) {
    expect_refused(std::string("monitor=") + name, "is not one of: auto, libc, userfaultfd, brackets");
    MonitorKind kind{};
    EXPECT_FALSE(find_monitor(name, kind));
    EXPECT_STREQ(to_string(kind), name);
    ::setenv("PINION_TEST_MONITOR", name, 1);
    Options o;
    EXPECT_FALSE(options_from_environment(o));
    ::unsetenv("PINION_TEST_MONITOR");
    EXPECT_EQ(o.monitor, kind);
    // The options passed to the program stay valid.
    EXPECT_EQ(format_options(o), "");
  }
  MonitorKind kind = MonitorKind::libc;
  EXPECT_STREQ(find_monitor("magic", kind).message,
               "monitor: 'magic' is not one of: auto, libc, libc+userfaultfd, symbols, symbols+userfaultfd, "
               "userfaultfd, brackets");
}

TEST(Options, FormatIsWhatParseReads) {
  Options o, again;
  ASSERT_FALSE(parse_options(o, "retention=on-demand,limit=1536K,poll=250us,window=0,log=x/y"));
  const std::string text = format_options(o);
  EXPECT_EQ(text, "retention=on-demand,poll=250us,window=0,limit=1536K,log=x/y");
  ASSERT_FALSE(parse_options(again, text));
  EXPECT_EQ(format_options(again), text);
}

TEST(Options, OffAndOnAreWords) {
  Options o;
  ASSERT_FALSE(parse_options(o, "off"));
  EXPECT_TRUE(o.off);
  ASSERT_FALSE(parse_options(o, ",on,"));
  EXPECT_FALSE(o.off);
}

TEST(Options, ErrorsListWhatIsValid) {
  const std::string others = "; `pinion info options --all` lists the valid ones";
  expect_refused("limits=2G", ("unknown option 'limits'; the nearest is 'limit'" + others).c_str());
  expect_refused("retain=lru", ("unknown option 'retain'; the nearest is 'retention'" + others).c_str());
  expect_refused("colour=red", ("unknown option 'colour'" + others).c_str());
  expect_refused("=2G", ("unknown option ''" + others).c_str());
  expect_refused("retention=helpful",
                 "'helpful' is not one of: observe, on-demand, leave-pinned, lru, helper");
  expect_refused("off=maybe", "not one of: yes, no");
  expect_refused("limit=2X", "'2X' is not valid; expected a size such as 4096, 16K, 1.5M or 2G");
  expect_refused("window=9", "0 to 8");
  expect_refused("window=two", "a whole number");
  expect_refused("limit-regions=-3", "a whole number");
  expect_refused("policy=fair", "sleeping, none-if-busy, aggressive, conservative");
  expect_refused("policy-every=0", "a whole number");
  expect_refused("threshold=0", "a size");
  expect_refused("poll=5", "a time such as 500us, 5ms or 1s");
  expect_refused("poll=10us", "50us to 1s");
  expect_refused("log-size=1K", "64K to 64G");
  expect_refused("limit=", "'' is not valid; expected a size");
  expect_refused("limit=0.4", "'0.4' is not valid; expected a size");
  expect_refused("node-limit=-1G", "a size");
  expect_refused("limit-regions=18446744073709551616", "a whole number");
  expect_refused("limit-regions=1.5", "a whole number");
  expect_refused("policy-every=7 ", "a whole number");
  expect_refused("time-budget=0.000000001%", "a share such as 0.5%, or off");
  expect_refused("only-ranks=3-1", "'3-1' is not valid; expected ranks such as 0-3:7");
  for (const char* bad : {":", "gdb:", "gdb::nsys", "[a", "a[]", "/opt/site/", "gdb\\"})
    expect_refused("except=" + std::string(bad), "is not valid; expected names, patterns or paths");
  expect_refused("nic=", "'' is not valid; expected connectx, myrinet, none");
  expect_refused("helper", "'helper' is not of the form name=value");
  expect_refused("limit=" + std::string(1000, '9') + "x", "a size");
}

TEST(Options, ExecutablesAreNamedByPatternOrPath) {
  EXPECT_TRUE(names_executable("gdb", "/usr/bin/gdb"));
  EXPECT_FALSE(names_executable("gdb", "/usr/bin/gdbserver"));
  EXPECT_TRUE(names_executable("nsys:gdb*", "/usr/bin/gdbserver"));
  EXPECT_FALSE(names_executable("nsys:gdb*", "/opt/gdb/app"));
  EXPECT_TRUE(names_executable("/opt/site/*", "/opt/site/bin/daemon"));
  EXPECT_FALSE(names_executable("/opt/site/*", "/home/opt/site/daemon"));
  EXPECT_TRUE(names_executable("[a-c]pp", "/bin/app"));
  EXPECT_FALSE(names_executable("app", ""));
}

TEST(Options, PinionIsOffInAnExceptedExecutable) {
  ::setenv("PINION", "except=nsys:*options_te?t", 1);
  Options o;
  ASSERT_FALSE(options_from_environment(o));
  EXPECT_TRUE(o.off);
  ::setenv("PINION", "except=nsys:gdb", 1);
  Options other;
  ASSERT_FALSE(options_from_environment(other));
  EXPECT_FALSE(other.off);
  ::unsetenv("PINION");
}

TEST(Options, DevicesByNameAndPort) {
  Options o;
  for (const char* device :
       {"auto", "pin", "emulated", "verbs", "verbs:mlx5_0", "verbs:mlx5_0:1", "verbs-odp", "verbs-odp:mlx5_0",
        "verbs-odp:mlx5_0:255", "fabric", "fabric:tcp;ofi_rxm"}) {
    const Error error = set_option(o, "device", device);
    EXPECT_FALSE(error) << error.message;
    EXPECT_EQ(o.device, device);
  }
  constexpr const char* kValid =
      "expected auto, pin, emulated, verbs, verbs-odp, or the last two with a device";
  for (const char* wrong :
       {"", "auto:1", "pin:1", "emulated:x", "verbs:", "verbs-odp:", "verbs:mlx5_0:", "verbs:mlx5_0:x",
        "fabric:", "verbs:mlx5_0:0", "verbs:mlx5_0:256", "verbs:mlx5_0:1:2", "verbs-odp-", "rdma"})
    expect_refused(std::string("device=") + wrong, kValid);
  expect_refused("device=mlx5_0", "did you mean verbs:mlx5_0?");
  expect_refused("device=rxe0:1", "did you mean verbs:rxe0:1?");
  EXPECT_EQ(device_hint("emulate"), "");
  EXPECT_EQ(device_hint("mlx5_0:x"), "");
}

class OptionsFile : public ::testing::Test {
 protected:
  std::string write(const char* text) {
    const std::string path = directory_.path() + "/pinion.conf";
    std::ofstream(path) << text;
    return path;
  }
  void TearDown() override {
    ::unsetenv("PINION");
    ::unsetenv("PINION_CONFIG");
  }
  TemporaryDirectory directory_;
};

TEST_F(OptionsFile, HasTheNamesAndUnitsOfOptions) {
  Options o;
  const Error error =
      load_options_file(o, write("limit=2G\nwindow = 3\noff=yes\ntime-budget=1%\npoll=2ms\n"));
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(o.limit, std::uint64_t{2} << 30);
  EXPECT_EQ(o.window, 3u);
  EXPECT_TRUE(o.off);
  EXPECT_EQ(o.time_budget, 0.01);
  EXPECT_EQ(o.poll, 2 * kMillisecond);
}

TEST_F(OptionsFile, ErrorsNameFileLineAndWhatIsValid) {
  const auto refused = [&](const char* text, const char* part) {
    Options o;
    const std::string message = load_options_file(o, write(text)).message;
    EXPECT_EQ(message.rfind(directory_.path() + "/pinion.conf:" + part, 0), 0u) << message;
  };
  refused("limit=\n", "1: option limit: '' is not valid; expected a size");
  refused("window=3\n\n  retention=best", "3: option retention: 'best' is not one of: observe, on-demand");
  refused("windows=1\n", "1: unknown option 'windows'; the nearest is 'window';");
  refused("log=/a,limit=1G\n", "1: option log: a value must not contain a comma");
  Options o;
  EXPECT_TRUE(load_options_file(o, directory_.path() + "/absent.conf"));
}

TEST_F(OptionsFile, TheEnvironmentOverridesTheFile) {
  ::setenv("PINION_CONFIG", write("limit=2G\nwindow=3\n").c_str(), 1);
  ::setenv("PINION", "window=5", 1);
  Options o;
  const Error error = options_from_environment(o);
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(o.limit, std::uint64_t{2} << 30);
  EXPECT_EQ(o.window, 5u);
}

}  // namespace
}  // namespace pinion
