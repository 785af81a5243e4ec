#include "runlog/reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>

#include "base/call_kind.h"
#include "base/version.h"
#include "runlog/analysis.h"
#include "simulate/simulation.h"
#include "simulate/workload.h"
#include "support/deterministic_scheduler.h"
#include "support/runlog_files.h"
#include "support/sanitizers.h"

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
    writer.add_site(10, frames, 1);
    writer.for_each_site([](SiteEntry& site) {
      std::snprintf(site.name, sizeof site.name, "of %d", static_cast<int>(site.hash));
      std::snprintf(site.python, sizeof site.python, "train.py:41 in step");
    });
    writer.add_domain({"pin", "", "pins pages", 16384, 0, 0});
    writer.add_domain({"verbs:mlx5_0", "connectx", "registers with mlx5_0", 1000, 1 << 30, 1ull << 40});
    writer.set_domain_state(1, state_of_domain());
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t at = 0x100000 + 0x1000u * static_cast<unsigned>(i);
      writer.append(event(EventKind::registration, 1000 + 10 * i, 1002 + 10 * i, at, 4096));
      writer.append(lease(1002 + 10 * i, 1008 + 10 * i, at, 4096, 9, Outcome::miss));
      writer.append(event(EventKind::deregistration, 1008 + 10 * i, 1009 + 10 * i, at, 4096));
      writer.append(event(EventKind::memory_event, 1009 + 10 * i, 1009 + 10 * i, at, 4096));
    }
    for (int i = 0; i < 5; ++i) {
      const Time at = 1300 + 10 * i;
      for (const Event& e :
           {hold(EventKind::hold_begin, at, 3), run_of_uses(at, at + 9, 7, 5),
            transfer(at, at + 5, static_cast<Protocol>(i)), hold(EventKind::hold_end, at + 9, 3)})
        writer.append(e);
    }
    Series series;
    series.start(1000);
    series.step(1500, 4096);
    writer.finish({}, series, 2000, 0);
    std::ifstream file(path_, std::ios::binary);
    valid_.assign(std::istreambuf_iterator<char>(file), {});
  }

  static DomainState state_of_domain() {
    DomainState state{};
    state.registered_peak_bytes = state.registered_now_bytes = 4096;
    state.registered_byte_ns = 4096 * 500;
    state.acquires = 5;
    state.hits = 3;
    state.misses = 2;
    state.fit_register_a_ns = 246;
    state.fit_register_b_ns = 16000;
    return state;
  }
  static Event hold(EventKind kind, Time at, std::int32_t peer) {
    Event e = event(kind, at, at, 0x200000, 8192);
    e.peer = peer;
    e.domain = 1;
    return e;
  }
  static Event run_of_uses(Time first, Time last, std::uint32_t count, std::uint64_t leased_ns) {
    Event e = lease(first, last, 0x300000, 4096, 9);
    e.kind = EventKind::uses;
    e.count = count;
    e.leased_ns = leased_ns;
    return e;
  }
  static Event transfer(Time begin, Time end, Protocol protocol) {
    Event e = event(EventKind::transfer, begin, end, 0x200000, 8192);
    e.protocol = protocol;
    e.call = static_cast<std::uint8_t>(CallKind::put);
    e.peer = 3;
    e.domain = 1;
    return e;
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

// The offsets of the parts in that file: the process took a chunk for its header and state, one for its
// sites, one for its events.
constexpr std::size_t kTable = table_offset(0);
constexpr std::size_t kHeader = chunk_offset(0);
constexpr std::size_t kLive = kHeader + live_offset() + sizeof(LiveState);  // finish() wrote the second copy
constexpr std::size_t kSites = chunk_offset(1);
constexpr std::size_t kEvents = chunk_offset(2);
constexpr std::size_t kEventCount =
    100;  // the first 80: of 20 buffers; the rest: holds, runs of uses, transfers
constexpr std::size_t kRunOfUses = kEvents + 81 * sizeof(Event);
constexpr std::size_t kTransfer = kEvents + 82 * sizeof(Event);
constexpr std::size_t kDomain = kHeader + domains_offset() + sizeof(DomainEntry);  // number 1

TEST_F(Reader, TheFileThatTheOthersAreMadeFromIsValid) {
  ASSERT_FALSE(read(valid_));
  EXPECT_EQ(log_.events.size(), kEventCount);
  EXPECT_EQ(log_.header.live, 1u);
}

TEST_F(Reader, DomainsHoldsUsesAndTransfersAreReadAsWritten) {
  ASSERT_FALSE(read(valid_));
  ASSERT_EQ(log_.domains.size(), 2u);
  EXPECT_STREQ(log_.domains[0].device, "pin");
  EXPECT_STREQ(log_.domains[0].description, "pins pages");
  EXPECT_EQ(log_.domains[0].max_regions, 16384u);
  EXPECT_STREQ(log_.domains[1].device, "verbs:mlx5_0");
  EXPECT_STREQ(log_.domains[1].nic, "connectx");
  EXPECT_EQ(log_.domains[1].max_region_bytes, 1u << 30);
  EXPECT_EQ(log_.domains[1].max_bytes, 1ull << 40);
  EXPECT_EQ(log_.live.domains[0].registered_peak_bytes, 0u);
  EXPECT_EQ(log_.live.domains[1].registered_peak_bytes, 4096u);
  EXPECT_DOUBLE_EQ(log_.live.domains[1].registered_byte_ns, 4096.0 * 500);
  EXPECT_DOUBLE_EQ(log_.live.domains[1].fit_register_b_ns, 16000);

  const Event &held = log_.events[80], &uses = log_.events[81], &moved = log_.events[98],
              &ended = log_.events[99];
  EXPECT_EQ(held.kind, EventKind::hold_begin);
  EXPECT_EQ(held.peer, 3);
  EXPECT_EQ(held.domain, 1u);
  EXPECT_EQ(held.bytes, 8192u);
  EXPECT_EQ(ended.kind, EventKind::hold_end);
  EXPECT_EQ(ended.begin_ns, 1349);
  EXPECT_EQ(uses.kind, EventKind::uses);
  EXPECT_EQ(uses.count, 7u);
  EXPECT_EQ(uses.leased_ns, 5u);
  EXPECT_EQ(uses.begin_ns, 1300);
  EXPECT_EQ(uses.end_ns, 1309);
  EXPECT_EQ(moved.kind, EventKind::transfer);
  EXPECT_EQ(moved.protocol, Protocol::direct);
  EXPECT_EQ(static_cast<CallKind>(moved.call), CallKind::put);
  EXPECT_EQ(moved.bytes, 8192u);
}

TEST_F(Reader, DomainsOutOfRange) {
  expect_error(read_with<std::uint32_t>(kHeader + offsetof(ProcessHeader, domain_count), kMaxDomains + 1),
               "more domains than its table holds");
  std::string content = valid_;
  std::memset(content.data() + kDomain + offsetof(DomainEntry, nic), 'a', sizeof DomainEntry::nic);
  expect_error(read(content), "a domain with a text without an end");
  const std::size_t state = kLive + offsetof(LiveState, domains) + sizeof(DomainState);
  expect_error(read_with<double>(state + offsetof(DomainState, fit_register_a_ns),
                                 std::numeric_limits<double>::infinity()),
               "no number");
  expect_error(read_with<double>(state + offsetof(DomainState, registered_byte_ns), -1), "no number");
  expect_error(read_with<std::uint64_t>(state + offsetof(DomainState, registered_peak_bytes), ~0ull),
               "more registered bytes in a domain");
  content = valid_;
  std::strcpy(content.data() + kDomain + offsetof(DomainEntry, description), "a\x1b[2Jb");
  ASSERT_FALSE(read(content));
  EXPECT_STREQ(log_.domains[1].description, "a?[2Jb");
}

// A process may be killed between the first use of a domain and its entry in the table.
TEST_F(Reader, EventsOfADomainWithoutAnEntryAreTaken) {
  ASSERT_FALSE(read_with<std::uint32_t>(kHeader + offsetof(ProcessHeader, domain_count), 0));
  EXPECT_TRUE(log_.domains.empty());
  EXPECT_TRUE(analyse({log_}).domains.empty());
}

TEST_F(Reader, NoLog) {
  expect_error(read(""), "not a Pinion log");
  expect_error(read("PINI"), "not a Pinion log");
  expect_error(read(std::string(100000, 'x')), "not a Pinion log");
  expect_error(read_with<char>(0, 'p'), "not a Pinion log");
}

TEST_F(Reader, ANewerFormatNamesBothVersions) {
  expect_error(read_with<std::uint32_t>(offsetof(NodeHeader, version), kVersion + 1),
               "log format 12, written by a newer Pinion; this one (" PINION_VERSION
               ") reads formats 8 to 11: use the Pinion that wrote it");
  expect_error(read_with<std::uint32_t>(offsetof(NodeHeader, version), 4),
               "log format 4, written by an older Pinion; this one (" PINION_VERSION
               ") reads formats 8 to 11");
}

TEST_F(Reader, AFileOfVersionNineIsReadAsItWasWritten) {
  constexpr std::uint32_t version = 9;
  const std::size_t lacking = lacking_in(version), states = kHeader + live_offset();
  ASSERT_EQ(lacking,
            sizeof(Counters::passed) + sizeof(Counters::collapses) + sizeof(Counters::advised_bytes));
  ASSERT_FALSE(read(valid_));
  const Log written = std::exchange(log_, {});
  const std::size_t at = offsetof(LiveState, domains) - lacking;
  std::string old = valid_;
  old.erase(states + sizeof(LiveState) + at, lacking);
  old.erase(states + at, lacking);
  old.insert(chunk_offset(1) - 2 * lacking, 2 * lacking, '\0');
  const auto state_bytes = static_cast<std::uint32_t>(sizeof(LiveState) - lacking);
  std::memcpy(old.data() + offsetof(NodeHeader, version), &version, sizeof version);
  std::memcpy(old.data() + offsetof(NodeHeader, live_bytes), &state_bytes, sizeof state_bytes);
  ASSERT_FALSE(read(old));
  EXPECT_EQ(log_.live.counters.passed[0].count, 0u);
  EXPECT_EQ(log_.live.counters.kept_all_below_bytes, written.live.counters.kept_all_below_bytes);
  EXPECT_EQ(log_.live.domains[1].registered_peak_bytes, 4096u);
  EXPECT_EQ(std::memcmp(log_.live.series, written.live.series, sizeof written.live.series), 0);
  EXPECT_EQ(log_.events.size(), kEventCount);
}

TEST_F(Reader, AFileOfTheOldestVersionIsReadAsItWasWritten) {
  // Both states are shorter there, and what follows comes sooner.
  const std::size_t lacking = lacking_in(kOldestVersion), states = kHeader + live_offset();
  const std::size_t at = offsetof(LiveState, domains) - lacking;
  std::string old = valid_;
  old.erase(states + sizeof(LiveState) + at, lacking);
  old.erase(states + at, lacking);
  old.insert(chunk_offset(1) - 2 * lacking, 2 * lacking, '\0');
  // So are the call sites, whose table ends sooner, too.
  ASSERT_FALSE(read(valid_));
  const Log written = std::exchange(log_, {});
  const std::size_t count = written.sites.size();
  ASSERT_GT(count, 1u);
  std::string sites;
  for (std::size_t i = 0; i < count; ++i)
    sites += old.substr(kSites + i * sizeof(SiteEntry), site_bytes(kOldestVersion));
  sites.resize(count * sizeof(SiteEntry));
  old.replace(kSites, sites.size(), sites);
  for (std::size_t chunk = 2; chunk_offset(chunk) < old.size(); ++chunk) {
    ChunkOwner owner;
    std::memcpy(&owner, old.data() + owner_offset(chunk), sizeof owner);
    owner.index -=
        static_cast<decltype(owner.index)>((events_offset() - events_offset(kOldestVersion)) / kChunkBytes);
    std::memcpy(old.data() + owner_offset(chunk), &owner, sizeof owner);
  }
  const auto version = kOldestVersion;
  const auto entry_bytes = static_cast<std::uint32_t>(site_bytes(version));
  std::memcpy(old.data() + offsetof(NodeHeader, site_bytes), &entry_bytes, sizeof entry_bytes);
  const auto state_bytes = static_cast<std::uint32_t>(sizeof(LiveState) - lacking);
  std::memcpy(old.data() + offsetof(NodeHeader, version), &version, sizeof version);
  std::memcpy(old.data() + offsetof(NodeHeader, live_bytes), &state_bytes, sizeof state_bytes);
  ASSERT_FALSE(read(old));
  const Log& now = log_;
  EXPECT_EQ(now.events.size(), kEventCount);
  EXPECT_EQ(std::memcmp(now.events.data(), written.events.data(), kEventCount * sizeof(Event)), 0);
  ASSERT_EQ(now.sites.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(now.sites[i].hash, written.sites[i].hash);
    EXPECT_STREQ(now.sites[i].name, written.sites[i].name);
    EXPECT_STREQ(now.sites[i].python, "");
  }
  EXPECT_EQ(now.live.counters.copies_to_gpu[0].count, 0u);
  EXPECT_EQ(now.live.last_ns, written.live.last_ns);
  EXPECT_EQ(now.live.counters.registered_peak_bytes, written.live.counters.registered_peak_bytes);
  EXPECT_EQ(now.live.domains[1].registered_peak_bytes, 4096u);
  EXPECT_DOUBLE_EQ(now.live.domains[1].fit_register_b_ns, 16000);
  EXPECT_EQ(std::memcmp(now.live.series, written.live.series, sizeof written.live.series), 0);
}

TEST_F(Reader, Truncated) {
  for (const std::size_t size : {std::size_t{12}, sizeof(NodeHeader) - 1, kTable + 8, kHeader, kLive, kSites,
                                 kEvents, kEvents + 100, valid_.size() - 1})
    expect_error(read(valid_.substr(0, size)), "truncated");
}

TEST_F(Reader, HeaderOutOfRange) {
  expect_error(read_with<std::uint32_t>(offsetof(NodeHeader, event_bytes), 32), "other sizes");
  expect_error(read_with<std::uint64_t>(kHeader + offsetof(ProcessHeader, event_count), ~std::uint64_t{0}),
               "truncated");
  expect_error(read_with<std::uint64_t>(kHeader + offsetof(ProcessHeader, event_count), 5000), "truncated");
  expect_error(read_with<std::uint32_t>(kHeader + offsetof(ProcessHeader, site_count), 1u << 31),
               "more call sites");
  expect_error(read_with<std::uint32_t>(kHeader + offsetof(ProcessHeader, live), 2), "no valid state");
  expect_error(read_with<std::uint32_t>(kHeader + offsetof(ProcessHeader, page_bytes), 0), "page size");
  expect_error(read_with<std::uint32_t>(kHeader + offsetof(ProcessHeader, page_bytes), 4097), "page size");
  expect_error(read_with<std::int32_t>(kHeader + offsetof(ProcessHeader, rank), 1), "rank");
  expect_error(read_with<std::int32_t>(kHeader + offsetof(ProcessHeader, ranks), INT32_MAX), "ranks");
  expect_error(read_with<std::int64_t>(kHeader + offsetof(ProcessHeader, start_ns), -1), "start time");
  expect_error(read_with<double>(kHeader + offsetof(ProcessHeader, ns_per_tick), std::nan("")),
               "calibration");
  std::string content = valid_;
  std::memset(content.data() + kHeader + offsetof(ProcessHeader, command), 'a',
              sizeof ProcessHeader::command);
  expect_error(read(content), "text without an end");
}

TEST_F(Reader, StateOutOfRange) {
  expect_error(read_with<std::int64_t>(kLive + offsetof(LiveState, last_ns), 999), "end time");
  expect_error(read_with<std::int64_t>(kLive + offsetof(LiveState, last_ns), INT64_MAX), "end time");
  expect_error(read_with<std::int64_t>(kLive + offsetof(LiveState, series_bin_ns), 0), "state");
  const std::size_t counters = kLive + offsetof(LiveState, counters);
  expect_error(read_with<double>(counters + offsetof(Counters, registered_byte_ns), -1), "no number");
  expect_error(read_with<double>(counters + offsetof(Counters, leave_pinned_registration_ns),
                                 std::numeric_limits<double>::infinity()),
               "no number");
  expect_error(read_with<std::uint64_t>(counters + offsetof(Counters, registered_peak_bytes), ~0ull),
               "more registered bytes");
  const std::size_t lateness = counters + offsetof(Counters, lateness);
  expect_error(read_with<std::uint32_t>(lateness + offsetof(Lateness, kept), Lateness::kMost + 1),
               "more wake-ups");
  expect_error(read_with<std::uint32_t>(lateness + offsetof(Lateness, kept), 1), "more wake-ups");
  expect_error(
      read_with<double>(kLive + offsetof(LiveState, series) + offsetof(SeriesBin, byte_ns), std::nan("")),
      "time series");
}

TEST_F(Reader, EventsAndSitesOutOfRange) {
  const std::size_t at = kEvents + 5 * sizeof(Event);
  expect_error(read_with<std::uint8_t>(at + offsetof(Event, kind), 0), "unknown kind");
  expect_error(read_with<std::uint8_t>(at + offsetof(Event, kind), 9), "unknown kind");
  expect_error(read_with<std::uint8_t>(at + offsetof(Event, outcome), 9), "unknown outcome");
  expect_error(read_with<std::uint8_t>(kTransfer + offsetof(Event, protocol), 5), "unknown protocol");
  expect_error(read_with<std::uint32_t>(kRunOfUses + offsetof(Event, count), 0), "a run of no uses");
  expect_error(read_with<std::int64_t>(at + offsetof(Event, end_ns), 5), "runs backwards");
  expect_error(read_with<std::int64_t>(at + offsetof(Event, end_ns), INT64_MAX), "impossible time");
  // The rights and the order of the pages share the byte after the flags.
  expect_error(read_with<std::uint8_t>(at + offsetof(Event, flags) + 1, 31 << 3), "of an impossible size");
  expect_error(read_with<std::uint64_t>(at + offsetof(Event, address), ~0ull - 100), "impossible range");
  expect_error(read_with<std::uint64_t>(at + offsetof(Event, bytes), ~0ull - 100), "impossible range");
  expect_error(read_with<std::uint32_t>(kSites + offsetof(SiteEntry, frame_count), 17), "frames");
  std::string content = valid_;
  std::memset(content.data() + kSites + offsetof(SiteEntry, name), 'a', sizeof SiteEntry::name);
  expect_error(read(content), "name has no end");
  content = valid_;
  std::memset(content.data() + kSites + offsetof(SiteEntry, python), 'a', sizeof SiteEntry::python);
  expect_error(read(content), "name has no end");
}

TEST_F(Reader, ChunksOutOfRange) {
  const auto owner = [](std::uint64_t chunk, std::size_t field) { return owner_offset(chunk) + field; };
  constexpr std::size_t kProcess = offsetof(ChunkOwner, process), kIndex = offsetof(ChunkOwner, index);
  expect_error(read_with<std::uint32_t>(owner(1, kProcess), 2), "never joined");
  expect_error(read_with<std::uint32_t>(owner(1, kIndex), 0), "two chunks at one place");
  // The chunks counted by its header are elsewhere, or missing.
  for (const std::uint32_t index : {2u, 14u, 1u << 31, ~0u}) {
    expect_error(read_with<std::uint32_t>(owner(0, kIndex), index), "truncated");
    expect_error(read_with<std::uint32_t>(owner(2, kIndex), index), "truncated");
  }
  expect_error(read_with<std::uint32_t>(owner(2, kProcess), 0), "truncated");
  expect_error(read_with<std::uint64_t>(offsetof(NodeHeader, chunks), 2), "truncated");
  // The header claims the most chunks there can be, in a file that holds three.
  EXPECT_FALSE(read_with<std::uint64_t>(offsetof(NodeHeader, chunks), ~std::uint64_t{0}));
}

TEST_F(Reader, OfAProcessThatWasKilledBeforeItsLogHadBegunNothingIsSaid) {
  const Error error = read_with<std::uint32_t>(kHeader + offsetof(ProcessHeader, begun), 0);
  EXPECT_EQ(error.code, ENOENT);
  expect_error(error, "no process has begun its log");
}

TEST_F(Reader, AnEventOfAnImpossibleDomain) {
  expect_error(read_with<std::uint8_t>(kEvents + offsetof(Event, domain), kMaxDomains), "impossible domain");
  ASSERT_FALSE(read_with<std::uint8_t>(kEvents + offsetof(Event, domain), kMaxDomains - 1));
}

TEST_F(Reader, AMemoryEventMayBeOfAllMemory) {
  std::string content = valid_;
  Event all = event(EventKind::memory_event, 1500, 1500, 0, ~std::uint64_t{0});
  std::memcpy(content.data() + kEvents + 79 * sizeof(Event), &all, sizeof all);
  ASSERT_FALSE(read(content));
  EXPECT_EQ(leave_pinned_timeline(log_).levels().back().bytes, 0u);
}

TEST_F(Reader, TextsDoNotSpeakToTerminals) {
  std::string content = valid_;
  std::strcpy(content.data() + kHeader + offsetof(ProcessHeader, command),
              "a\x1b[2Jb\n \xC3\xA9 \xE2\x80\xAE \xC2\x9B \xFF \xE2\x82");
  ASSERT_FALSE(read(content));
  EXPECT_STREQ(log_.header.command, "a?[2Jb? \xC3\xA9 ? ? ? ??") << "accents stay";
}

TEST_F(Reader, WhatIsNoFile) {
  expect_error(read_log(path_ = dir_.path() + "/absent.plog", log_), "No such file");
  ASSERT_EQ(::mkfifo((dir_.path() + "/fifo").c_str(), 0600), 0);
  expect_error(read_log(path_ = dir_.path() + "/fifo", log_), "not a regular file");
  std::filesystem::create_symlink(dir_.path() + "/fifo", dir_.path() + "/link");
  expect_error(read_log(path_ = dir_.path() + "/link", log_), "a symbolic link");
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

class Runs : public ::testing::Test {
 protected:
  /// A file of one job on one node. `run`: 0 where the launcher names none.
  void write(std::uint64_t job, std::uint32_t run, std::vector<int> ranks, int job_ranks) {
    for (const int rank : ranks) {
      RunInfo info;
      info.job = job;
      info.run = run;
      info.command = "./app" + std::to_string(job);
      info.rank = rank;
      info.ranks = job_ranks;
      info.start = 1000;
      LogWriter writer;
      ASSERT_FALSE(writer.open(dir_.path(), info, 1 << 16));
      // A new name: under the old one its successors on this host would take it for a finished job's.
      std::filesystem::rename(writer.path(), dir_.path() + "/" + std::to_string(job) + ".plog");
      writer.finish({}, Series{}, 2000, 0);
    }
  }
  Error read() {
    std::vector<Log> logs;
    return read_logs({dir_.path()}, logs);
  }
  void expect_two_runs(const char* first, const char* second) {
    const Error error = read();
    ASSERT_TRUE(error);
    EXPECT_EQ(error.code, EINVAL);
    for (const char* text : {"two runs: ", first, second})
      EXPECT_NE(std::strstr(error.message, text), nullptr) << text << ": " << error.message;
  }

  TemporaryDirectory dir_;
};

TEST_F(Runs, NodesOfAJobAreOneRun) {
  write(1, 0, {0}, 2);
  write(2, 0, {1}, 2);
  EXPECT_FALSE(read());
}

// For any ranks: two launchers under one `pinion run`, processes that lack a rank.
TEST_F(Runs, OneNameIsOneRun) {
  write(1, 77, {0}, 1);
  write(2, 77, {0}, 1);
  write(3, 77, {-1}, -1);
  EXPECT_FALSE(read());
}

TEST_F(Runs, TwoNamesAreTwoRuns) {
  write(1, 77, {0}, 2);
  write(2, 78, {1}, 2);
  expect_two_runs("1.plog (app1, 1 of 2 ranks on ", "2.plog (app2, 1 of 2 ranks on ");
}

TEST_F(Runs, WithoutANameTheSameRankIsTwoRuns) {
  write(1, 0, {0}, 2);
  write(2, 0, {0}, 2);
  expect_two_runs("app1", "app2");
}

TEST_F(Runs, WithoutANameOtherSizesAreTwoRuns) {
  write(1, 0, {0}, 2);
  write(2, 0, {1}, 3);
  expect_two_runs("app1", "app2");
}

TEST_F(Runs, WithoutANameOrRankEachProcessIsARun) {
  write(1, 0, {-1}, -1);
  write(2, 0, {-1}, -1);
  expect_two_runs("1.plog (app1, process without a rank on ", "app2");
}

// Any damage to a file gives an error, or a log that analysis accepts. Run under ASan and UBSan to mean it.
// PINION_TEST_SCALE multiplies the files.
TEST_F(Reader, DamagedAtRandom) {
  std::mt19937_64 random(20240607);
  const int file = ::open(path_.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  int accepted = 0, refused = 0;
  const int files = static_cast<int>((kSanitized ? 1500 : 4000) * test::test_scale());
  for (int i = 0; i < files; ++i) {
    std::map<std::size_t, char> damage;
    if (i % 4 == 0) {
      const std::size_t end = i % 8 == 0 ? kSites : valid_.size();
      ASSERT_EQ(::ftruncate(file, static_cast<off_t>(random() % end)), 0);
    } else {
      // Half of the flips in the events, the others in headers, state and table: most of the file is empty.
      for (std::uint64_t flips = 1 + random() % 8; flips > 0; --flips) {
        const std::size_t area = random() % 10;
        const std::size_t at =
            area == 0   ? random() % sizeof(NodeHeader)
            : area == 1 ? kTable + random() % (4 * sizeof(ChunkOwner))
            : area <= 3 ? kHeader + random() % sizeof(ProcessHeader)
            : area == 4 ? kLive + random() % sizeof(LiveState)
            : area == 5 ? kDomain + random() % sizeof(DomainEntry)
            : area == 6 ? kLive + offsetof(LiveState, domains) + random() % (2 * sizeof(DomainState))
                        : kEvents + random() % (kEventCount * sizeof(Event));
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
    for (const DomainReport& domain : report.domains) ASSERT_TRUE(std::isfinite(domain.mean));
    // The simulator is the other reader. One file takes .23 s of processor time at most; sanitizers take 22
    // times as long.
    simulate::Workload workload;
    if (simulate::log_workload({log_}, {}, workload)) continue;
    simulate::Settings settings;
    settings.retention = RetentionKind::helper;
    const std::clock_t begin = std::clock();
    simulate::simulate(workload, settings);
    ASSERT_LT(std::clock() - begin, (kSanitized ? 44 : 2) * CLOCKS_PER_SEC) << "file " << i;
  }
  ::close(file);
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace pinion::runlog
