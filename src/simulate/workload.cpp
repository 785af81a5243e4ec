#include "simulate/workload.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>

#include "retention/retention_options.h"
#include "runlog/log_timelines.h"

namespace pinion::simulate {

namespace {

/// The time for which registration has held up a thread, up to each moment.
class Delays {
 public:
  /// Added in order of `begin`. Those of one thread follow each other: the ranges of one call, which all
  /// begin with it, are waited for one after the other. The part beyond `end` belongs to another delay, such
  /// as a deregistration for which an acquire waited.
  void add(Time begin, Duration took, Time end) {
    begin = std::max(begin, end_);
    end = std::min(begin + took, end);
    if (end <= begin) return;
    end_ = end;
    sum_ += end - begin;
    delays_.push_back({begin, sum_});
  }
  Duration before(Time time) const {
    const auto after = std::lower_bound(delays_.begin(), delays_.end(), time,
                                        [](const Delay& delay, Time at) { return delay.begin < at; });
    return after == delays_.begin() ? 0 : std::prev(after)->sum;
  }

 private:
  struct Delay {
    Time begin;
    Duration sum;  ///< with all before
  };
  std::vector<Delay> delays_;
  Time end_ = 0;  ///< of the last one
  Duration sum_ = 0;
};

struct Action {
  Time time;  ///< the program's own
  std::size_t order;
  const runlog::Event* event;
  bool release;
  bool operator<(const Action& other) const {
    return time != other.time ? time < other.time : order < other.order;
  }
};

/// Returns when the log's events end.
Time end_of_events(const runlog::Log& log) { return std::min(runlog::covered_until(log), log.last_ns()); }

/// A memory event is one in each of `domains`.
ThreadProgram thread_program(std::vector<Action> actions, const std::set<std::uint8_t>& domains, Time start,
                             Time end) {
  std::sort(actions.begin(), actions.end());
  ThreadProgram program;
  std::map<const runlog::Event*, std::uint32_t> slots;
  std::vector<std::uint32_t> free_slots;
  Time last = start;
  for (const Action& action : actions) {
    const runlog::Event& event = *action.event;
    const Duration gap = std::max<Duration>(0, action.time - last);
    last = std::max(last, action.time);
    Operation operation;
    const Range range{event.address, event.address + event.bytes};
    operation.range = in_domain(range, event.domain);
    if (event.kind == runlog::EventKind::memory_event) {
      operation.kind = Operation::Kind::memory_event;
      operation.compute = gap;
      for (const std::uint8_t domain : domains) {
        operation.range = in_domain(range.to_pages(), domain);
        program.before.push_back(operation);
        operation.compute = 0;
      }
      continue;
    }
    if (action.release) {
      operation.kind = Operation::Kind::release;
      operation.transfer = gap;
      operation.slot = slots.extract(&event).mapped();
      free_slots.push_back(operation.slot);
    } else {
      operation.call = static_cast<CallKind>(event.call);
      operation.access = static_cast<Access>(event.access);
      operation.site = event.site;
      operation.page_order = event.page_order;
      operation.compute = gap;
      if (free_slots.empty()) {
        operation.slot = static_cast<std::uint32_t>(slots.size());
      } else {
        operation.slot = free_slots.back();
        free_slots.pop_back();
      }
      slots[&event] = operation.slot;
    }
    program.before.push_back(operation);
  }
  Operation rest;
  rest.kind = Operation::Kind::pause;
  rest.compute = std::max<Duration>(0, end - last);
  program.after.push_back(rest);
  return program;
}

/// Most leases that runs of uses are replayed as, of one process.
constexpr std::uint64_t kMostOfRuns = 1 << 20;

/// Adds the leases of a run at equal distances, `most` of them where there are more: each lasts as long as
/// the run's did on average, or as several of them together.
void add_leases(const runlog::Event& run, std::uint64_t most, std::deque<runlog::Event>& leases) {
  const std::uint64_t count = std::min<std::uint64_t>(run.count, most);
  const auto lasted = static_cast<std::uint64_t>(run.end_ns - run.begin_ns);
  const std::uint64_t each = std::min(run.leased_ns, lasted) / count;
  const std::uint64_t apart = count > 1 ? (lasted - each) / (count - 1) : 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    runlog::Event& lease = leases.emplace_back(run);
    lease.kind = runlog::EventKind::lease;
    lease.wait_ns = 0;
    lease.count = 0;
    lease.begin_ns = run.begin_ns + static_cast<Time>(i * apart);
    lease.end_ns = lease.begin_ns + static_cast<Time>(each);
  }
}

/// The events that a program is made of, by their begin. `of_runs` keeps leases that stand for runs of uses.
std::vector<const runlog::Event*> events_of(const runlog::Log& log, std::deque<runlog::Event>& of_runs) {
  using runlog::EventKind;
  std::vector<const runlog::Event*> events;
  for (const runlog::Event& event : log.events) {
    const bool here = event.kind == EventKind::deregistration && !(event.flags & runlog::kByHelper);
    const bool lease = event.kind == EventKind::lease && event.bytes > 0;
    if (lease || event.kind == EventKind::memory_event || here) events.push_back(&event);
    if (event.kind == EventKind::uses && event.bytes > 0 && of_runs.size() < kMostOfRuns)
      add_leases(event, kMostOfRuns - of_runs.size(), of_runs);
  }
  for (const runlog::Event& lease : of_runs) events.push_back(&lease);
  std::stable_sort(events.begin(), events.end(),
                   [](const auto* a, const auto* b) { return a->begin_ns < b->begin_ns; });
  return events;
}

std::set<std::uint8_t> domains_of(const std::vector<const runlog::Event*>& events) {
  std::set<std::uint8_t> domains;
  for (const runlog::Event* event : events)
    if (event->kind == runlog::EventKind::lease) domains.insert(event->domain);
  if (domains.empty()) domains.insert(0);
  return domains;
}

}  // namespace

