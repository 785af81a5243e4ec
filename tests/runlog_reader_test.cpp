#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>

#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/runlog_files.h"

namespace pinion::runlog {
namespace {

class Reader : public ::testing::Test {
 protected:
  void SetUp() override {
    RunInfo info;
    info.command = "./app";
    info.rank = 0;
    info.ranks = 1;
    info.start = 1000;
    LogWriter writer;
    ASSERT_FALSE(writer.open(dir_.path(), info, 1 << 20));
    path_ = writer.path();
    const std::uint64_t frames[] = {1, 2};
    writer.add_site(9, frames, 2);
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t at = 0x100000 + 0x1000u * static_cast<unsigned>(i);
      writer.append(event(EventKind::registration, 1000 + 10 * i, 1002 + 10 * i, at, 4096));
      writer.append(lease(1002 + 10 * i, 1008 + 10 * i, at, 4096, 9, Outcome::miss));
      writer.append(event(EventKind::deregistration, 1008 + 10 * i, 1009 + 10 * i, at, 4096));
      writer.append(event(EventKind::memory_event, 1009 + 10 * i, 1009 + 10 * i, at, 4096));
    }
    Series series;
    series.start(1000);
    series.step(1500, 4096);
    writer.finish({}, series, 2000, 0);
    std::ifstream file(path_, std::ios::binary);
    valid_.assign(std::istreambuf_iterator<char>(file), {});
  }

  Error read(const std::string& content) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
    return read_log(path_, log_);
  }

  /// The valid file with `value` at `offset`.
  template <class T>
  Error read_with(std::size_t offset, T value) {
    std::string content = valid_;
    std::memcpy(content.data() + offset, &value, sizeof value);
    return read(content);
  }

  void expect_error(const Error& error, const char* reason) {
    ASSERT_TRUE(error) << "accepted; expected: " << reason;
    EXPECT_NE(std::strstr(error.message, path_.c_str()), nullptr) << error.message;
    EXPECT_NE(std::strstr(error.message, reason), nullptr) << error.message;
  }

  TemporaryDirectory dir_;
  std::string path_;
  std::string valid_;
  Log log_;
};

constexpr std::size_t kLive = live_offset() + sizeof(LiveState);  // finish() wrote the second copy

TEST_F(Reader, TheFileThatTheOthersAreMadeFromIsValid) {
  ASSERT_FALSE(read(valid_));
  EXPECT_EQ(log_.events.size(), 80u);
  EXPECT_EQ(log_.header.live, 1u);
}

TEST_F(Reader, NoLog) {
  expect_error(read(""), "not a Pinion log");
  expect_error(read("PINI"), "not a Pinion log");
  expect_error(read(std::string(100000, 'x')), "not a Pinion log");
  expect_error(read_with<char>(0, 'p'), "not a Pinion log");
}

TEST_F(Reader, ANewerFormatNamesBothVersions) {
  expect_error(read_with<std::uint32_t>(offsetof(FileHeader, version), 7),
               "log format 7, written by a newer Pinion; this one (" PINION_VERSION ") reads up to 1");
  expect_error(read_with<std::uint32_t>(offsetof(FileHeader, version), 0), "format version 0");
}

TEST_F(Reader, Truncated) {
  for (const std::size_t size : {std::size_t{12}, sizeof(FileHeader), live_offset() + 100, sites_offset(),
                                 sites_offset() + 100, events_offset() + 100, valid_.size() - 1})
    expect_error(read(valid_.substr(0, size)), "truncated");
}

TEST_F(Reader, HeaderOutOfRange) {
  expect_error(read_with<std::uint32_t>(offsetof(FileHeader, event_bytes), 32), "other sizes");
  expect_error(read_with<std::uint64_t>(offsetof(FileHeader, event_count), ~std::uint64_t{0}), "more events");
  expect_error(read_with<std::uint64_t>(offsetof(FileHeader, event_count), 5000), "truncated");
  expect_error(read_with<std::uint32_t>(offsetof(FileHeader, site_count), 1u << 31), "more call sites");
  expect_error(read_with<std::uint32_t>(offsetof(FileHeader, live), 2), "no valid state");
  expect_error(read_with<std::uint32_t>(offsetof(FileHeader, page_bytes), 0), "page size");
  expect_error(read_with<std::uint32_t>(offsetof(FileHeader, page_bytes), 4097), "page size");
  expect_error(read_with<std::int32_t>(offsetof(FileHeader, rank), 1), "rank");
  expect_error(read_with<std::int64_t>(offsetof(FileHeader, start_ns), -1), "start time");
  expect_error(read_with<double>(offsetof(FileHeader, ns_per_tick), std::nan("")), "calibration");
  std::string content = valid_;
  std::memset(content.data() + offsetof(FileHeader, command), 'a', sizeof FileHeader::command);
  expect_error(read(content), "text without an end");
}

TEST_F(Reader, StateOutOfRange) {
  expect_error(read_with<std::int64_t>(kLive + offsetof(LiveState, last_ns), 999), "end time");
  expect_error(read_with<std::int64_t>(kLive + offsetof(LiveState, last_ns), INT64_MAX), "end time");
  expect_error(read_with<std::int64_t>(kLive + offsetof(LiveState, series_bin_ns), 0), "state");
  const std::size_t counters = kLive + offsetof(LiveState, counters);
  expect_error(read_with<double>(counters + offsetof(Counters, registered_byte_ns), -1), "no number");
  expect_error(read_with<double>(counters + offsetof(Counters, fit_register_a_ns),
                                 std::numeric_limits<double>::infinity()),
               "no number");
  expect_error(read_with<std::uint64_t>(counters + offsetof(Counters, registered_peak_bytes), ~0ull),
               "more registered bytes");
  expect_error(
      read_with<double>(kLive + offsetof(LiveState, series) + offsetof(SeriesBin, byte_ns), std::nan("")),
      "time series");
}

