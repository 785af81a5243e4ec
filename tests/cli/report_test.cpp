// Results that `pinion report` and `pinion top` make of logs: the page, plots, traces, metrics, the live
// view, and the verdict on each kind of run (tests/cli/golden).
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
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

  /// The first unpaired tag; empty: every element is closed.
  static std::string unbalanced(const std::string& markup) {
    std::vector<std::string> open;
    for (std::size_t at = markup.find('<'); at != std::string::npos; at = markup.find('<', at + 1)) {
      const std::size_t end = markup.find('>', at);
      if (end == std::string::npos) return markup.substr(at, 40);
      const bool closes = markup[at + 1] == '/';
      const std::size_t begin = at + (closes ? 2 : 1);
      const std::string name = markup.substr(begin, markup.find_first_of(" />", begin) - begin);
      if (name == "!DOCTYPE" || name == "meta" || markup[end - 1] == '/') continue;
      if (!closes) {
        open.push_back(name);
      } else {
        if (open.empty() || open.back() != name) return "</" + name + ">";
        open.pop_back();
      }
    }
    return open.empty() ? "" : "<" + open.back() + ">";
  }
};

TEST_F(Report, ThePageHasEveryPartAndLoadsNothing) {
  MadeRun made;
  made.held = 4 * kMillisecond;
  for (const int rank : {0, 1}) write_run(made, rank, 2);
  const Outcome o = pinion({"report", "logs", "--html", "page.html"});
  ASSERT_EQ(o.status, 0) << o.err;
  const std::string page = content_of(root() / "page.html");
  for (const char* part :
       {"Registered memory of 2 ranks", "Registered memory over time", "leave-pinned", "oracle",
        "Ranks over time", "Time lost to registration", "Prediction of the next use",
        "What if: strategies, limits and time budgets", "helper, time budget 4%", "exchange+0x10 (app)",
        "Most of it stays registered after", "<svg", "@media print", "prefers-color-scheme: dark",
        "width=device-width"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  for (const char* foreign : {"<script", "http:", "https:", "url(", "@import", "<link", "<img", "<iframe"})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  EXPECT_EQ(unbalanced(page), "");
  EXPECT_EQ(pinion({"report", "logs", "--html", "/nowhere/page.html"}).status, 2);
}

TEST_F(Report, TextsOfLogsAreNoMarkup) {
  MadeRun made;
  made.command = "./app <script>alert(1)</script> \"a\" & 'b' \xC3\xA9 \xFF";
  made.options = "limit=1G";
  write_run(made, 0, 1);
  ASSERT_EQ(pinion({"report", "logs", "--html", "page.html", "--plot", "plot.svg"}).status, 0);
  for (const char* file : {"page.html", "plot.svg"}) {
    const std::string text = content_of(root() / file);
    EXPECT_EQ(text.find("<script"), std::string::npos) << file;
    EXPECT_NE(text.find("./app &lt;script&gt;alert(1)&lt;/script&gt; &quot;a&quot; &amp; &#39;b&#39; "
                        "\xC3\xA9 ?"),
              std::string::npos)
        << file;
    EXPECT_EQ(unbalanced(text), "") << file;
  }
}

// In the plots of memory and in those of the simulated limits.
TEST_F(Report, AStrategyHasOneColourInAllPlots) {
  for (const int rank : {0, 1}) write_run({}, rank, 2);
  ASSERT_EQ(pinion({"report", "logs", "--html", "page.html"}).status, 0);
  const std::string page = content_of(root() / "page.html");
  static const std::regex key("<path class=\"line c([0-7])[^>]*/><text class=\"key\"[^>]*>([^<,]*)");
  std::map<std::string, std::set<std::string>> colours;
  for (std::sregex_iterator found(page.begin(), page.end(), key), end; found != end; ++found)
    colours[found->str(2)].insert(found->str(1));
  for (const char* strategy : {"helper", "leave-pinned", "oracle"})
    EXPECT_EQ(colours[strategy].size(), 1u) << strategy << ": " << page;
  EXPECT_NE(colours["helper"], colours["leave-pinned"]);
}

TEST_F(Report, APlotNeedsNoPython) {
  for (const int rank : {0, 1}) write_run({}, rank, 2);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const Outcome o = pinion({"report", "logs", "--plot", "plot.svg"});
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(o.status, 0) << o.err;
  const std::string plot = content_of(root() / "plot.svg");
  for (const char* part :
       {"rank 0 on ", "rank 1 on ", "this run, mean", "leave-pinned", "oracle", "MiB registered"})
    EXPECT_NE(plot.find(part), std::string::npos) << part;
  expect_usage_error({"report", "logs", "--plot", "plot.pdf"}, "'plot.pdf' ends in neither .svg nor .png");
}

/// The fault of an event by the trace-event format, which ui.perfetto.dev reads; empty: none.
std::string fault_of(const json& e) {
  const auto is_number = [&](const char* key) { return e.contains(key) && e[key].is_number(); };
  if (!e.contains("ph") || !e.contains("name") || !is_number("pid")) return "no phase, name or process";
  const std::string phase = e["ph"];
  if (phase == "M") {
    const bool is_sorting = e["name"] == "process_sort_index" || e["name"] == "thread_sort_index";
    const char* const argument = is_sorting                      ? "sort_index"
                                 : e["name"] == "process_labels" ? "labels"
                                                                 : "name";
    if (!e.at("args").contains(argument)) return std::string("metadata without ") + argument;
    return e["args"][argument].is_number() == is_sorting ? "" : "metadata of another type";
  }
  if (!is_number("ts") || e["ts"] < 0) return "no time";
  if (phase == "X")
    return is_number("dur") && e["dur"] >= 0 && is_number("tid") ? "" : "no duration or thread";
  if (phase == "b" || phase == "e") return e.contains("id") && e.contains("cat") ? "" : "no id or category";
  if (phase == "i") return e.value("s", "") == "t" && is_number("tid") ? "" : "no scope or thread";
  if (phase != "C") return "unknown phase";
  for (const auto& [name, value] : e.at("args").items())
    if (!value.is_number()) return "a counter that is no number: " + name;
  return "";
}

TEST_F(Report, ATraceHasRanksInOrderCountersAndLateTransfers) {
  MadeRun made;
  made.limit = 1 << 30;
  made.turns = 3;
  made.outcome = runlog::Outcome::wait;
  for (const int rank : {2, 0, 1}) write_run(made, rank, 3);
  const Outcome o = pinion({"report", "logs", "--trace", "trace.json"});
  ASSERT_EQ(o.status, 0) << o.err;
  std::map<int, std::string> names;
  std::map<std::string, int> counters;
  std::map<std::string, double> open;  // spans by category and id: their begin
  int late = 0;
  const json trace = json::parse(content_of(root() / "trace.json"));
  for (const json& e : trace.at("traceEvents")) {
    ASSERT_EQ(fault_of(e), "") << e;
    if (e["name"] == "process_name") names[e["pid"]] = e["args"]["name"];
    if (e["name"] == "late") ++late;
    if (e["ph"] == "C") ++counters[e["name"]];
    if (e["ph"] != "b" && e["ph"] != "e") continue;
    const std::string span = e["cat"].get<std::string>() + e["id"].get<std::string>();
    if (e["ph"] == "b") {
      EXPECT_TRUE(open.emplace(span, e["ts"]).second) << "opened twice: " << e;
      continue;
    }
    ASSERT_TRUE(open.contains(span)) << "ends unopened: " << e;
    EXPECT_LE(open[span], e["ts"]) << e;
    open.erase(span);
  }
  ASSERT_EQ(names.size(), 3u);
  for (const auto& [process, name] : names)
    EXPECT_EQ(name.rfind("rank " + std::to_string(process - 1) + " on ", 0), 0u) << name;
  for (const char* counter : {"registered bytes", "leave-pinned bytes", "oracle bytes", "limit bytes"})
    EXPECT_GT(counters[counter], 0) << counter;
  EXPECT_TRUE(open.empty()) << open.begin()->first;
  EXPECT_EQ(late, 3 * 3 * made.buffers);
}

TEST_F(Report, ARunThatWasOnlyMeasuredHeldNothingItself) {
  MadeRun made;
  made.only_measures();
  write_run(made, 0, 1);
  const std::string text = pinion({"report", "logs", "--html", "page.html"}).out;
  const std::string page = content_of(root() / "page.html");
  EXPECT_EQ(text.find("-100"), std::string::npos) << text;
  EXPECT_EQ(page.find("-100"), std::string::npos);
  EXPECT_EQ(page.find("this run,"), std::string::npos);
  EXPECT_NE(page.find("helper, simulated, mean"), std::string::npos) << "its curve";
  EXPECT_NE(page.find("simulated helper: registered at most (-75\u00a0% against leave-pinned)"),
            std::string::npos);
  const std::string line = pinion({"report", "--all", "logs"}).out;
  EXPECT_EQ(line.find("0 B"), std::string::npos) << line;
  const json run = json::parse(pinion({"report", "--all", "--json", "logs"}).out).at(0);
  EXPECT_EQ(run.at("acts"), "measured");
  EXPECT_TRUE(run.at("registered_peak_bytes").is_null()) << run;
}

TEST_F(Report, MetricsAreInPrometheusFormat) {
  MadeRun made;
  made.command = "./app \"a\\b\"";
  for (const int rank : {0, 1}) write_run(made, rank, 2);
  ASSERT_EQ(pinion({"report", "logs", "--prometheus", "pinion.prom"}).status, 0);
  std::istringstream lines(content_of(root() / "pinion.prom"));
  static const std::regex sample(
      R"re([a-z_]+\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\} -?[0-9.e+-]+)re");
  static const std::regex comment("# (HELP [a-z_]+ .+|TYPE [a-z_]+ (gauge|counter))");
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(std::regex_match(line, line[0] == '#' ? comment : sample)) << line;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second || line[0] == '#') << line;
  }
  const std::string text = content_of(root() / "pinion.prom");
  EXPECT_NE(text.find("pinion_transfers_total{command=\"./app \\\"a\\\\b\\\"\",host="), std::string::npos)
      << text;
  EXPECT_EQ(text.find("process="), std::string::npos) << "a series for each run: " << text;
  // It is renamed into its place.
  for (const auto& entry : fs::directory_iterator(root())) EXPECT_NE(entry.path().extension(), ".new");
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
  const Outcome top = pinion({"top", "logs", "--once"});
  ASSERT_EQ(top.status, 0) << top.err;
  EXPECT_EQ(top.out.find("1.00 GiB"), std::string::npos) << top.out;
}

