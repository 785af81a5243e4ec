// Results that `pinion report` makes of logs: text, sources of call sites, and the verdict on each kind of
// run (tests/cli/golden). Pages, plots, traces, metrics and the live view: tests/python/report_test.py.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "base/call_kind.h"
#include "placement/arena_figures.h"
#include "support/cli_fixture.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::content_of;
using test::Outcome;

constexpr std::uint64_t kBuffer = 1 << 20;

/// A loop over buffers, each in one transfer a turn.
struct MadeRun {
  runlog::Acts acts = runlog::Acts::pinned;
  std::string command = "./app", retention = "helper", options;
  int buffers = 4, turns = 50;
  Duration turn = 40 * kMillisecond;
  Duration busy = kMillisecond;  ///< a transfer
  Duration held = 0;  ///< registered so long around each transfer; 0: from the first use to the end
  Duration device_call = 200 * kMicrosecond;
  std::uint64_t limit = 0;
  runlog::Outcome outcome = runlog::Outcome::hit;
  int buffers_without_room = 0;
  bool keeps_events = true;
  runlog::Copies registered_to_gpu{}, plain_from_gpu{};
  std::uint64_t copies_verified = 0, copies_differing = 0;

  void only_measures() {
    acts = runlog::Acts::measured;
    retention = "observe";
    outcome = runlog::Outcome::observed;
  }
};

class Report : public test::Cli {
 protected:
  /// The log of a rank on this host.
  void write_run(const MadeRun& made, int rank, int ranks, const char* directory = "logs") {
    using namespace runlog;
    LogWriter writer;
    const Error error = writer.open((root() / directory).string(), info_of(made, rank, ranks),
                                    made.keeps_events ? 8 << 20 : 0);
    ASSERT_FALSE(error) << error.message;
    writer.add_domain({"pin", "connectx", "pins pages"});
    DomainState state{};
    state.fit_register_b_ns = static_cast<double>(made.device_call);
    writer.set_domain_state(0, state);
    const std::uint64_t frame = 1;
    writer.add_site(5, &frame, 1);
    writer.for_each_site([](SiteEntry& site) { std::strcpy(site.name, "exchange+0x10 (app)"); });
    Counters counters{};
    for (int turn = 0; turn < made.turns; ++turn)
      for (int buffer = 0; buffer < made.buffers; ++buffer) use(writer, counters, made, turn, buffer);
    counters.registered_peak_bytes = counters.registered_now_bytes =
        kBuffer * static_cast<std::uint64_t>(made.buffers);
    counters.copies_to_gpu[static_cast<unsigned>(CopyWay::registered)] = made.registered_to_gpu;
    counters.copies_from_gpu[static_cast<unsigned>(CopyWay::plain)] = made.plain_from_gpu;
    counters.copies_verified = made.copies_verified;
    counters.copies_differing = made.copies_differing;
    Series series;
    series.start(kSecond);
    series.advance(end_of(made));
    writer.finish(counters, series, end_of(made), 0);
  }

  static runlog::RunInfo info_of(const MadeRun& made, int rank, int ranks) {
    runlog::RunInfo info;
    info.acts = made.acts;
    info.command = made.command;
    info.options = made.options.empty() ? "minimum-gain=0" : "minimum-gain=0," + made.options;
    info.retention = made.retention;
    info.predictor = "adaptive";
    info.device = "pins pages";
    info.rank = rank;
    info.ranks = info.local_ranks = ranks;
    info.cores = 8;
    info.limit_bytes = made.limit;
    info.memcpy_bytes_per_ns = 10;
    info.start = kSecond;
    return info;
  }

  static Time end_of(const MadeRun& made) { return kSecond + made.turns * made.turn; }

