// `pinion bench`: runs a bench by name and prints its rows.
#include "bench/bench.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/range.h"
#include "base/units.h"
#include "bench/metrics.h"
#include "bench/quiet_session.h"
#include "bench/wire.h"
#include "cli/command.h"
#include "cli/error_line.h"
#include "cli/parser.h"
#include "cli/report/report_json.h"
#include "cli/system_files.h"
#include "cli/text.h"

namespace pinion::cli {

namespace {

struct Registered {
  const char* name;
  const char* text;
  void (*run)(Bench&);
  unsigned takes, rounds;
};

// Filled by static objects of other files, so it must be a local static.
std::vector<Registered>& registered_benches() {
  static std::vector<Registered> list;
  return list;
}

Json machine() {
  utsname system{};
  ::uname(&system);
  const std::string processor = field_of("/proc/cpuinfo", "model name");
  return {{"processor", processor.empty() ? system.machine : processor},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size()},
          {"page_bytes", page_size()},
          {"transparent_hugepages", chosen_word(read_text("/sys/kernel/mm/transparent_hugepage/enabled"))},
          {"kernel", system.release},
          {"ticks_per_second", 1e9 / calibration().ns_per_tick}};
}

std::string machine_text(const Json& m) {
  return fmt::format("{}, {} cores, kernel {}, pages of {} bytes, transparent hugepages {}",
                     m["processor"].get<std::string>(), m["cores"].get<unsigned>(),
                     m["kernel"].get<std::string>(), m["page_bytes"].get<std::size_t>(),
                     m["transparent_hugepages"].get<std::string>());
}

std::string figure_text(double value, const std::string& unit) {
  if (unit == "bytes") return bytes_text(value);
  return fmt::format("{:.{}f}", value, value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3);
}

/// The case's first subject, mostly `pinion`, beside which the others stand.
const BenchRow& first_of_case(const Bench& bench, const BenchRow& row) {
  return *std::find_if(bench.rows().begin(), bench.rows().end(), [&](const BenchRow& other) {
    return other.name == row.name && other.metric == row.metric && other.provider == row.provider;
  });
}

std::string ratio_text(const Bench& bench, const BenchRow& row) {
  const BenchRow& first = first_of_case(bench, row);
  return &first == &row || first.value == 0 ? "" : fmt::format("{:.2f} x", row.value / first.value);
}

/// Rows that share metric, unit and provider: one table, so that no column repeats what its heading has.
using Group = std::vector<const BenchRow*>;

std::vector<Group> groups_of(const Bench& bench) {
  std::vector<Group> groups;
  for (const BenchRow& row : bench.rows()) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& known) {
      const BenchRow& first = *known.front();
      return first.metric == row.metric && first.unit == row.unit && first.provider == row.provider;
    });
    if (group == groups.end()) group = groups.emplace(groups.end());
    group->push_back(&row);
  }
  return groups;
}

std::string heading_of(const Group& group) {
  const BenchRow& row = *group.front();
  std::string text = row.metric == row.unit ? row.unit : fmt::format("{}, {}", row.metric, row.unit);
  if (!row.provider.empty()) text += fmt::format(", provider {}", row.provider);
  const std::string meaning = meaning_of(row.metric);
  return meaning.empty() ? text + ":" : fmt::format("{}: {}", text, meaning);
}

void print_table(const std::string& bench_text, const Bench& bench, const Json& m) {
  fmt::print("{}{}", wrapped(bench_text, ""), wrapped(machine_text(m), ""));
  for (const Group& group : groups_of(bench)) {
    fmt::print("\n{}", wrapped(heading_of(group), ""));
    Table table({"case", "subject", "median", "95 % of it", "beside the first"});
    for (const BenchRow* row : group) {
      table.add({row->name, row->subject, figure_text(row->value, row->unit),
                 fmt::format("{} to {}", figure_text(row->low, row->unit), figure_text(row->high, row->unit)),
                 ratio_text(bench, *row)});
    }
    fmt::print("{}", table.text());
  }
  fmt::print("\n");
  for (const std::string& note : bench.notes()) fmt::print("{}", wrapped(note, ""));
}

