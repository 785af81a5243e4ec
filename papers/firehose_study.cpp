// `papers firehose`: static shares against lending; the paper's working sets. evidence-simulated.md explains
// the tables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "cli/report/report_json.h"
#include "cli/text.h"
#include "device/model/cost_model.h"
#include "papers/firehose_job.h"
#include "papers/papers.h"

namespace pinion::cli {

namespace {

using firehose::Sharing;
using simulate::FirehoseJob;
using simulate::FirehosePattern;
using simulate::FirehoseResult;

struct Row {
  std::string part, pattern, strategy;
  FirehoseJob job;
  FirehoseResult result;
};

CostModel nic(const char* name) { return load_cost_model(name).model; }

/// As Quota::move_time.
Duration move_time(const FirehoseJob& job) {
  const std::size_t pages = job.bucket / page_size();
  return job.nic.register_cost(pages) + job.nic.deregister_cost(pages);
}

const char* text(FirehosePattern pattern) {
  switch (pattern) {
    case FirehosePattern::uniform:
      return "uniform";
    case FirehosePattern::skewed:
      return "skewed";
    case FirehosePattern::neighbours:
      return "neighbours";
    case FirehosePattern::periodic:
      return "periodic";
    case FirehosePattern::strided:
      return "strided";
  }
  return "";
}

/// A row of static shares or of lending, as the job's quota says, with a ConnectX.
Row row_of(const char* part, FirehoseJob job) {
  const bool lends = job.quota.sharing == Sharing::lending;
  job.rides = lends;  // not in the paper
  job.nic = nic("connectx");
  job.quota.move_time = move_time(job);
  return {part, text(job.pattern), lends ? "lending" : "static", job, simulate_firehose(job)};
}

/// Static shares against lending, from 2 nodes to 10,000, at a fixed M.
std::vector<Row> scaling() {
  std::vector<Row> rows;
  for (const auto pattern :
       {FirehosePattern::uniform, FirehosePattern::skewed, FirehosePattern::neighbours}) {
    for (const firehose::Peer nodes : {2u, 16u, 128u, 1'024u, 10'000u}) {
      for (const auto sharing : {Sharing::static_share, Sharing::lending}) {
        FirehoseJob job;
        job.quota = {sharing, 1'024, 64, nodes};
        job.pattern = pattern;
        job.puts = 400'000;
        rows.push_back(row_of("scaling", job));
      }
    }
  }
  return rows;
}

/// Working sets larger than M: which firehoses stay.
std::vector<Row> beyond_memory() {
  struct Set {
    FirehosePattern pattern;
    firehose::Peer nodes;
    std::uint64_t buckets;  ///< of a peer
  };
  constexpr Set kSets[] = {{FirehosePattern::skewed, 2, 2'048},   {FirehosePattern::skewed, 7, 512},
                           {FirehosePattern::neighbours, 7, 256}, {FirehosePattern::neighbours, 7, 512},
                           {FirehosePattern::periodic, 7, 256},   {FirehosePattern::periodic, 7, 512}};
  std::vector<Row> rows;
  for (const Set& set : kSets) {
    FirehoseJob job;
    job.quota = {Sharing::static_share, 1'024, 64, set.nodes};
    job.pattern = set.pattern;
    job.working_set = set.buckets;
    job.puts = 400'000;
    job.nic = nic("connectx");
    const auto add = [&](const char* strategy, const FirehoseResult& result) {
      rows.push_back({"beyond-memory", text(set.pattern), strategy, job, result});
    };
    add("fifo", simulate_fifo(job));
    job.rides = false;
    add("static", simulate_firehose(job));
    job.rides = true;
    job.quota.sharing = Sharing::lending;
    job.quota.move_time = move_time(job);
    add("lending", simulate_firehose(job));
  }
  return rows;
}

/// The same memory, M and MAXVICTIM together, divided in several ways: an adaptive MAXVICTIM could choose the
/// best of a pattern's.
std::vector<Row> victims() {
  constexpr std::uint64_t kTogether = 1'088;
  std::vector<Row> rows;
  for (const auto pattern : {FirehosePattern::skewed, FirehosePattern::neighbours, FirehosePattern::periodic})
    for (const auto sharing : {Sharing::static_share, Sharing::lending})
      for (const std::uint64_t most : {0u, 64u, 256u, 512u}) {
        FirehoseJob job;
        job.quota = {sharing, kTogether - most, most, 7};
        job.pattern = pattern;
        job.working_set = 256;
        job.puts = 200'000;
        rows.push_back(row_of("victims", job));
      }
  return rows;
}

/// The paper's machine: Myrinet, two nodes, 4 KiB buckets; 8-byte puts over a growing working set. Its put
/// takes 14 us, and its handshake 20 us more.
std::vector<Row> working_sets() {
  std::vector<Row> rows;
  for (const std::uint64_t megabytes : {100, 400, 450, 500, 800}) {
    FirehoseJob job;
    job.bucket = 4'096;
    job.quota = {Sharing::static_share, 400 << 8, 25 << 8, 2};
    job.working_set = megabytes << 8;
    job.put = 14 * kMicrosecond;
    job.message = 10 * kMicrosecond;
    job.puts = 8 * job.working_set;
    job.nic = nic("myrinet");
    const auto add = [&](const char* strategy, const FirehoseResult& result) {
      rows.push_back({"working-set", "uniform", strategy, job, result});
    };
    job.rides = false;
    add("static", simulate_firehose(job));
    job.rides = true;
    add("rendezvous", simulate_rendezvous(job, false));
    add("rendezvous-unpin", simulate_rendezvous(job, true));
    job.quota.sharing = Sharing::lending;
    job.quota.move_time = move_time(job);
    add("lending", simulate_firehose(job));
  }
  return rows;
}

double bytes(const Row& row, double buckets) { return buckets * static_cast<double>(row.job.bucket); }

double refused_share(const FirehoseResult& r) {
  return r.puts ? static_cast<double>(r.refused) / static_cast<double>(r.puts) : 0;
}

/// Returns the part of the buckets wanted and granted that the victims' queue had.
double victim_share(const FirehoseResult& r) {
  const std::uint64_t granted = r.victim_hits + r.shared_hits + r.pins;
  return granted ? static_cast<double>(r.victim_hits) / static_cast<double>(granted) : 0;
}

std::string scaling_text(const std::vector<Row>& rows) {
  Table table({"pattern", "nodes", "F", "share", "hits", "most possible", "by message", "us a put",
               "pinned peak / mean", "pins"});
  for (const Row& row : rows) {
    const FirehoseResult& r = row.result;
    table.add({row.pattern, count_text(row.job.quota.processes), count_text(row.job.quota.static_firehoses()),
               row.strategy, percent_text(r.hit_rate()), percent_text(r.most_hits()),
               percent_text(refused_share(r)), fmt::format("{:.1f}", r.latency_us()),
               pair_text(bytes(row, static_cast<double>(r.peak)), bytes(row, r.mean)), count_text(r.pins)});
  }
  return table.text();
}

std::string beyond_memory_text(const std::vector<Row>& rows) {
  Table table({"pattern", "nodes", "a peer's set", "strategy", "hits", "us a put", "pins", "unpins"});
  for (const Row& row : rows) {
    const FirehoseResult& r = row.result;
    const bool timed = r.hit_time + r.miss_time > 0;
    table.add({row.pattern, count_text(row.job.quota.processes),
               bytes_text(bytes(row, static_cast<double>(row.job.working_set))), row.strategy,
               percent_text(r.hit_rate()), timed ? fmt::format("{:.1f}", r.latency_us()) : "-",
               timed ? count_text(r.pins) : "-", timed ? count_text(r.unpins) : "-"});
  }
  return table.text();
}

std::string working_set_text(const std::vector<Row>& rows) {
  Table table({"working set", "strategy", "hits", "by message", "us a hit", "us a miss", "us a put",
               "pinned peak", "unpins"});
  for (const Row& row : rows) {
    const FirehoseResult& r = row.result;
    table.add({bytes_text(bytes(row, static_cast<double>(row.job.working_set))), row.strategy,
               percent_text(r.hit_rate()), percent_text(refused_share(r)),
               r.hits ? fmt::format("{:.1f}", r.hit_us()) : "-",
               r.hits < r.puts ? fmt::format("{:.1f}", r.miss_us()) : "-",
               fmt::format("{:.1f}", r.latency_us()), bytes_text(bytes(row, static_cast<double>(r.peak))),
               count_text(r.unpins)});
  }
  return table.text();
}

std::string victims_text(const std::vector<Row>& rows) {
  Table table(
      {"pattern", "strategy", "MAXVICTIM", "hits", "misses in the FIFO", "us a put", "pins", "unpins"});
  for (const Row& row : rows) {
    const FirehoseResult& r = row.result;
    table.add({row.pattern, row.strategy, bytes_text(bytes(row, static_cast<double>(row.job.quota.victims))),
               percent_text(r.hit_rate()), percent_text(victim_share(r)),
               fmt::format("{:.1f}", r.latency_us()), count_text(r.pins), count_text(r.unpins)});
  }
  return table.text();
}

Json row_json(const Row& row) {
  const FirehoseResult& r = row.result;
  return {{"part", row.part},
          {"pattern", row.pattern},
          {"strategy", row.strategy},
          {"nodes", row.job.quota.processes},
          {"nic", row.job.nic.name},
          {"bucket_bytes", row.job.bucket},
          {"memory_bytes", row.job.quota.buckets * row.job.bucket},
          {"victim_bytes", row.job.quota.victims * row.job.bucket},
          {"working_set_bytes", row.job.working_set * row.job.bucket},
          {"static_firehoses", row.job.quota.static_firehoses()},
          {"puts", r.puts},
          {"hit_rate", r.hit_rate()},
          {"most_hits", r.most_hits()},
          {"by_message", r.refused},
          {"put_us", r.latency_us()},
          {"hit_us", r.hit_us()},
          {"miss_us", r.miss_us()},
          {"pins", r.pins},
          {"unpins", r.unpins},
          {"victim_hits", r.victim_hits},
          {"messages", r.messages},
          {"registered_bytes",
           {{"peak", bytes(row, static_cast<double>(r.peak))}, {"mean", bytes(row, r.mean)}}}};
}

void print_firehose_study(bool json) {
  Progress progress("papers firehose");
  progress.step("static shares against lending");
  const std::vector<Row> nodes = scaling();
  progress.step("beyond M");
  const std::vector<Row> beyond = beyond_memory();
  progress.step("MAXVICTIM");
  const std::vector<Row> split = victims();
  progress.step("the paper's working sets");
  const std::vector<Row> sets = working_sets();
  progress.clear();
  if (json) {
    Json list = Json::array();
    for (const auto* rows : {&nodes, &beyond, &split, &sets})
      for (const Row& row : *rows) list.push_back(row_json(row));
    fmt::print("{}", dump({{"schema", "pinion-simulate-firehose-1"}, {"rows", std::move(list)}}));
    return;
  }
  fmt::print(
      "Static shares against lending: M 64 MiB, MAXVICTIM 4 MiB, buckets of 64 KiB, NIC connectx\n{}\n"
      "Beyond M, on the same machine (fifo: hits alone)\n{}\n"
      "M and MAXVICTIM, 68 MiB together, for seven nodes with sets of 16 MiB\n{}\n"
      "The paper's machine: 2 nodes, Myrinet, M 400 MiB, MAXVICTIM 25 MiB, buckets of 4 KiB\n{}"
      "Simulated: times come from the NIC's cost model and the network's assumed times. Hits, and times a "
      "put,\nare of the second half of the puts. Registered bytes are of one process.\n",
      scaling_text(nodes), beyond_memory_text(beyond), victims_text(split), working_set_text(sets));
}

}  // namespace

void add_firehose_study(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("firehose", "Simulate firehose: static shares against lending");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "one JSON object instead of tables")->disable_flag_override();
  sub->callback([json] { print_firehose_study(*json); });
}

}  // namespace pinion::cli