Program program_of(const runlog::Log& log) {
  using runlog::EventKind;
  std::deque<runlog::Event> of_runs;
  const std::vector<const runlog::Event*> events = events_of(log, of_runs);

  // Threads by the log's numbers, from 0 on without gaps.
  std::map<std::uint16_t, std::size_t> numbers;
  std::vector<Delays> delays;
  const auto number_of = [&](const runlog::Event& event) {
    const auto [at, is_new] = numbers.try_emplace(event.thread, delays.size());
    if (is_new) delays.emplace_back();
    return at->second;
  };
  for (const runlog::Event* event : events) {
    if (event->kind == EventKind::memory_event) continue;
    Delays& of = delays[number_of(*event)];
    if (event->kind == EventKind::deregistration) {
      of.add(event->begin_ns, event->end_ns - event->begin_ns, event->end_ns);
      continue;
    }
    const auto wait = static_cast<Duration>(
        std::min(event->wait_ns, static_cast<std::uint64_t>(event->end_ns - event->begin_ns)));
    of.add(event->begin_ns, wait, event->end_ns);
    if (event->outcome == runlog::Outcome::bounced && !(event->flags & runlog::kCharged))
      of.add(event->begin_ns + wait, copy_time(event->bytes, log.header.memcpy_bytes_per_ns), event->end_ns);
  }
  if (delays.empty()) delays.emplace_back();

  std::vector<std::vector<Action>> actions(delays.size());
  std::size_t order = 0, latest = 0;  // memory events count as the latest thread's
  for (const runlog::Event* event : events) {
    if (event->kind == EventKind::deregistration) continue;
    if (event->kind == EventKind::lease) latest = number_of(*event);
    const Delays& of = delays[latest];
    const Time begin = event->begin_ns - of.before(event->begin_ns);
    actions[latest].push_back({begin, order++, event, false});
    // Waits that overlap, which no program has but a log may, would end a transfer before it begins.
    if (event->kind == EventKind::lease)
      actions[latest].push_back(
          {std::max(begin, event->end_ns - of.before(event->end_ns)), order++, event, true});
  }
  const std::set<std::uint8_t> domains = domains_of(events);
  Program program;
  program.domains = std::min<std::size_t>(*domains.rbegin() + 1u, runlog::kMaxDomains);
  const Time end = end_of_events(log);
  for (std::size_t thread = 0; thread < actions.size(); ++thread)
    program.threads.push_back(thread_program(std::move(actions[thread]), domains, log.header.start_ns,
                                             end - delays[thread].before(end)));
  return program;
}