  static void use(runlog::LogWriter& writer, runlog::Counters& c, const MadeRun& made, int turn, int buffer) {
    using namespace runlog;
    const Time begin = kSecond + turn * made.turn + (buffer + 1) * made.turn / (made.buffers + 1);
    const std::uint64_t address = (16 + 64 * static_cast<std::uint64_t>(buffer)) << 20;
    const runlog::Outcome outcome =
        buffer < made.buffers_without_room ? runlog::Outcome::bounced : made.outcome;
    const bool registers =
        outcome != runlog::Outcome::bounced && made.acts != Acts::measured && (turn == 0 || made.held > 0);
    if (registers) {
      writer.append(event(EventKind::registration, begin - made.held / 2 - made.device_call,
                          begin - made.held / 2, address, kBuffer));
      ++c.registrations;
    }
    Event transfer = lease(begin, begin + made.busy, address, kBuffer, 5, outcome);
    transfer.call = static_cast<std::uint8_t>(CallKind::send);
    if (outcome == runlog::Outcome::wait) {
      transfer.flags = kLate;
      transfer.wait_ns = 50'000;
      ++c.late;
      ++c.waits;
    }
    writer.append(transfer);
    ++c.acquires;
    ++(outcome == runlog::Outcome::observed  ? c.observed
       : outcome == runlog::Outcome::bounced ? c.bounced
       : outcome == runlog::Outcome::hit     ? c.hits
                                             : c.misses);
    if (turn > 0) ++c.reuses;
    if (registers && made.held > 0) {
      const Time gone = begin + made.busy + made.held / 2;
      writer.append(event(EventKind::deregistration, gone, gone + made.device_call / 4, address, kBuffer));
      ++c.deregistrations;
    }
  }
};

TEST_F(Report, ARunThatWasOnlyMeasuredHeldNothingItself) {
  MadeRun made;
  made.only_measures();
  write_run(made, 0, 1);
  const std::string text = pinion({"report", "logs"}).out;
  EXPECT_EQ(text.find("-100"), std::string::npos) << text;
  const std::string line = pinion({"report", "--all", "logs"}).out;
  EXPECT_EQ(line.find("0 B"), std::string::npos) << line;
  const json run = json::parse(pinion({"report", "--all", "--json", "logs"}).out).at(0);
  EXPECT_EQ(run.at("acts"), "measured");
  EXPECT_TRUE(run.at("registered_peak_bytes").is_null()) << run;
}

// A limit of a node is shown once, not for each of its ranks.
TEST_F(Report, ALimitOfTheNodeIsNoProcesss) {
  MadeRun made;
  made.limit = 512 << 20;
  made.options = "node-limit=512M";
  for (const int rank : {0, 1}) write_run(made, rank, 2);
  const Outcome report = pinion({"report", "logs"});
  EXPECT_NE(report.out.find("512 MiB a node\n"), std::string::npos) << report.out;
  EXPECT_EQ(report.out.find("512 MiB a process"), std::string::npos) << report.out;
}

TEST_F(Report, CountsTheGpuCopiesThatWereComparedAndThoseThatDiffered) {
  MadeRun made;
  made.registered_to_gpu = {100, std::uint64_t{2} << 30, 50'000'000};
  for (const int rank : {0, 1}) write_run(made, rank, 2, "unverified");
  EXPECT_EQ(pinion({"report", "unverified"}).out.find("verified"), std::string::npos);
  made.copies_verified = 30;
  made.copies_differing = 1;
  for (const int rank : {0, 1}) write_run(made, rank, 2);
  const std::string shown = std::regex_replace(pinion({"report", "logs"}).out, std::regex("\\s+"), " ");
  EXPECT_NE(shown.find("; of 60 verified, 2 differed"), std::string::npos) << shown;
}

/// Call sites as source, of libraries that the system's compilers make here.
class SourceLines : public Report {
 protected:
  static bool runs(const std::string& command) {
    return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0;
  }
  void SetUp() override {
    Report::SetUp();
    if (!IsSkipped() && !runs("grep -q libdw.so.1 " + (root() / "bin/pinion").string()))
      GTEST_SKIP() << "pinion is built without libdw";
  }

  /// A library with one function, whose call is on line 3.
  void make(const std::string& compiler, const std::string& file, const std::string& text) {
    if (!runs("command -v " + compiler)) GTEST_SKIP() << compiler << " is missing";
    std::ofstream(root() / file) << text;
    ASSERT_TRUE(in_root(compiler + " -g -O0 -shared -fPIC -Wl,--build-id -o app.so " + file));
  }
  bool in_root(const std::string& command) const { return runs("cd " + root().string() + " && " + command); }

