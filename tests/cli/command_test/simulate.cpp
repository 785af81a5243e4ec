// `pinion simulate`: errors of usage, the advice, what moved to papers/; and files of profiles.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixture.h"
#include "helper/profile_file.h"

namespace pinion::command_test {
namespace {

TEST_F(Cli, UsageErrorsOfSimulate) {
  expect_usage_error({"simulate"}, "nothing to simulate: give logs");
  expect_usage_error({"simulate", "nowhere"}, "nowhere: No such file or directory");
  expect_usage_error({"simulate", "--pattern", "bt:C:4"}, "libexec/pinion/papers simulate");
  write_log(root() / "log", 0);
  const struct {
    const char *option, *value, *reason;
  } bad_values[] = {{"--retention", "best", "'best' is not one of"},
                    {"--predictor", "best", "periodicity, oracle, schedule"},
                    {"--limit", "lots", "expected a size"},
                    {"--limit", "1M,,2M", "' is empty"},
                    {"--nic", "none-such", "connectx"},
                    {"--cores", "0", "--cores"},
                    {"--ppn", "4x", "--ppn"}};
  for (const auto& [option, value, reason] : bad_values)
    expect_usage_error({"simulate", "log", option, value}, reason);
}

TEST_F(Cli, OptionsOfPatternsAreWarnedOf) {
  write_log(root() / "log", 0);
  const Outcome with = pinion({"simulate", "log", "--noise", "1%", "--retention", "helper"});
  EXPECT_EQ(with.status, 0) << with.err;
  EXPECT_NE(with.err.find("--noise has no effect any more"), std::string::npos) << with.err;
  EXPECT_EQ(with.out, pinion({"simulate", "log", "--retention", "helper"}).out);
}

TEST_F(Cli, AProfileIsNeitherReadNorWrittenThroughALink) {
  const std::string letter = (root() / "letter").string(), profile = (root() / "profile").string();
  std::ofstream(letter) << "PINIONPR, dear all";
  fs::create_symlink(letter, profile + ".part." + std::to_string(::getpid()));
  const Error written = write_profile(profile, "PINIONPR");
  EXPECT_FALSE(written) << written.message;
  EXPECT_EQ(content_of(profile), "PINIONPR");
  EXPECT_EQ(content_of(letter), "PINIONPR, dear all");
  fs::remove(profile);
  fs::create_symlink(letter, profile);
  std::string bytes;
  EXPECT_TRUE(read_profile(profile, bytes));
  EXPECT_EQ(bytes, "");
  EXPECT_TRUE(write_profile(profile, "PINIONPR"));
  EXPECT_EQ(content_of(letter), "PINIONPR, dear all");
}

/// The log of a rank that leases each of four buffers of 1 MiB for a tenth of every second.
void write_periodic_log(const fs::path& directory, const char* options) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  runlog::RunInfo info;
  info.command = "a.out";
  info.options = options;
  info.retention = "observe";
  info.predictor = "adaptive";
  info.rank = 0;
  info.ranks = info.local_ranks = 1;
  info.start = kSecond;
  info.acts = runlog::Acts::measured;
  runlog::LogWriter writer;
  ASSERT_FALSE(writer.open(directory, info, kMiB));
  writer.add_domain({"none", "", "", 0, 0, 0});
  runlog::Counters counters{};
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Time begin = kSecond + static_cast<Time>(i) * kSecond / 4;
    writer.append(runlog::lease(begin, begin + kSecond / 10, 0x10000000 + i % 4 * 2 * kMiB, kMiB, 1 + i % 4));
    counters.acquires = counters.observed = i + 1;
  }
  counters.leave_pinned_bytes = 4 * kMiB;
  runlog::Series series;
  series.start(kSecond);
  writer.finish(counters, series, 101 * kSecond, 0);
}

// A run leaves small processes alone, and `pinion report` says so. Rows without a minimum gain show what
// letting go would give.

TEST_F(Cli, SimulateSaysThatARunWouldLeaveASmallProcessAlone) {
  write_periodic_log(root() / "little", "");
  const Outcome report = pinion({"report", "little", "--json"});
  EXPECT_EQ(json::parse(report.out)["verdict"]["choice"], "nothing to gain");
  Outcome simulated = pinion({"simulate", "little"});
  std::replace(simulated.out.begin(), simulated.out.end(), '\n', ' ');
  EXPECT_NE(simulated.out.find("Best, of"), std::string::npos) << simulated.out;
  EXPECT_NE(simulated.out.find("Unasked, Pinion would let nothing go"), std::string::npos) << simulated.out;
}

}  // namespace
}  // namespace pinion::command_test