TEST_F(Report, TopShowsNodesAndRanks) {
  MadeRun made;
  made.limit = 1 << 30;
  for (const int rank : {1, 0}) write_run(made, rank, 2);
  const Outcome o = pinion({"top", "logs", "--once"});
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.out.find("./app: 2 ranks on 1 node, 2.00 s, ended"), std::string::npos) << o.out;
  EXPECT_LT(o.out.find("rank 0"), o.out.find("rank 1"));
  EXPECT_NE(o.out.find("4.00 MiB"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("8.00 MiB"), std::string::npos) << "the node's sum: " << o.out;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;

  expect_usage_error({"top", "absent"}, "absent: No such file or directory");
  expect_usage_error({"top", "logs", "--every", "1"}, "--every: '1' is no time");
  const fs::path log = fs::directory_iterator(root() / "logs")->path();
  fs::resize_file(log, fs::file_size(log) / 2);
  expect_usage_error({"top", "logs"}, "truncated");
}

TEST_F(Report, TopShowsCopiesToAndFromGpusByTheirWays) {
  MadeRun made;
  made.registered_to_gpu = {100, std::uint64_t{2} << 30, 50'000'000};
  made.plain_from_gpu = {7, std::uint64_t{1} << 30, 100'000'000};
  for (const int rank : {0, 1}) write_run(made, rank, 2);
  const std::string shown = pinion({"top", "logs", "--once"}).out;
  EXPECT_NE(shown.find("direction         way  copies     bytes      speed\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("to GPU     registered     200  4.00 GiB  42.9 GB/s\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("from GPU        plain      14  2.00 GiB  10.7 GB/s\n"), std::string::npos) << shown;
  EXPECT_LT(shown.find("from GPU"), shown.find("rank 0")) << "seen where there are many ranks";
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

TEST_F(Report, TopOfARunWithoutAGpuHasNoTableOfCopies) {
  write_run(MadeRun{}, 0, 1);
  EXPECT_EQ(pinion({"top", "logs", "--once"}).out.find("GPU"), std::string::npos);
}

/// `pinion top` in a terminal.
class Terminal {
 public:
  Terminal(const fs::path& command, const fs::path& directory, winsize size) {
    child_ = ::forkpty(&side_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    if (::chdir(directory.c_str()) == 0)
      ::execl(command.c_str(), "pinion", "top", "logs", "--every", "10ms", nullptr);
    ::_exit(98);
  }
  ~Terminal() {
    ::close(side_);
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }
  bool is_there() const { return child_ > 0; }
  void press(char key) { EXPECT_EQ(::write(side_, &key, 1), 1); }
  void resize(winsize size) { ::ioctl(side_, TIOCSWINSZ, &size); }

  /// Reads on until a picture, from its first line to the next picture's, fulfils `is_it`, or the command
  /// ends.
  template <class F>
  bool shows(F&& is_it) {
    const std::string clear = "\033[H\033[J";
    char buffer[4096];
    for (;;) {
      const std::size_t begin = text_.find(clear), end = text_.find(clear, begin + 1);
      if (begin != std::string::npos && end != std::string::npos) {
        const std::string picture = text_.substr(begin + clear.size(), end - begin - clear.size());
        text_.erase(0, end);
        if (is_it(picture)) return true;
        continue;
      }
      const ssize_t got = ::read(side_, buffer, sizeof buffer);
      if (got <= 0) return begin != std::string::npos && is_it(text_.substr(begin + clear.size()));
      text_.append(buffer, static_cast<std::size_t>(got));
    }
  }
  int status() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return status;
  }

 private:
  pid_t child_ = -1;
  int side_ = -1;
  std::string text_;
};

TEST_F(Report, TopFollowsARunAndTheSizeOfItsTerminal) {
  MadeRun made;
  made.command = "./app --with-so-many-words that-no-terminal-of-eighty-columns has-room-for-all";
  runlog::LogWriter writer;
  ASSERT_FALSE(writer.open((root() / "logs").string(), info_of(made, 0, 1), 1 << 16));
  runlog::Counters counters{};
  runlog::Series series;
  series.start(kSecond);
  counters.registered_now_bytes = 3 << 20;
  writer.update(counters, series, 2 * kSecond);

  ::setenv("NO_COLOR", "1", 1);
  Terminal terminal(root() / "bin/pinion", root(), {40, 120, 0, 0});
  ::unsetenv("NO_COLOR");
  if (!terminal.is_there()) GTEST_SKIP() << "no terminal can be made here";
  const auto contains = [](const char* what) {
    return [what](const std::string& picture) { return picture.find(what) != std::string::npos; };
  };
  EXPECT_TRUE(terminal.shows(contains("running")));
  EXPECT_TRUE(terminal.shows(contains("3.00 MiB")));
  counters.registered_now_bytes = 5 << 20;
  writer.update(counters, series, 3 * kSecond);
  EXPECT_TRUE(terminal.shows(contains("5.00 MiB")));

  terminal.resize({24, 80, 0, 0});
  EXPECT_TRUE(terminal.shows([](const std::string& picture) {
    return picture.find("running\r\n") != std::string::npos &&
           picture.find("  budget\r\n") != std::string::npos && picture.find("peak") == std::string::npos;
  }));
  terminal.resize({5, 30, 0, 0});
  EXPECT_TRUE(terminal.shows([](const std::string& picture) {
    std::istringstream lines(picture);
    std::size_t longest = 0, count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      longest = std::max(longest, line.find_last_not_of("\r\n") + 1);
    return longest <= 30 && count <= 4 && picture.find("more") != std::string::npos;
  }));
  writer.finish(counters, series, 4 * kSecond, 0);
  terminal.resize({40, 120, 0, 0});
  EXPECT_TRUE(terminal.shows(contains("ended")));
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(Report, TopHasBarsInColoursAndEndsAtAKey) {
  MadeRun made;
  made.limit = 10 << 20;
  runlog::LogWriter writer;
  ASSERT_FALSE(writer.open((root() / "logs").string(), info_of(made, 0, 1), 1 << 16));
  runlog::Counters counters{};
  runlog::Series series;
  series.start(kSecond);
  counters.registered_now_bytes = 10 << 20;
  writer.update(counters, series, 2 * kSecond);
  Terminal terminal(root() / "bin/pinion", root(), {40, 120, 0, 0});
  if (!terminal.is_there()) GTEST_SKIP() << "no terminal can be made here";
  EXPECT_TRUE(terminal.shows([](const std::string& picture) {
    return picture.find("[\033[31m|||||||||||\033[0m]") != std::string::npos &&
           picture.find("\033[1mnode, rank") != std::string::npos;
  }));
  terminal.press('x');
  terminal.press('q');
  EXPECT_FALSE(terminal.shows([](const std::string&) { return false; }));
  EXPECT_EQ(terminal.status(), 0);
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
    const json report = json::parse(pinion({"report", logs.string(), "--json", "--trace", "trace.json"}).out);
    const std::string source = report.at("call_sites").at(0).at("source");
    for (const json& e : json::parse(content_of(root() / "trace.json")).at("traceEvents"))
      if (e["ph"] == "b") {
        EXPECT_EQ(e["args"]["site"], source);
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
  const std::string text = pinion({"report", "refused", "--html", "page.html"}).out;
  EXPECT_EQ(text.find("-100"), std::string::npos) << text;
  EXPECT_EQ(content_of(root() / "page.html").find("-100"), std::string::npos);
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
  for (const char* pattern :
       {"bt:S:4", "cg:S:4", "ft:S:4", "nested:1M:2", "irregular:1M:2", "no-reuse:1M:2"}) {
    SCOPED_TRACE(pattern);
    const json simulated = json::parse(pinion({"simulate", "--pattern", pattern, "--json"}).out);
    expect_right(simulated.at("verdict"), simulated.at("rows").at(1).at("seconds"), true);
  }
}

}  // namespace

}  // namespace pinion