  /// The call site in a log whose frame lies within the function `symbol` of app.so.
  std::string source_of(const std::string& symbol) {
    using namespace runlog;
    if (address_ == 0) {
      EXPECT_TRUE(in_root("nm app.so >symbols && grep ' [TW] " + symbol + "$' symbols >address")) << symbol;
      address_ = std::strtoull(content_of(root() / "address").c_str(), nullptr, 16);
    }
    EXPECT_NE(address_, 0u) << symbol;
    constexpr std::uint64_t kBias = 0x7f0000000000;
    const fs::path logs = root() / ("logs." + std::to_string(++calls_));
    LogWriter writer;
    EXPECT_FALSE(writer.open(logs.string(), info_of({}, 0, 1), 1 << 16));
    const std::uint64_t frame = kBias + address_ + 5;
    writer.add_site(5, &frame, 1);
    writer.for_each_site([](SiteEntry& site) { std::strcpy(site.name, "exchange+0x4 (app.so)"); });
    ModuleEntry module{};
    module.begin = module.bias = kBias;
    module.end = kBias + (1 << 20);
    std::strcpy(module.path, (root() / "app.so").c_str());
    writer.set_modules({module});
    writer.append(lease(kSecond, kSecond + 100, 1 << 20, kBuffer, 5));
    Counters counters{};
    counters.acquires = counters.hits = 1;
    writer.finish(counters, Series{}, 2 * kSecond, 0);
    const json report = json::parse(pinion({"report", logs.string(), "--json", "--events", "events"}).out);
    const std::string source = report.at("call_sites").at(0).at("source");
    std::istringstream events(content_of(root() / "events"));
    for (std::string line; std::getline(events, line);)
      if (const json event = json::parse(line); event.value("kind", "") == "lease") {
        EXPECT_EQ(event.at("site"), source);
      }
    return source;
  }

  int calls_ = 0;
  std::uint64_t address_ = 0;  ///< of the function, before its file is stripped
};

constexpr const char* kInC = "volatile int x;\n\nint exchange(void) { return x + x; }\n";

TEST_F(SourceLines, OfATemplateWithLongArguments) {
  make("c++", "app.cpp",
       "volatile int x;\ntemplate <class F>\nint exchange(F) { return x + x; }\n"
       "template int exchange(int (*)(void*, unsigned long, void*, unsigned long, void*));\n");
  EXPECT_EQ(source_of("_Z8exchangeIPFiPvmS0_mS0_EEiT_"), "int exchange<...>() app.cpp:3");
}

TEST_F(SourceLines, OfC) {
  make("cc", "app.c", kInC);
  EXPECT_EQ(source_of("exchange"), "exchange() app.c:3");
}

TEST_F(SourceLines, OfCpp) {
  make("c++", "app.cpp",
       "namespace halo { template <class T>\nT x;\nint exchange(int) { return x<int> + x<int>; } }\n");
  EXPECT_EQ(source_of("_ZN4halo8exchangeEi"), "halo::exchange() app.cpp:3");
}

TEST_F(SourceLines, OfFortran) {
  make("gfortran", "app.f90",
       "module halo\ncontains\ninteger function exchange(x); integer, intent(in) :: x(4); exchange = x(1) + "
       "x(2)\n"
       "end function\nend module\n");
  EXPECT_EQ(source_of("__halo_MOD_exchange"), "halo::exchange() app.f90:3");
}

TEST_F(SourceLines, OfASeparateDebugFile) {
  make("cc", "app.c", kInC);
  EXPECT_EQ(source_of("exchange"), "exchange() app.c:3");
  ASSERT_TRUE(
      in_root("objcopy --only-keep-debug app.so app.debug && strip -s app.so && "
              "objcopy --add-gnu-debuglink=app.debug app.so"));
  EXPECT_EQ(source_of("exchange"), "exchange() app.c:3");
  fs::remove(root() / "app.debug");
  EXPECT_EQ(source_of("exchange"), "exchange+0x4 (app.so)") << "without it, the log's own name";
}

TEST_F(SourceLines, OfAFileThatIsGone) {
  make("cc", "app.c", kInC);
  EXPECT_EQ(source_of("exchange"), "exchange() app.c:3");
  fs::remove(root() / "app.so");
  EXPECT_EQ(source_of("exchange"), "exchange+0x4 (app.so)");
  ASSERT_EQ(::mkfifo((root() / "app.so").c_str(), 0600), 0);
  EXPECT_EQ(source_of("exchange"), "exchange+0x4 (app.so)") << "a pipe is in its place";
}

