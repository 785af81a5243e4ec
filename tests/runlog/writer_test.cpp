#include "runlog/writer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/range.h"
#include "base/version.h"
#include "support/deterministic_scheduler.h"
#include "support/runlog_files.h"

namespace pinion::runlog {
namespace {

namespace fs = std::filesystem;

RunInfo info_of_rank(int rank) {
  RunInfo info;
  info.command = "./app --size 3";
  info.options = "limit=2G";
  info.retention = "helper";
  info.predictor = "shortest";
  info.device = "pins pages";
  info.rank = rank;
  info.ranks = 2;
  info.local_ranks = 2;
  info.cores = 4;
  info.limit_bytes = 2u << 30;
  info.memcpy_bytes_per_ns = 5.5;
  info.start = 1000;
  return info;
}

TEST(LogWriter, WhatIsWrittenIsRead) {
  TemporaryDirectory dir;
  LogWriter writer;
  const Error opened = writer.open(dir.path() + "/made/on/the/way", info_of_rank(1), 1 << 20);
  ASSERT_FALSE(opened) << opened.message;
  const std::string path = writer.path();
  EXPECT_EQ(fs::path(path).extension(), ".plog");
  const std::uint64_t frames[] = {11, 22, 33};
  for (int twice = 0; twice < 2; ++twice) {
    writer.add_site(77, frames, 3);
    writer.add_site(77 + 4096, frames, 2);  // the same slot
  }
  for (int i = 0; i < 100; ++i) writer.append(lease(1000 + i, 1010 + i, 0x10000, 4096, 77));
  writer.for_each_site([](SiteEntry& site) {
    std::snprintf(site.name, sizeof site.name, "site%u", site.frame_count);
    std::strcpy(site.python, "\033[31mtrain.py:41 in step");
  });
  Series series;
  series.start(1000);
  series.step(1100, 4096);
  series.advance(2000);
  Counters counters{};
  counters.acquires = 100;
  counters.registered_byte_ns = series.byte_ns();
  writer.finish(counters, series, 2000, 12288);
  EXPECT_FALSE(writer.is_open());
  writer.append(lease(1, 2, 3, 4));  // does nothing

  Log log;
  const Error error = read_log(path, log);
  ASSERT_FALSE(error) << error.message;
  EXPECT_STREQ(log.header.command, "./app --size 3");
  EXPECT_STREQ(log.header.options, "limit=2G");
  EXPECT_STREQ(log.header.retention, "helper");
  EXPECT_STREQ(log.header.predictor, "shortest");
  EXPECT_STREQ(log.header.device, "pins pages");
  EXPECT_STREQ(log.header.pinion_version, PINION_VERSION);
  EXPECT_EQ(log.header.rank, 1);
  EXPECT_EQ(log.header.ranks, 2);
  EXPECT_EQ(log.header.limit_bytes, 2u << 30);
  EXPECT_EQ(log.header.page_bytes, page_size());
  EXPECT_EQ(log.live.complete, 1u);
  EXPECT_EQ(log.live.pinned_at_exit_bytes, 12288u);
  EXPECT_EQ(log.live.counters.acquires, 100u);
  EXPECT_DOUBLE_EQ(log.live.counters.registered_byte_ns, 4096.0 * 900);
  EXPECT_EQ(log.live.series[0].peak_bytes, 4096u);
  ASSERT_EQ(log.sites.size(), 2u);
  EXPECT_EQ(log.sites[0].hash, 77u);
  EXPECT_EQ(log.sites[0].frames[2], 33u);
  EXPECT_STREQ(log.sites[1].name, "site2");
  EXPECT_STREQ(log.sites[1].python, "?[31mtrain.py:41 in step");
  ASSERT_EQ(log.events.size(), 100u);
  EXPECT_EQ(log.events[99].begin_ns, 1099);
  EXPECT_EQ(log.last_ns(), 2000);
  EXPECT_TRUE(log.all_events());
  // A short run leaves a small file: chunks for the file's own tables, for the header, the sites, the events.
  EXPECT_EQ(fs::file_size(path), 5 * kChunkBytes);
}

TEST(LogWriter, TheFullEventStreamIsCountedAndTheCountersGoOn) {
  TemporaryDirectory dir;
  LogWriter writer;
  ASSERT_FALSE(writer.open(dir.path(), info_of_rank(0), 10 * sizeof(Event)));
  const std::string path = writer.path();
  for (int i = 0; i < 25; ++i) writer.append(lease(1000 + i, 1001 + i, 0, 1));
  EXPECT_EQ(writer.events_dropped(), 15u);
  Series series;
  series.start(1000);
  Counters counters{};
  counters.acquires = 25;
  writer.finish(counters, series, 3000, 0);
  Log log;
  ASSERT_FALSE(read_log(path, log));
  EXPECT_EQ(log.events.size(), 10u);
  EXPECT_EQ(log.live.counters.events_dropped, 15u);
  EXPECT_EQ(log.live.counters.acquires, 25u);
  EXPECT_FALSE(log.all_events());
}

TEST(LogWriter, DomainsAreKnownWithTheNextState) {
  TemporaryDirectory dir;
  for (const auto mapping : {NodeFile::Mapping::where_possible, NodeFile::Mapping::none}) {
    LogWriter writer;
    ASSERT_FALSE(writer.open(dir.path(), info_of_rank(0), 1 << 16, mapping));
    const std::string path = writer.path();
    for (std::uint32_t i = 0; i < kMaxDomains + 3; ++i) {
      writer.add_domain({"device" + std::to_string(i), std::string(100, 'n'), "", i, 2 * i, 3 * i});
      DomainState state{};
      state.registered_now_bytes = 4096 * (i + 1);
      writer.set_domain_state(i, state);
    }
    EXPECT_EQ(writer.domain_count(), kMaxDomains);
    writer.update({}, Series{}, 1500);
    DomainState last{};
    last.registrations = 9;
    writer.set_domain_state(1, last);
    Log log;
    ASSERT_FALSE(read_log(path, log));
    ASSERT_EQ(log.domains.size(), kMaxDomains);
    EXPECT_STREQ(log.domains[15].device, "device15");
    EXPECT_EQ(log.domains[15].max_bytes, 45u);
    EXPECT_EQ(std::strlen(log.domains[15].nic), sizeof DomainEntry::nic - 1);
    EXPECT_EQ(log.live.domains[1].registered_now_bytes, 8192u);
    writer.finish({}, Series{}, 2000, 0);
    ASSERT_FALSE(read_log(path, log));
    EXPECT_EQ(log.live.domains[1].registered_now_bytes, 0u);
    EXPECT_EQ(log.live.domains[1].registrations, 9u);
    // The next log of this writer has domains of its own.
    ASSERT_FALSE(writer.open(dir.path(), info_of_rank(0), 1 << 16, mapping));
    EXPECT_EQ(writer.domain_count(), 0u);
    fs::remove(path);
  }
}

TEST(LogWriter, TheSiteTableMayBeFull) {
  TemporaryDirectory dir;
  LogWriter writer;
  ASSERT_FALSE(writer.open(dir.path(), info_of_rank(0), 1 << 16));
  const std::string path = writer.path();
  const std::uint64_t frame = 1;
  for (std::uint64_t i = 1; i <= kMaxSites + 100; ++i) writer.add_site(i * 7919, &frame, 1);
  writer.finish({}, Series{}, 2000, 0);
  Log log;
  ASSERT_FALSE(read_log(path, log));
  ASSERT_EQ(log.sites.size(), kMaxSites);
  EXPECT_EQ(log.sites.back().hash, kMaxSites * 7919u);
}

TEST(LogWriter, SurvivesKillInTheMiddle) {
  TemporaryDirectory dir;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    LogWriter writer;
    if (writer.open(dir.path(), info_of_rank(0), 64 << 20)) ::_exit(1);
    Series series;
    series.start(1000);
    for (Time now = 1000;; ++now) {
      writer.append(lease(now, now + 1, static_cast<std::uint64_t>(now) << 12, 4096, 5));
      if (now % 100 == 0) {
        // Counters and series that belong together, to be found together.
        series.step(now, static_cast<std::uint64_t>(now));
        Counters counters{};
        counters.acquires = counters.hits = static_cast<std::uint64_t>(now);
        counters.registered_now_bytes = series.level();
        writer.update(counters, series, now);
      }
      if (now == 50000 && ::write(ready[1], "x", 1) != 1) ::_exit(1);
    }
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::vector<Log> logs;
  const Error error = read_logs({dir.path()}, logs);
  ASSERT_FALSE(error) << error.message;
  const Log& log = logs.at(0);
  EXPECT_EQ(log.live.complete, 0u);
  EXPECT_GE(log.events.size(), 49000u);
  for (std::size_t i = 0; i < log.events.size(); ++i)
    ASSERT_EQ(log.events[i].begin_ns, 1000 + static_cast<Time>(i));
  const auto now = static_cast<std::uint64_t>(log.live.last_ns);
  EXPECT_EQ(log.live.counters.acquires, now);
  EXPECT_EQ(log.live.counters.hits, now);
  EXPECT_EQ(log.live.counters.registered_now_bytes, now);
  EXPECT_EQ(log.last_ns(), log.events.back().end_ns);
}

TEST(LogWriter, AForkedChildLeavesTheLogAlone) {
  TemporaryDirectory dir;
  LogWriter writer;
  ASSERT_FALSE(writer.open(dir.path(), info_of_rank(0), 1 << 16));
  writer.append(lease(1000, 1001, 0, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    writer.~LogWriter();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  writer.append(lease(1001, 1002, 0, 1));
  const std::string path = writer.path();
  writer.finish({}, Series{}, 2000, 0);
  Log log;
  ASSERT_FALSE(read_log(path, log));
  EXPECT_EQ(log.events.size(), 2u);
}

RunInfo info_of_job(std::uint64_t job, int rank) {
  RunInfo info = info_of_rank(rank);
  info.job = job;
  info.ranks = 1 << 20;
  return info;
}

std::size_t logs_in(const TemporaryDirectory& dir) {
  std::vector<Log> logs;
  for (const auto& file : fs::directory_iterator(dir.path())) {
    if (file.is_directory()) continue;
    const Error error = read_logs({file.path().string()}, logs);
    EXPECT_TRUE(!error || error.code == ENOENT) << error.message;
  }
  return logs.size();
}

TEST(LogWriter, AJobThatHasEndedGivesWay) {
  TemporaryDirectory dir;
  LogWriter old_job, new_job;
  ASSERT_FALSE(old_job.open(dir.path(), info_of_job(1, 0), 1 << 16));
  old_job.append(lease(1000, 1001, 0, 1));
  old_job.finish({}, Series{}, 2000, 0);
  ASSERT_FALSE(new_job.open(dir.path(), info_of_job(2, 0), 1 << 16));
  Log log;
  ASSERT_EQ(logs_in(dir), 1u);
  ASSERT_FALSE(read_log(new_job.path(), log));
  EXPECT_EQ(log.events.size(), 0u);
  ASSERT_FALSE(read_log(dir.path() + "/run-0000000000000001", log)) << "it is kept in a folder of its own";
  EXPECT_EQ(log.events.size(), 1u);
}

TEST(LogWriter, WhatIsNoLogStays) {
  TemporaryDirectory dir;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string letter = dir.path() + "/" + host + ".letter.plog",
                    pipe = dir.path() + "/" + host + ".pipe.plog";
  std::ofstream(letter) << "Dear all, this is a letter";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  LogWriter writer;
  ASSERT_FALSE(writer.open(dir.path(), info_of_job(1, 0), 1 << 16));
  EXPECT_TRUE(fs::exists(letter));
  EXPECT_TRUE(fs::exists(pipe));
}

TEST(LogWriter, ALinkOrPipeInItsPlaceIsRefused) {
  TemporaryDirectory dir;
  LogWriter writer;
  ASSERT_FALSE(writer.open(dir.path(), info_of_job(1, 0), 1 << 16));
  const std::string path = writer.path();
  writer.finish({}, Series{}, 2000, 0);
  const std::string other = dir.path() + "/other";
  fs::rename(path, other);
  const auto size = fs::file_size(other);
  const auto expect_refused = [&](const char* reason) {
    LogWriter refused;
    const Error error = refused.open(dir.path(), info_of_job(1, 0), 1 << 16);
    EXPECT_NE(std::strstr(error.message, reason), nullptr) << error.message;
    fs::remove(path);
  };
  fs::create_symlink(other, path);
  expect_refused("a symbolic link");
  EXPECT_EQ(fs::file_size(other), size);
  fs::create_symlink(dir.path() + "/nothing", path);
  expect_refused("a symbolic link");
  EXPECT_FALSE(fs::exists(dir.path() + "/nothing"));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refused("not a regular file");
}

TEST(LogWriter, AJobThatRunsStaysAndSoDoesWhatHasNoRank) {
  TemporaryDirectory dir;
  LogWriter old_job, new_job, no_job;
  ASSERT_FALSE(old_job.open(dir.path(), info_of_job(1, 0), 1 << 16));
  ASSERT_FALSE(new_job.open(dir.path(), info_of_job(2, 0), 1 << 16));
  EXPECT_EQ(logs_in(dir), 2u);
  Log log;
  ASSERT_FALSE(read_log(old_job.path(), log));
  EXPECT_TRUE(log.written_to);
  const std::string path = old_job.path();
  old_job.finish({}, Series{}, 2000, 0);
  ASSERT_FALSE(read_log(path, log));
  EXPECT_FALSE(log.written_to);
  new_job.finish({}, Series{}, 2000, 0);
  ASSERT_FALSE(no_job.open(dir.path(), info_of_job(3, -1), 1 << 16));
  EXPECT_EQ(logs_in(dir), 3u);
}

TEST(LogWriter, ASecondRunOfAProcessDoesNotTakeTheFirstsPlace) {
  TemporaryDirectory dir;
  LogWriter writer;
  for (int run = 0; run < 3; ++run) {
    ASSERT_FALSE(writer.open(dir.path(), info_of_job(1, run ? -1 : 0), 1 << 16));
    for (int i = 0; i <= run; ++i) writer.append(lease(1000, 1001, 0, 1));
    writer.finish({}, Series{}, 2000, 0);
  }
  std::vector<Log> logs;
  ASSERT_FALSE(read_logs({dir.path()}, logs));
  ASSERT_EQ(logs.size(), 3u);
  for (std::size_t run = 0; run < 3; ++run) EXPECT_EQ(logs[run].events.size(), run + 1);
}

// With PINION_TEST_SCALE=40, the ranks of 4,000 cores.
TEST(LogWriter, ManyProcessesShareAFile) {
  const int processes = static_cast<int>(100 * test::test_scale());
  constexpr int kEvents = 5000;
  TemporaryDirectory dir;
  for (int rank = 0; rank < processes; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child > 0) continue;
    LogWriter writer;
    if (writer.open(dir.path(), info_of_job(7, rank), 1 << 20)) ::_exit(1);
    const std::uint64_t frame = 1;
    for (int i = 0; i < kEvents; ++i) {
      writer.add_site(static_cast<std::uint64_t>(i % 500) + 1, &frame, 1);
      writer.append(lease(1000 + i, 1001 + i, static_cast<std::uint64_t>(rank) << 12, 4096));
    }
    if (rank % 10 == 9) ::raise(SIGKILL);
    writer.finish({}, Series{}, 100000, 0);
    ::_exit(0);
  }
  int killed = 0;
  for (int i = 0; i < processes; ++i) {
    int status = 0;
    ASSERT_GT(::wait(&status), 0);
    killed += WIFSIGNALED(status);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(killed, processes / 10);
  const auto files = std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator{});
  EXPECT_EQ(files, 1);
  std::vector<bool> seen(static_cast<std::size_t>(processes));
  const Error error = for_each_log({dir.path()}, [&](const Log& log) {
    seen[static_cast<std::size_t>(log.header.rank)] = true;
    EXPECT_EQ(log.live.complete, log.header.rank % 10 != 9);
    EXPECT_EQ(log.sites.size(), 500u);
    EXPECT_EQ(log.sites[499].hash, 500u);
    ASSERT_EQ(log.events.size(), kEvents);
    for (int i = 0; i < kEvents; ++i) {
      ASSERT_EQ(log.events[static_cast<std::size_t>(i)].begin_ns, 1000 + i);
      ASSERT_EQ(log.events[static_cast<std::size_t>(i)].address, static_cast<std::uint64_t>(log.header.rank)
                                                                     << 12);
    }
  });
  EXPECT_FALSE(error) << error.message;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), processes);
}

// One after another, so that the file has more chunks than its first table names.
TEST(LogWriter, AFileOfManyTables) {
  TemporaryDirectory dir;
  constexpr std::uint64_t kEvents = 600 * kChunkBytes / sizeof(Event);
  constexpr int kRuns = 15;
  LogWriter writer;
  for (int run = 0; run < kRuns; ++run) {
    ASSERT_FALSE(writer.open(dir.path(), info_of_job(1, run), 64 << 20));
    for (std::uint64_t i = 0; i < kEvents; ++i) writer.append(lease(1000 + run, 1001 + run, i, 1));
    EXPECT_EQ(writer.events_dropped(), 0u);
    writer.finish({}, Series{}, 2000, 0);
  }
  int run = 0;
  const Error error = for_each_log({dir.path()}, [&](const Log& log) {
    ASSERT_EQ(log.events.size(), kEvents);
    for (std::uint64_t i = 0; i < kEvents; ++i) {
      ASSERT_EQ(log.events[i].begin_ns, 1000 + run);
      ASSERT_EQ(log.events[i].address, i);
    }
    ++run;
  });
  EXPECT_FALSE(error) << error.message;
  EXPECT_EQ(run, kRuns);
}

// The first process finds that mappings are private, as on 9p; the others read that in the file.
TEST(LogWriter, WithoutMappingsEachProcessHasAFile) {
  TemporaryDirectory dir;
  constexpr int kEvents = 20000;  // several windows
  LogWriter writers[3];
  for (int rank = 0; rank < 3; ++rank) {
    const auto mapping = rank == 0 ? NodeFile::Mapping::none : NodeFile::Mapping::where_possible;
    const Error error = writers[rank].open(dir.path(), info_of_job(7, rank), 4 << 20, mapping);
    ASSERT_FALSE(error) << error.message;
  }
  for (int i = 0; i < kEvents; ++i) {
    const std::uint64_t frame = 1;
    for (int rank = 0; rank < 3; ++rank) {
      writers[rank].add_site(static_cast<std::uint64_t>(i % 500) + 1, &frame, 1);
      writers[rank].append(lease(1000 + i, 1001 + i, static_cast<std::uint64_t>(rank), 4096));
      if (i % 777 == 0) writers[rank].update({}, Series{}, 2000 + i);
    }
  }
  for (LogWriter& writer : writers) {
    writer.for_each_site([](SiteEntry& site) { std::snprintf(site.name, sizeof site.name, "named"); });
    writer.finish({}, Series{}, 100000, 0);
  }
  int seen = 0;
  const Error error = for_each_log({dir.path()}, [&](const Log& log) {
    seen |= 1 << log.header.rank;
    EXPECT_TRUE(log.live.complete);
    EXPECT_TRUE(log.all_events());
    ASSERT_EQ(log.sites.size(), 500u);
    EXPECT_STREQ(log.sites[0].name, "named");
    ASSERT_EQ(log.events.size(), kEvents);
    for (std::size_t i = 0; i < kEvents; ++i) {
      ASSERT_EQ(log.events[i].begin_ns, 1000 + static_cast<Time>(i));
      ASSERT_EQ(log.events[i].address, static_cast<std::uint64_t>(log.header.rank));
    }
  });
  EXPECT_FALSE(error) << error.message;
  EXPECT_EQ(seen, 7);
}

TEST(LogWriter, WithoutMappingsAKillCostsWhatCameAfterTheLastUpdate) {
  TemporaryDirectory dir;
  const pid_t child = ::fork();
  if (child == 0) {
    LogWriter writer;
    if (writer.open(dir.path(), info_of_rank(0), 4 << 20, NodeFile::Mapping::none)) ::_exit(1);
    for (int i = 0; i < 10000; ++i) {
      writer.append(lease(1000 + i, 1001 + i, 0, 1));
      if (i == 2999) writer.update({}, Series{}, 5000);
    }
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::vector<Log> logs;
  ASSERT_FALSE(read_logs({dir.path()}, logs));
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_FALSE(logs[0].live.complete);
  ASSERT_EQ(logs[0].events.size(), 3000u);
  EXPECT_EQ(logs[0].events[2999].begin_ns, 3999);
}

TEST(LogWriter, AnotherVersionsFileIsLeftAlone) {
  TemporaryDirectory dir;
  LogWriter writer;
  ASSERT_FALSE(writer.open(dir.path(), info_of_job(1, 0), 1 << 16));
  const std::string path = writer.path();
  writer.finish({}, Series{}, 2000, 0);
  std::FILE* file = std::fopen(path.c_str(), "r+");
  std::fseek(file, offsetof(NodeHeader, version), SEEK_SET);
  std::fputc(kVersion + 1, file);
  std::fclose(file);
  const Error error = writer.open(dir.path(), info_of_job(1, 0), 1 << 16);
  ASSERT_TRUE(error);
  EXPECT_NE(std::strstr(error.message, "another version"), nullptr) << error.message;
  EXPECT_FALSE(writer.is_open());
}

TEST(LogWriter, AnImpossibleDirectoryIsAnError) {
  TemporaryDirectory dir;
  LogWriter writer;
  const Error error = writer.open("/proc/nowhere", info_of_rank(0), 1 << 16);
  ASSERT_TRUE(error);
  EXPECT_NE(std::strstr(error.message, "/proc/nowhere"), nullptr);
  EXPECT_FALSE(writer.is_open());
  writer.append(lease(1, 2, 3, 4));
  writer.update({}, Series{}, 5);
}

// Runs `body` in a child, because limits and signals are the process's.
template <class F>
int exit_status_of(F&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(LogWriter, TheFileSizeLimitIsAnErrorAndNoSignal) {
  TemporaryDirectory dir;
  EXPECT_EQ(exit_status_of([&] {
              const rlimit limit{8192, 8192};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              LogWriter writer;
              const Error error = writer.open(dir.path(), info_of_rank(0), 1 << 20);
              return error && std::strstr(error.message, "ulimit -f") && fs::is_empty(dir.path()) ? 0 : 1;
            }),
            0);
}

TEST(LogWriter, AFileSizeLimitMetLaterDropsEvents) {
  TemporaryDirectory dir;
  EXPECT_EQ(exit_status_of([&] {
              const rlim_t most = chunk_offset(3) + 5000;  // its header, and two windows of one chunk
              const rlimit limit{most, most};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              LogWriter writer;
              if (writer.open(dir.path(), info_of_rank(0), 16 << 20)) return 1;
              for (int i = 0; i < 20000; ++i) writer.append(lease(1000 + i, 1001 + i, 0, 1));
              if (writer.events_dropped() != 20000 - 2 * kChunkBytes / sizeof(Event)) return 2;
              const std::string path = writer.path();
              writer.finish({}, Series{}, 30000, 0);
              Log log;
              if (read_log(path, log)) return 3;
              return log.events.size() == 2 * kChunkBytes / sizeof(Event) ? 0 : 4;
            }),
            0);
}

TEST(LogWriter, WithoutMappingsAFullDiskCostsEvents) {
  TemporaryDirectory dir;
  if (::mount("none", dir.path().c_str(), "tmpfs", 0, "size=1280k") != 0)
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  {
    LogWriter writer;
    const Error error = writer.open(dir.path(), info_of_rank(0), 64 << 20, NodeFile::Mapping::none);
    EXPECT_FALSE(error) << error.message;
    for (int i = 0; i < 100000; ++i) writer.append(lease(1000 + i, 1001 + i, 0, 1));
    Counters counters{};
    counters.acquires = 100000;
    writer.finish(counters, Series{}, 200000, 0);
    std::vector<Log> logs;
    EXPECT_FALSE(read_logs({dir.path()}, logs));
    ASSERT_EQ(logs.size(), 1u);
    EXPECT_TRUE(logs[0].live.complete);
    EXPECT_EQ(logs[0].live.counters.acquires, 100000u);
    EXPECT_GT(logs[0].events.size(), 1000u);
    EXPECT_EQ(logs[0].events.size() + logs[0].live.counters.events_dropped, 100000u);
    for (std::size_t i = 0; i < logs[0].events.size(); ++i)
      ASSERT_EQ(logs[0].events[i].begin_ns, 1000 + static_cast<Time>(i));
  }
  ::umount(dir.path().c_str());
}

TEST(LogWriter, AFullDiskCostsTheLogOnly) {
  TemporaryDirectory dir;
  if (::mount("none", dir.path().c_str(), "tmpfs", 0, "size=1280k") != 0)
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  {
    LogWriter writer;
    EXPECT_FALSE(writer.open(dir.path(), info_of_rank(0), 64 << 20));
    for (int i = 0; i < 100000; ++i) writer.append(lease(1000 + i, 1001 + i, 0, 1));
    EXPECT_GT(writer.events_dropped(), 0u);
    LogWriter second;
    while (!second.open(dir.path(), info_of_rank(1), 1 << 16)) {
      for (int i = 0; i < 20000; ++i) second.append(lease(1000 + i, 1001 + i, 0, 1));
      if (second.events_dropped()) break;
    }
    LogWriter third;
    const auto blocker = dir.path() + "/blocker";
    std::FILE* file = std::fopen(blocker.c_str(), "w");
    const std::string block(4096, 'x');
    while (std::fwrite(block.data(), 1, block.size(), file) == block.size() && std::fflush(file) == 0) {
    }
    std::fclose(file);
    const Error error = third.open(dir.path(), info_of_rank(2), 1 << 16);
    EXPECT_EQ(error.code, ENOSPC) << error.message;
    Series series;
    series.start(1000);
    Counters counters{};
    counters.acquires = 100000;
    writer.finish(counters, series, 200000, 0);
    std::vector<Log> logs;
    EXPECT_FALSE(read_logs({dir.path()}, logs));
    ASSERT_EQ(logs.size(), 2u);
    EXPECT_EQ(logs[0].live.counters.acquires, 100000u);
    EXPECT_GT(logs[0].live.counters.events_dropped, 0u);
  }
  ::umount(dir.path().c_str());
}

}  // namespace
}  // namespace pinion::runlog