TEST_F(Reader, EventsAndSitesOutOfRange) {
  const std::size_t at = events_offset() + 5 * sizeof(Event);
  expect_error(read_with<std::uint8_t>(at + offsetof(Event, kind), 0), "unknown kind");
  expect_error(read_with<std::uint8_t>(at + offsetof(Event, outcome), 9), "unknown outcome");
  expect_error(read_with<std::int64_t>(at + offsetof(Event, end_ns), 5), "runs backwards");
  expect_error(read_with<std::int64_t>(at + offsetof(Event, end_ns), INT64_MAX), "impossible time");
  expect_error(read_with<std::uint64_t>(at + offsetof(Event, address), ~0ull - 100), "impossible range");
  expect_error(read_with<std::uint64_t>(at + offsetof(Event, bytes), ~0ull - 100), "impossible range");
  expect_error(read_with<std::uint32_t>(sites_offset() + offsetof(SiteEntry, frame_count), 17), "frames");
  std::string content = valid_;
  std::memset(content.data() + sites_offset() + offsetof(SiteEntry, name), 'a', sizeof SiteEntry::name);
  expect_error(read(content), "name has no end");
}

TEST_F(Reader, AMemoryEventMayBeOfAllMemory) {
  std::string content = valid_;
  Event all = event(EventKind::memory_event, 1500, 1500, 0, ~std::uint64_t{0});
  std::memcpy(content.data() + events_offset() + 79 * sizeof(Event), &all, sizeof all);
  ASSERT_FALSE(read(content));
  EXPECT_EQ(leave_pinned_timeline(log_).levels().back().bytes, 0u);
}

TEST_F(Reader, TextsDoNotSpeakToTerminals) {
  std::string content = valid_;
  std::strcpy(content.data() + offsetof(FileHeader, command), "a\x1b[2Jb\n");
  ASSERT_FALSE(read(content));
  EXPECT_STREQ(log_.header.command, "a?[2Jb?");
}

TEST_F(Reader, WhatIsNoFile) {
  expect_error(read_log(path_ = dir_.path() + "/absent.plog", log_), "No such file");
  expect_error(read_log(path_ = dir_.path(), log_), "not a file");
  ASSERT_EQ(::mkfifo((dir_.path() + "/fifo").c_str(), 0600), 0);
  expect_error(read_log(path_ = dir_.path() + "/fifo", log_), "not a file");
}

TEST_F(Reader, DirectoriesAndLists) {
  std::vector<Log> logs;
  EXPECT_FALSE(read_logs({dir_.path(), path_}, logs));  // given twice, read once
  EXPECT_EQ(logs.size(), 1u);
  TemporaryDirectory empty;
  const Error error = read_logs({empty.path()}, logs);
  EXPECT_NE(std::strstr(error.message, "no run logs"), nullptr) << error.message;
  EXPECT_TRUE(read_logs({}, logs));
}

// Whatever is done to a file: an error, or a log that analysis takes. Run under ASan and UBSan to mean it.
TEST_F(Reader, DamagedAtRandom) {
  std::mt19937_64 random(20240607);
  const int file = ::open(path_.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::map<std::size_t, char> damage;
    if (i % 4 == 0) {
      const std::size_t end = i % 8 == 0 ? sites_offset() : valid_.size();
      ASSERT_EQ(::ftruncate(file, static_cast<off_t>(random() % end)), 0);
    } else {
      // Half of the flips in the events, a quarter each in header and state: most of the file is empty table.
      for (std::uint64_t flips = 1 + random() % 8; flips > 0; --flips) {
        const std::size_t area = random() % 4;
        const std::size_t at = area == 0   ? random() % sizeof(FileHeader)
                               : area == 1 ? kLive + random() % sizeof(LiveState)
                                           : events_offset() + random() % (80 * sizeof(Event));
        damage.try_emplace(at, valid_[at]).first->second ^= static_cast<char>(1 << random() % 8);
      }
    }
    for (const auto& [at, byte] : damage) ASSERT_EQ(::pwrite(file, &byte, 1, static_cast<off_t>(at)), 1);
    const Error error = read_log(path_, log_);
    if (i % 4 == 0) std::ofstream(path_, std::ios::binary) << valid_;
    for (const auto& [at, byte] : damage)
      ASSERT_EQ(::pwrite(file, &valid_[at], 1, static_cast<off_t>(at)), 1);
    if (error) {
      ++refused;
      ASSERT_NE(std::strstr(error.message, path_.c_str()), nullptr);
      continue;
    }
    ++accepted;
    const Report report = analyse({log_, log_});
    ASSERT_TRUE(std::isfinite(report.registered().mean));
    ASSERT_TRUE(std::isfinite(report.registered().oracle_mean));
    ASSERT_TRUE(std::isfinite(report.cost.added()));
    ASSERT_LE(report.prediction.within_5, 1);
  }
  ::close(file);
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace pinion::runlog