class Verdicts : public Report {
 protected:
  /// The report begins as the golden file has it.
  void expect_verdict(const MadeRun& made, const std::string& name, bool of_mpi = true) {
    write_run(made, of_mpi ? 0 : -1, of_mpi ? 1 : -1, name.c_str());
    const Outcome o = pinion({"report", name});
    ASSERT_EQ(o.status, 0) << o.err;
    const std::string begin = o.out.substr(0, o.out.find("\nRun\n"));
    const fs::path golden = fs::path(PINION_GOLDEN_DIR) / ("verdict-" + name + ".txt");
    EXPECT_EQ(begin, content_of(golden)) << golden;
  }
};

TEST_F(Verdicts, OnARunThatWasHelped) {
  MadeRun made;
  made.held = 4 * kMillisecond;
  expect_verdict(made, "helped");
}

TEST_F(Verdicts, OnAnArenaThatIsRegisteredInVain) {
  write_run(MadeRun{}, 0, 1);
  ArenaFigures arena;
  arena.processes = arena.segments = arena.registrations = arena.requests = arena.served = 1;
  arena.segment_bytes = 64 << 20;
  const auto advises = [&](std::uint64_t ahead, std::uint64_t served_bytes) {
    arena.ahead = ahead;
    arena.served_bytes = served_bytes;
    write_arena_figures((root() / "logs").c_str(), arena);
    const std::string shown = std::regex_replace(pinion({"report", "logs"}).out, std::regex("\\s+"), " ");
    EXPECT_NE(shown.find("The arena served 1 of "), std::string::npos) << shown;
    return shown.find("`--tune preregister-ahead=no`") != std::string::npos;
  };
  EXPECT_TRUE(advises(1, 8 << 20));
  EXPECT_FALSE(advises(1, 64 << 20));
  EXPECT_FALSE(advises(0, 8 << 20));
}

TEST_F(Verdicts, OnARunThatWasOnlyMeasured) {
  MadeRun made;
  made.only_measures();
  expect_verdict(made, "measured");
}

TEST_F(Verdicts, OnARunThatUsesItsMemoryAllTheTime) {
  MadeRun made;
  made.busy = made.turn - kMillisecond;
  expect_verdict(made, "in-use");
}

TEST_F(Verdicts, OnARunThatIsTooShort) {
  MadeRun made;
  made.turns = 2;
  expect_verdict(made, "short");
}

TEST_F(Verdicts, OnARunThatUsesItsMemoryAgainTooSoon) {
  MadeRun made;
  made.turn = 2 * kMillisecond;
  made.busy = 100 * kMicrosecond;
  made.device_call = kMillisecond;
  expect_verdict(made, "too-soon");
}

TEST_F(Verdicts, OnARunWhoseLimitBinds) {
  MadeRun made;
  made.limit = 2 * kBuffer;
  made.options = "limit=2M";
  made.buffers_without_room = 2;
  expect_verdict(made, "limit");
}

TEST_F(Verdicts, OnAnotherStrategy) {
  MadeRun made;
  made.retention = "leave-pinned";
  made.options = "retention=leave-pinned";
  expect_verdict(made, "leave-pinned");
}

TEST_F(Verdicts, OnARunWithoutTransfers) {
  MadeRun made;
  made.turns = 0;
  expect_verdict(made, "no-transfers");
}

// The threshold is of messages: users of the C API register what they ask for.
TEST_F(Verdicts, OnARunWithoutTransfersOrMpi) {
  MadeRun made;
  made.turns = 0;
  expect_verdict(made, "no-transfers-no-mpi", false);
}

TEST_F(Verdicts, OnALogWithoutEvents) {
  MadeRun made;
  made.keeps_events = false;
  expect_verdict(made, "no-events");
  made.only_measures();
  expect_verdict(made, "measured-no-events");
}

