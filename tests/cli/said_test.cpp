// Sentences of reports by their causes: refusals for want of room or for the memory's sake, the limit by its
// origin, registrations that were passed on.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/machine_memory.h"
#include "support/cli_fixture.h"

namespace pinion {
namespace {

using namespace runlog;

class Said : public test::Cli {
 protected:
  /// The report, in one line, of a process that is no rank. Its log has `without_room` leases of one page
  /// that found no room.
  std::string report(const Counters& counters, int without_room, std::uint64_t limit) {
    RunInfo info;
    info.command = "./app";
    info.retention = "helper";
    info.predictor = "shortest";
    info.device = "verbs";
    info.options = "front=verbs";
    info.acts = Acts::verbs;
    info.limit_bytes = limit;
    info.start = 10 * kSecond;
    LogWriter writer;
    EXPECT_FALSE(writer.open((root() / "logs").string(), info, 1 << 16));
    for (int i = 0; i < without_room; ++i)
      writer.append(lease((10 + i) * kSecond, (11 + i) * kSecond, 16 * page_size(), page_size(), 5,
                          runlog::Outcome::bounced));
    Series series;
    series.start(10 * kSecond);
    series.advance(20 * kSecond);
    writer.finish(counters, series, 20 * kSecond, 0);
    std::string text = pinion({"report", "logs"}).out;
    std::replace(text.begin(), text.end(), '\n', ' ');
    for (std::size_t at; (at = text.find("  ")) != std::string::npos;) text.erase(at, 1);
    return text;
  }
};

Counters refused(std::uint64_t bounced) {
  Counters c{};
  c.acquires = 4;
  c.bounced = bounced;
  c.hits = 4 - bounced;
  return c;
}

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

TEST_F(Said, MemoryThatNoDeviceRegistersIsNoMatterOfALimit) {
  const std::string text = report(refused(3), 0, 64 << 10);
  EXPECT_FALSE(says(text, "RLIMIT_MEMLOCK")) << text;
  EXPECT_FALSE(says(text, "ulimit")) << text;
  EXPECT_FALSE(says(text, "binds")) << text;
  EXPECT_TRUE(says(text, "3 of 4 transfers met memory that no device can register")) << text;
}

TEST_F(Said, RefusalsOfBothKindsAreCountedApart) {
  const std::string text = report(refused(3), 2, 64 << 10);
  EXPECT_TRUE(says(text, "RLIMIT_MEMLOCK, `ulimit -l`) refused 2 of 4 transfers")) << text;
  EXPECT_TRUE(says(text, "1 of 4 transfers met memory")) << text;
}

TEST_F(Said, ALimitIsCalledByItsOrigin) {
  const std::string text = report(refused(2), 2, machine_memory() / 2);
  EXPECT_TRUE(says(text, "(half of the node's memory, shared by its ranks) refused 2 of 4") ||
              says(text, "cgroup"))
      << text;
  EXPECT_FALSE(says(text, "ulimit")) << text;
}

TEST_F(Said, NoSmallerLimitThanThereIsIsAskedFor) {
  const std::string text = report(refused(2), 2, 64 << 20);
  EXPECT_TRUE(says(text, "limit of 64.0 MiB a process on locked memory")) << text;
  EXPECT_FALSE(says(text, "Ask for")) << text;
  EXPECT_FALSE(says(text, "ulimit -l ")) << text;
}

TEST_F(Said, RegistrationsThatWerePassedOnAreCountedByTheirReasons) {
  Counters c{};
  c.kernel_pinned_peak_bytes = 64 << 20;
  c.passed[static_cast<int>(PassedFor::keys)] = {12, 48 << 20};
  c.passed[static_cast<int>(PassedFor::device)] = {1, 4 << 20};
  const std::string text = report(c, 0, 0);
  EXPECT_FALSE(says(text, "no registration reached")) << text;
  EXPECT_TRUE(says(text, "12 registrations of 48.0 MiB as their keys end with them")) << text;
  EXPECT_TRUE(says(text, "1 registration of 4.00 MiB of a device or a copy of libibverbs")) << text;
  const auto json = nlohmann::json::parse(pinion({"report", "logs", "--json"}).out);
  EXPECT_EQ(json["passed_on"]["keys"]["count"], 12);
  EXPECT_EQ(json["passed_on"]["device"]["bytes"], 4 << 20);
  EXPECT_EQ(json["per_rank"][0]["passed_on"]["room"]["count"], 0);
}

TEST_F(Said, RegistrationsThatWerePassedOnHaveReachedTheFront) {
  Counters c{};
  c.kernel_pinned_peak_bytes = 64 << 20;
  EXPECT_TRUE(says(report(c, 0, 0), "no registration reached the verbs front"));
  std::filesystem::remove_all(root() / "logs");
  c.strict_keys_ns = kMillisecond;
  const std::string text = report(c, 0, 0);
  EXPECT_FALSE(says(text, "no registration reached")) << text;
  EXPECT_TRUE(says(text, "64.0 MiB pinned or locked: registrations reached the verbs front")) << text;
}

}  // namespace
}  // namespace pinion
