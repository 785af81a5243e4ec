// gas CLIENT: a program over libpinion-firehose, whose processes put to, and get from, each other's memory.
// Prints `CLIENT: verified` when its own check holds everywhere, else `CLIENT: FAILED` with status 1. Bad
// arguments give one line and status 2.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "clients.h"
#include "launch.h"

namespace {

using namespace gas;

struct Options {
  JobOptions job;
  unsigned processes = 0;
  bool figures = false;
  CannonOptions cannon;
  BitonicOptions bitonic;
  RandomPutOptions random_put;
  HashTableOptions hash_table;
  ExchangeOptions exchange;
};

void print_figures(const std::map<std::string, double>& figures, const std::vector<RandomPutSet>& sets) {
  for (const auto& [name, value] : figures) std::printf("%s %.9g\n", name.c_str(), value);
  for (const RandomPutSet& set : sets) {
    std::printf("set-%zu.latency_us %.9g\n", set.bytes, set.latency_us);
    std::printf("set-%zu.p99_us %.9g\n", set.bytes, set.p99_us);
    std::printf("set-%zu.hit_rate %.9g\n", set.bytes, set.hit_rate);
  }
}

void print_summary(const std::string& client, unsigned processes, std::map<std::string, double>& figures,
                   const std::vector<RandomPutSet>& sets) {
  std::printf(
      "%s: %u processes, %.3f s: %.0f puts, %.0f gets, %.0f atomics; %.0f hits, %.0f misses to %.0f "
      "buckets, %.0f by message; %.0f bytes exposed at most\n",
      client.c_str(), processes, figures["seconds"], figures["puts"], figures["gets"], figures["atomics"],
      figures["hits"], figures["misses"], figures["distinct_buckets"], figures["messaged"],
      figures["pinned_bytes"]);
  for (const RandomPutSet& set : sets)
    std::printf("%s: %zu bytes: %.2f us a put, 99 %% within %.2f us, %.2f %% hits\n", client.c_str(),
                set.bytes, set.latency_us, set.p99_us, 100 * set.hit_rate);
}

int run(const std::string& client, const Options& options, const Place& place) {
  try {
    Job job(options.job, place);
    std::vector<RandomPutSet> sets;
    bool right = false;
    if (client == "cannon") right = cannon(job, options.cannon);
    if (client == "bitonic") right = bitonic(job, options.bitonic);
    if (client == "random-put") right = random_put(job, options.random_put, sets);
    if (client == "hash-table") right = hash_table(job, options.hash_table);
    if (client == "exchange") right = exchange(job, options.exchange);
    auto figures = job.figures();
    job.close();
    if (place.process == 0) {
      if (options.figures)
        print_figures(figures, sets);
      else
        print_summary(client, place.processes, figures, sets);
      std::printf("%s: %s\n", client.c_str(), right ? "verified" : "FAILED");
    }
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: process %u: %s\n", client.c_str(), place.process, error.what());
    return 1;
  }
}

template <class T>
void add_size(CLI::App& app, const std::string& flag, T& bytes, std::size_t least, const std::string& text) {
  app.add_option(flag, bytes, text)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(least, std::size_t{1} << 40))
      ->type_name("SIZE");
}

CLI::App* add_client(CLI::App& app, Options& options, const std::string& name, const std::string& text) {
  CLI::App* const client = app.add_subcommand(name, text);
  JobOptions& job = options.job;
  client->add_option("--processes", options.processes, "fork so many instead of using the launcher's")
      ->check(CLI::Range(1, 1024));
  client->add_option("--provider", job.provider, "of libfabric (shm, tcp, sockets, verbs, ...)");
  client->add_option("--strategy", job.strategy,
                     "firehose, pin-everything, rendezvous, rendezvous-unpin, bounce [firehose]");
  client->add_option("--sharing", job.sharing,
                     "firehoses of a peer: lending, or the paper's static [lending]");
  client->add_option("--rides", job.rides, "small data travels with its miss: on, or the paper's off [on]");
  add_size(*client, "--memory", job.memory, 1, "M: bytes of a process that peers may keep registered");
  add_size(*client, "--victims", job.victims, 1, "MAXVICTIM: bytes beside it, registered and unused");
  add_size(*client, "--bucket", job.bucket, 1, "bytes of a bucket, a power of two");
  client->add_flag("--all-memory", job.all_memory, "expose the whole address space, not the heap alone");
  client->add_flag("--hugepages", job.hugepages, "the heap lies in hugepages");
  client->add_option("--window", job.window, "puts under way at a time [1]")->check(CLI::Range(1, 256));
  client->add_flag("--figures", options.figures, "one figure a line");
  return client;
}

void add_clients(CLI::App& app, Options& options) {
  const auto count = CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40);
  CLI::App* client = add_client(app, options, "cannon", "multiplies matrices by Cannon's algorithm");
  client->add_option("--puts", options.cannon.puts, "of all processes, at least")->check(count);
  client->add_option("--block", options.cannon.block, "rows of a process's block")
      ->check(CLI::Range(1, 8192));
  add_size(*client, "--piece", options.cannon.piece, 8, "bytes of a put");
  client = add_client(app, options, "bitonic", "sorts keys by Batcher's bitonic sort");
  client->add_option("--puts", options.bitonic.puts, "of all processes, at least")->check(count);
  client->add_option("--keys", options.bitonic.keys, "of a process")->check(CLI::Range(1, 1 << 27));
  add_size(*client, "--piece", options.bitonic.piece, 8, "bytes of a put");
  client = add_client(app, options, "random-put", "puts words to random places of a growing set");
  client->add_option("--puts", options.random_put.puts, "of all processes, at least, for each set")
      ->check(count);
  add_size(*client, "--sets", options.random_put.sets, 8192, "bytes of each process that are put to");
  client->add_flag("--scattered", options.job.scattered, "a window's puts to one process are one call");
  client->add_flag("--one-way", options.random_put.one_way, "process 0 alone puts, the others sleep");
  client = add_client(app, options, "hash-table", "a distributed hash table");
  client->add_option("--keys", options.hash_table.keys, "that each process inserts")
      ->check(CLI::Range(1, 1 << 24));
  client = add_client(app, options, "exchange", "all-to-all by puts and by gets");
  add_size(*client, "--piece", options.exchange.piece, 8, "bytes for each peer");
  client->add_option("--rounds", options.exchange.rounds, "by puts and by gets in turn")->check(count);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Clients of libpinion-firehose.", "gas");
  app.require_subcommand(1);
  add_clients(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "gas: %s\n", error.what());
    return 2;
  }
  const std::string client = app.get_subcommands().front()->get_name();
  try {
    return launch(options.processes, [&](const Place& place) { return run(client, options, place); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gas: %s\n", error.what());
    return 1;
  }
}