TEST_F(Verdicts, OfASimulationGivesTheRecordedProgramToType) {
  MadeRun made;
  made.held = 4 * kMillisecond;
  for (const int rank : {0, 1}) write_run(made, rank, 2);
  const auto command = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"simulate", "logs", "--json"});
    const json advice = json::parse(pinion(arguments).out).at("verdict").at("advice");
    return advice.size() == 1 ? advice[0].at("command").get<std::string>() : advice.dump();
  };
  EXPECT_EQ(command({}), "mpirun -n 2 pinion run --minimum-gain 0 -- ./app");
  EXPECT_EQ(command({"--time-budget", "5%"}),
            "mpirun -n 2 pinion run --time-budget 5% --minimum-gain 0 -- ./app");
  EXPECT_EQ(command({"--limit", "0,16M"}), "mpirun -n 2 pinion run --minimum-gain 0 -- ./app")
      << "a limit that changes nothing is not asked for";
}

/// A verdict's choice against a search through all of its ways.
class EveryVerdict : public Verdicts {
 protected:
  struct Judged {
    double peak, mean, added;
    std::uint64_t refused;
  };
  static Judged judged(const json& way) {
    return {way.at("peak_bytes"), way.at("mean_bytes"), way.at("seconds_added"), way.at("bounced")};
  }
  static bool beats(const Judged& a, const Judged& b) {
    return a.refused <= b.refused && a.peak <= b.peak && a.mean <= b.mean && a.added <= b.added &&
           (a.peak < b.peak || a.mean < b.mean || a.added < b.added);
  }
  static bool beats_in_all(const Judged& a, const Judged& b) {
    return a.refused <= b.refused && a.peak < b.peak && a.mean < b.mean && a.added < b.added;
  }
  static const json* named(const json& verdict, const std::string& name) {
    for (const json& way : verdict.at("ways"))
      if (way.at("way") == name) return &way;
    return nullptr;
  }

  /// `seconds`: of the run. Nothing to gain: no unbeaten way frees a twentieth for a hundredth of the run.
  static void expect_right(const json& verdict, double seconds, bool any_gain_counts) {
    const std::string choice = verdict.at("choice");
    std::vector<Judged> all;
    std::uint64_t least_refused = UINT64_MAX;
    for (const json& way : verdict.at("ways")) {
      all.push_back(judged(way));
      least_refused = std::min(least_refused, all.back().refused);
    }
    const auto none = [&](auto&& is_so) { return std::none_of(all.begin(), all.end(), is_so); };
    for (const json& advice : verdict.at("advice"))
      EXPECT_EQ(advice.at("command").get<std::string>().find("--device"), std::string::npos) << advice;
    if (const json& library = verdict.at("library_choice"); !library.is_null()) {
      const json* const way = named(verdict, library);
      ASSERT_NE(way, nullptr) << library;
      EXPECT_TRUE(none([&](const Judged& other) { return beats_in_all(other, judged(*way)); })) << library;
      EXPECT_EQ(verdict["advice"][0]["command"].get<std::string>().find("export "), 0u);
    }
    if (const json* const chosen = named(verdict, choice)) {
      EXPECT_EQ(judged(*chosen).refused, least_refused);
      EXPECT_TRUE(none([&](const Judged& other) { return beats(other, judged(*chosen)); })) << choice;
      EXPECT_FALSE(verdict.at("advice").empty());
      return;
    }
    if (choice != "nothing to gain" || !any_gain_counts) {
      EXPECT_TRUE(choice == "nothing to gain" || choice == "keep what you have" ||
                  choice == "too short to tell")
          << choice;
      return;
    }
    const Judged pinned = judged(*named(verdict, "leave-pinned"));
    EXPECT_TRUE(none([&](const Judged& way) {
      const bool frees = way.peak < 0.95 * pinned.peak || way.mean < 0.95 * pinned.mean;
      return frees && way.refused == least_refused && way.added <= pinned.added + 0.01 * seconds &&
             none([&](const Judged& other) { return beats(other, way); });
    }));
  }

  json verdict_on(const MadeRun& made, const std::string& name, bool of_mpi) {
    for (int rank = 0; rank < (of_mpi ? 2 : 1); ++rank)
      write_run(made, of_mpi ? rank : -1, of_mpi ? 2 : -1, name.c_str());
    const Outcome o = pinion({"report", name, "--json"});
    EXPECT_EQ(o.status, 0) << o.err;
    return json::parse(o.out);
  }
};