namespace {

/// The simulator has one NIC a process: that of the domain with most registrations.
CostModel fit_of(const runlog::LiveState& live) {
  const auto busiest =
      std::max_element(std::begin(live.domains), std::end(live.domains),
                       [](const auto& a, const auto& b) { return a.registrations < b.registrations; });
  return {"recorded",
          busiest->fit_register_a_ns,
          busiest->fit_register_b_ns,
          busiest->fit_deregister_a_ns,
          busiest->fit_deregister_b_ns,
          {}};
}

Recorded recorded_in(const runlog::Log& log) {
  Recorded recorded;
  recorded.measured = log.header.acts == runlog::Acts::measured;
  recorded.nic = fit_of(log.live);
  recorded.wake_latency = WakeLatency(log.live.counters.lateness);
  for (const runlog::Event& event : log.events) {
    const bool registration = event.kind == runlog::EventKind::registration;
    if (!registration && event.kind != runlog::EventKind::deregistration) continue;
    if (event.flags & runlog::kFailed) continue;
    const std::size_t pages = Range{event.address, event.address + event.bytes}.pages();
    const bool by_helper = (event.flags & runlog::kByHelper) != 0;
    // A helper that loses its core registers late under every strategy that has one. A rank that lost its
    // core in a few calls must not lose it in each of many more, as under on-demand.
    const Duration took = event.end_ns - event.begin_ns;
    const Duration preempted = by_helper ? 0 : std::min(static_cast<Duration>(event.wait_ns), took);
    recorded.call_times.observe(
        by_helper ? Actor::helper : Actor::application, registration, took - preempted,
        registration ? recorded.nic.register_cost(pages) : recorded.nic.deregister_cost(pages));
  }
  return recorded;
}

/// The machine's figures from all logs together.
void learn_machine(const std::vector<runlog::Log>& logs, Workload& workload) {
  double bookkeeping_ns = 0, samples = 0;
  for (const runlog::Log& log : logs) {
    const runlog::Counters& counters = log.live.counters;
    bookkeeping_ns += static_cast<double>(counters.bookkeeping_ns);
    samples += static_cast<double>(counters.bookkeeping_samples);
  }
  if (samples > 0) workload.bookkeeping_ns = bookkeeping_ns / samples;
  const runlog::ProcessHeader& header = logs.front().header;
  workload.contains_helpers = std::string(header.retention) == to_string(RetentionKind::helper) &&
                              header.cores > 0 && std::max(header.local_ranks, 1) >= header.cores;
  if (header.memcpy_bytes_per_ns > 0) workload.memcpy_bytes_per_ns = header.memcpy_bytes_per_ns;
  workload.cores = std::max(0, header.cores);
  workload.limit_bytes = header.limit_bytes;
  workload.options = header.options;
  workload.of_mpi = header.rank >= 0;
}

}  // namespace

Error log_workload(std::vector<runlog::Log> logs, const Tiling& tiling, Workload& workload) {
  for (const runlog::Log& log : logs)
    if (log.header.page_bytes != page_size())
      return Error::make(EINVAL, "%.200s: recorded with pages of %u bytes, this machine's have %zu",
                         log.path.c_str(), log.header.page_bytes, page_size());
  std::stable_sort(logs.begin(), logs.end(),
                   [](const auto& a, const auto& b) { return a.header.rank < b.header.rank; });
  const auto recorded = static_cast<int>(logs.size());
  const int ranks = tiling.ranks ? tiling.ranks : recorded;

  std::map<std::string, std::pair<int, Time>> hosts;  // number, and when its first rank began
  for (const runlog::Log& log : logs) {
    const auto number = static_cast<int>(hosts.size());
    const auto at = hosts.try_emplace(log.header.host, number, log.header.start_ns).first;
    at->second.second = std::min(at->second.second, log.header.start_ns);
    workload.programs.push_back(program_of(log));
    workload.recorded.push_back(recorded_in(log));
    if (!log.all_events())
      workload.covers_seconds = std::max(
          workload.covers_seconds, static_cast<double>(end_of_events(log) - log.header.start_ns) * 1e-9);
  }
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) {
    const runlog::ProcessHeader& header = logs[static_cast<std::size_t>(rank % recorded)].header;
    const int copy = rank / recorded;
    const auto& [host, began] = hosts.at(header.host);
    node_of.push_back(host + copy * static_cast<int>(hosts.size()));
    workload.ranks.push_back(
        {static_cast<std::uint32_t>(rank % recorded), header.start_ns - began + copy * tiling.skew});
  }
  workload.placement = Placement(std::move(node_of));
  if (tiling.ppn)
    if (Error error = Placement::make(ranks, tiling.ppn, tiling.placement, workload.placement)) return error;

  learn_machine(logs, workload);
  return {};
}

}  // namespace pinion::simulate