void print_json(const std::string& name, const Bench& bench, const Json& m) {
  Json rows = Json::array();
  for (const BenchRow& row : bench.rows()) {
    rows.push_back({{"case", row.name},
                    {"subject", row.subject},
                    {"metric", row.metric},
                    {"unit", row.unit},
                    {"value", row.value},
                    {"min", row.least},
                    {"max", row.most},
                    {"low", row.low},
                    {"high", row.high},
                    {"samples", row.samples}});
    if (!row.provider.empty()) rows.back()["provider"] = row.provider;
  }
  fmt::print("{}", dump({{"schema", "pinion-bench-1"},
                         {"bench", name},
                         {"machine", m},
                         {"rows", std::move(rows)},
                         {"notes", bench.notes()}}));
}

}  // namespace

BenchRegistration::BenchRegistration(const char* name, const char* text, void (*run)(Bench&), unsigned takes,
                                     unsigned rounds) {
  registered_benches().push_back({name, text, run, takes, rounds});
}

std::vector<std::pair<std::string, std::string>> bench_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Registered& bench : registered_benches()) names.emplace_back(bench.name, bench.text);
  std::sort(names.begin(), names.end());
  return names;
}

std::string size_name(std::size_t bytes) {
  if (bytes >> 30) return fmt::format("{}G", bytes >> 30);
  return bytes >> 20 ? fmt::format("{}M", bytes >> 20) : fmt::format("{}K", bytes >> 10);
}

void Bench::compare(const std::string& name, const std::string& metric, const std::string& unit,
                    const std::vector<BenchSubject>& subjects) {
  std::vector<std::vector<double>> samples(subjects.size());
  const auto measure = [&](const BenchSubject& subject, unsigned round) {
    step(fmt::format("{}, round {} of {}: {}", name, round, rounds(), subject.name));
    return subject.measure();
  };
  for (const BenchSubject& subject : subjects) measure(subject, 0);
  for (unsigned round = 1; round <= rounds(); ++round)
    for (std::size_t i = 0; i < subjects.size(); ++i) samples[i].push_back(measure(subjects[i], round));
  for (std::size_t i = 0; i < subjects.size(); ++i)
    add(name, subjects[i].name, metric, unit, std::move(samples[i]));
}

void Bench::add(const std::string& name, const std::string& subject, const std::string& metric,
                const std::string& unit, std::vector<double> samples) {
  if (samples.empty()) return;
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  // Order statistics; with few samples the interval has all of them.
  const double half = 0.98 * std::sqrt(static_cast<double>(n));
  const double middle = static_cast<double>(n - 1) / 2;
  const auto low = static_cast<std::size_t>(std::max(0.0, std::floor(middle - half)));
  const auto high = std::min(n - 1, static_cast<std::size_t>(std::ceil(middle + half)));
  rows_.push_back({name, provider_, subject, metric, unit, (samples[(n - 1) / 2] + samples[n / 2]) / 2,
                   samples.front(), samples.back(), samples[low], samples[high], n});
}