TEST_F(EveryVerdict, RecommendsNoWayThatAnotherBeats) {
  struct Kind {
    const char* name;
    MadeRun made;
    const char* choice = "";  ///< where it is known beforehand
    bool of_mpi = true, any_gain_counts = true;
  };
  std::vector<Kind> kinds(14);
  const auto set = [](Kind& kind, const char* name, auto&& change) {
    kind.name = name;
    change(kind);
  };
  set(kinds[0], "idle-between-uses", [](Kind& k) { k.made.held = 4 * kMillisecond; });
  set(kinds[1], "measured", [](Kind& k) { k.made.only_measures(); });
  set(kinds[2], "always-in-use", [](Kind& k) {
    k.made.busy = k.made.turn - kMillisecond;
    k.choice = "nothing to gain";
  });
  set(kinds[3], "short", [](Kind& k) {
    k.made.turns = 2;
    k.choice = "too short to tell";
  });
  set(kinds[4], "used-again-too-soon", [](Kind& k) {
    k.made.turn = 2 * kMillisecond;
    k.made.busy = 100 * kMicrosecond;
    k.made.device_call = kMillisecond;
  });
  set(kinds[5], "a-limit-binds", [](Kind& k) {
    k.made.limit = 2 * kBuffer;
    k.made.options = "limit=2M";
    k.made.buffers_without_room = 2;
  });
  set(kinds[6], "the-machine-refuses", [](Kind& k) {
    k.made.limit = 2 * kBuffer;
    k.made.buffers_without_room = 2;
  });
  set(kinds[7], "all-refused", [](Kind& k) {
    k.made.limit = 64 << 10;
    k.made.buffers_without_room = k.made.buffers;
  });
  set(kinds[8], "leave-pinned", [](Kind& k) {
    k.made.retention = "leave-pinned";
    k.made.options = "retention=leave-pinned";
  });
  set(kinds[9], "on-demand", [](Kind& k) {
    k.made.retention = "on-demand";
    k.made.options = "retention=on-demand";
    k.made.held = 10 * kMicrosecond;
    k.made.outcome = runlog::Outcome::miss;
  });
  set(kinds[10], "lru-below-libraries", [](Kind& k) {
    k.made.acts = runlog::Acts::verbs;
    k.made.retention = "lru";
    k.made.options = "retention=lru,lru-size=2M";
  });
  set(kinds[11], "no-mpi", [](Kind& k) {
    k.made.held = 4 * kMillisecond;
    k.of_mpi = false;
  });
  set(kinds[12], "little-memory", [](Kind& k) {
    k.made.options = "minimum-gain=auto";
    k.made.limit = std::uint64_t{8} << 30;
    k.any_gain_counts = false;
    k.choice = "nothing to gain";
  });
  set(kinds[13], "helper-below-libraries", [](Kind& k) {
    k.made.acts = runlog::Acts::verbs;
    k.made.options = "device=emulated";
  });
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const json report = verdict_on(kind.made, kind.name, kind.of_mpi);
    const json& verdict = report.at("verdict");
    ASSERT_GE(verdict.at("ways").size(), 4u);
    expect_right(verdict, report.at("wall_seconds"), kind.any_gain_counts);
    if (*kind.choice) {
      EXPECT_EQ(verdict.at("choice"), kind.choice) << verdict;
    }
  }
}

TEST_F(EveryVerdict, TheMinimumGainUnderALimitOfTheUsersIsOfThatLimit) {
  MadeRun made;
  made.options = "minimum-gain=auto,limit=4G";
  made.limit = std::uint64_t{4} << 30;
  const json verdict = verdict_on(made, "limited", true).at("verdict");
  const std::string sentence = verdict.at("sentences").back();
  EXPECT_NE(sentence.find("Letting less than 41.0 MiB go in a process is not worth its cost while memory is "
                          "not short (--minimum-gain)."),
            std::string::npos)
      << sentence;
}

TEST_F(EveryVerdict, AMachineThatRefusesIsTheHeadlineWithTheAmountToAskFor) {
  MadeRun made;
  made.limit = 64 << 10;
  made.buffers_without_room = made.buffers;
  const json verdict = verdict_on(made, "refused", true).at("verdict");
  const std::string headline = verdict.at("sentences").at(0);
  EXPECT_EQ(headline.find("This machine's limit of 64.0 KiB a process on locked memory"), 0u) << headline;
  // The pin device's pages count for both ranks of the user.
  EXPECT_NE(headline.find("Ask for 8.00 MiB"), std::string::npos) << headline;
  EXPECT_EQ(verdict.at("advice").at(0).at("command"), "ulimit -l 8192");
  const std::string text = pinion({"report", "refused"}).out;
  EXPECT_EQ(text.find("-100"), std::string::npos) << text;
}

// A phase of sixteen buffers, then two in turns too quick to let any go: least recently used is right.
TEST_F(EveryVerdict, AVariableOfTheLibraryComesFirstWithoutItsPools) {
  using namespace runlog;
  MadeRun made;
  made.acts = Acts::verbs;
  made.retention = "leave-pinned";
  made.options = "retention=leave-pinned";
  LogWriter writer;
  ASSERT_FALSE(writer.open((root() / "logs").string(), info_of(made, 0, 1), 8 << 20));
  writer.add_domain({"verbs:mlx5_0", "connectx", "registers with mlx5_0"});
  DomainState state{};
  state.fit_register_b_ns = 200'000;
  state.registrations = 1;
  writer.set_domain_state(0, state);
  Counters c{};
  const auto use = [&](Time at, std::uint64_t buffer) {
    writer.append(lease(at, at + 10 * kMicrosecond, (64 + 64 * buffer) << 20, kBuffer, 5));
    ++c.acquires;
    ++c.hits;
  };
  Time at = kSecond + kMillisecond;
  for (std::uint64_t buffer = 0; buffer < 16; ++buffer, at += kMillisecond) use(at, 2 + buffer);
  for (int turn = 0; turn < 5'000; ++turn, at += 40 * kMicrosecond) use(at, turn % 2);
  writer.append(lease(kSecond, at, 16 << 20, 2 * kBuffer, 6));  // the library's pool
  ++c.acquires;
  c.reuses = 4'998;
  Series series;
  series.start(kSecond);
  series.advance(at);
  writer.finish(c, series, at, 0);
  const json verdict = json::parse(pinion({"report", "logs", "--json"}).out).at("verdict");
  expect_right(verdict, static_cast<double>(at - kSecond) * 1e-9, true);
  ASSERT_FALSE(verdict.at("library_choice").is_null()) << verdict;
  const std::string way = verdict["library_choice"], command = verdict.at("advice").at(0).at("command");
  EXPECT_EQ(way, "leave-pinned under a limit of 4.00 MiB a process") << verdict;
  EXPECT_EQ(command, "export UCX_RCACHE_MAX_SIZE=2m FI_MR_CACHE_MAX_SIZE=2097152")
      << "less the pool of 2 MiB";
}

TEST_F(EveryVerdict, AFigureOfAStrategyStandsOnceInAReport) {
  MadeRun made;
  made.only_measures();
  const json report = verdict_on(made, "measured", true);
  const json& bytes = report.at("registered_bytes");
  for (const json& row : report.at("strategies").at("rows")) {
    if (row.at("retention") == "leave-pinned") {
      EXPECT_EQ(row.at("registered_bytes").at("mean"), bytes.at("leave_pinned_mean"));
      EXPECT_EQ(row.at("registered_bytes").at("peak"), bytes.at("leave_pinned_peak"));
      EXPECT_EQ(row.at("seconds_added"), 0);
    }
    if (row.at("retention") == "on-demand") {
      EXPECT_LE(bytes.at("oracle_peak"), row.at("registered_bytes").at("peak"));
      EXPECT_LE(bytes.at("oracle_mean"), row.at("registered_bytes").at("mean"));
    }
  }
}

TEST_F(EveryVerdict, RecommendsNoWayThatAnotherBeatsInPatterns) {
  executable_ = "libexec/pinion/papers";
  copy_of_build(executable_);
  for (const char* pattern :
       {"bt:S:4", "cg:S:4", "ft:S:4", "nested:1M:2", "irregular:1M:2", "no-reuse:1M:2"}) {
    SCOPED_TRACE(pattern);
    const json simulated = json::parse(pinion({"simulate", "--pattern", pattern, "--json"}).out);
    expect_right(simulated.at("verdict"), simulated.at("rows").at(1).at("seconds"), true);
  }
}

}  // namespace

}  // namespace pinion