namespace {

struct Arguments {
  std::string name;
  BenchOptions options;
  std::string wire;
  std::vector<std::string> sizes;
  std::string pause;
  std::string plot;
  bool json = false;
};

void check(const Registered& bench, const BenchOptions& options) {
  const auto only = [&](bool given, unsigned takes, const char* option) {
    if (given && (bench.takes & takes) == 0)
      throw UsageError(fmt::format("bench {} has no {}", bench.name, option));
  };
  only(!options.device.empty(), kTakesDevice, "--device");
  only(!options.provider.empty() || options.wire_bytes_per_second > 0, kTakesNetwork, "--provider or --wire");
  only(options.full, kTakesNetwork | kTakesFull, "--full");
  only(!options.sizes.empty(), kTakesSizes, "--size");
  only(options.pause > 0, kTakesPause, "--pause");
}

std::vector<std::size_t> sizes_of(const std::vector<std::string>& texts) {
  std::vector<std::size_t> sizes;
  for (const std::string& text : texts) {
    const auto bytes = parse_size(text);
    // Cases are named by whole units.
    if (!bytes || *bytes < 1024 || parse_size(size_name(*bytes)) != bytes)
      throw UsageError(
          fmt::format("--size: '{}' is no size in whole KiB, MiB or GiB, such as 17K or 4M", text));
    sizes.push_back(*bytes);
  }
  return sizes;
}

Duration pause_of(const std::string& text) {
  const auto pause = parse_duration(text);
  if (!pause || *pause <= 0) throw UsageError(fmt::format("--pause: '{}' is no time, such as 100ms", text));
  return *pause;
}

void run(const Arguments& arguments, const std::string& names) {
  for (const Registered& bench : registered_benches()) {
    if (arguments.name != bench.name) continue;
    BenchOptions options = arguments.options;
    if (options.rounds == 0) options.rounds = bench.rounds;
    if (!arguments.wire.empty()) options.wire_bytes_per_second = parse_wire(arguments.wire);
    options.sizes = sizes_of(arguments.sizes);
    if (!arguments.pause.empty()) options.pause = pause_of(arguments.pause);
    check(bench, options);
    if (!arguments.plot.empty())
      print_error_line("--plot draws nothing any more: --json has the rows, for pandas and matplotlib");
    const std::string quiet = enter_quiet_session();
    Bench result(bench.name, options);
    bench.run(result);
    result.end_steps();
    result.note(quiet);
    const Json m = machine();
    if (arguments.json) {
      print_json(bench.name, result, m);
    } else {
      const std::string wire =
          options.wire_bytes_per_second > 0 ? ", over an " + wire_name(options.wire_bytes_per_second) : "";
      print_table(fmt::format("{}: {}{}", bench.name, bench.text, wire), result, m);
    }
    return;
  }
  throw UsageError(arguments.name.empty()
                       ? fmt::format("no bench given; valid: {}", names)
                       : fmt::format("unknown bench '{}'; valid: {}", arguments.name, names));
}

}  // namespace

void add_benches(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("bench", kBenchText);
  auto arguments = std::make_shared<Arguments>();
  std::string names, footer = "Benches:";
  for (const auto& [name, text] : bench_names()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    footer += fmt::format("\n  {:<14}{}", name, text);
  }
  sub->footer(footer);
  sub->add_option("name", arguments->name, "one of: " + names)->type_name("NAME");
  sub->add_option("--rounds", arguments->options.rounds,
                  "interleaved rounds, of which the median is taken [as many as take a minute at most]")
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  sub->add_option("--device", arguments->options.device,
                  "bench registration: the device to be measured (pin, verbs, verbs:NAME[:PORT], fabric, "
                  "fabric:PROVIDER)")
      ->type_name("NAME");
  CLI::Option* const provider =
      sub->add_option("--provider", arguments->options.provider,
                      "bench transfers, firehose, gather: the provider of libfabric (shm, tcp, verbs, ...)")
          ->type_name("NAME");
  sub->add_option(
         "--wire", arguments->wire,
         "bench transfers: an emulated wire of this bandwidth (1.5GB/s), and a NIC's registration times")
      ->type_name("BANDWIDTH")
      ->excludes(provider);
  sub->add_flag("--full", arguments->options.full,
                "bench acquire, transfers, firehose, gather: all sizes, counts and providers")
      ->disable_flag_override();
  add_list(*sub, "--size", arguments->sizes, "bench transfers, prepare, prereg: these sizes (17K,4M)");
  sub->add_option("--pause", arguments->pause,
                  "bench transfers: messages one at a time, and as long a pause after each")
      ->type_name("TIME");
  sub->add_option("--plot", arguments->plot)->group("");  // accepted for one version
  sub->add_flag("--json", arguments->json, "one JSON object instead of a table")->disable_flag_override();
  sub->callback([arguments, names] { run(*arguments, names); });
}

}  // namespace pinion::cli
