// Hand-computed figures for hand-made runs.
#include "runlog/analysis.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/call_kind.h"
#include "support/runlog_files.h"

namespace pinion::runlog {
namespace {

constexpr std::uint64_t kPage = 4096;

Log make_log(Time start, Time last, std::vector<Event> events, int rank = 0, const char* host = "node") {
  Log log{};
  std::strcpy(log.header.host, host);
  std::strcpy(log.header.retention, "helper");
  log.header.rank = rank;
  log.header.page_bytes = kPage;
  log.header.cores = 8;
  log.header.local_ranks = 2;
  log.header.start_ns = start;
  log.live.last_ns = last;
  log.live.complete = 1;
  log.live.series_bin_ns = 100;
  log.events = std::move(events);
  return log;
}

Event registration(Time begin, Time end, std::uint64_t page, std::uint64_t pages) {
  return event(EventKind::registration, begin, end, page * kPage, pages * kPage);
}
Event deregistration(Time begin, Time end, std::uint64_t page, std::uint64_t pages) {
  return event(EventKind::deregistration, begin, end, page * kPage, pages * kPage);
}
Event unmapped(Time time, std::uint64_t page, std::uint64_t pages) {
  return event(EventKind::memory_event, time, time, page * kPage, pages * kPage);
}
Event use(Time begin, Time end, std::uint64_t page, std::uint64_t pages) {
  return lease(begin, end, page * kPage, pages * kPage);
}

TEST(Timeline, RequestsInHugepagesCountAsWholeOnes) {
  Event first = use(100, 200, 1, 2), second = use(150, 300, 5, 1), ordinary = use(400, 500, 1000, 1);
  first.page_order = second.page_order = 9;
  const Log log = make_log(0, 1000, {registration(90, 95, 0, 512), first, second, ordinary});
  const Timeline oracle = oracle_timeline(log), pinned = leave_pinned_timeline(log);
  EXPECT_EQ(oracle.peak(), 512 * kPage) << "both are of one hugepage";
  EXPECT_EQ(oracle.byte_ns(), 200.0 * 512 * kPage + 100.0 * kPage);
  EXPECT_EQ(pinned.peak(), 513 * kPage);
}

TEST(Timeline, ChangesMayComeInAnyOrder) {
  Timeline line, other;
  line.change(30, 70);
  line.change(10, 100);
  line.change(30, -100);  // at the same instant, before the gain
  line.change(20, 50);
  line.change(25, 0);
  other.change(15, 1000);
  other.change(20, -1000);
  const auto levels = [](const Timeline& t) {
    std::vector<std::pair<Time, std::uint64_t>> list;
    for (const auto& level : t.levels()) list.emplace_back(level.time, level.bytes);
    return list;
  };
  using Levels = std::vector<std::pair<Time, std::uint64_t>>;
  EXPECT_EQ(levels(line), (Levels{{10, 100}, {20, 150}, {30, 120}}));
  EXPECT_EQ(line.peak(), 150u);
  EXPECT_EQ(levels(line.clipped(15, 30)), (Levels{{15, 100}, {20, 150}, {30, 0}}));
  EXPECT_DOUBLE_EQ(line.clipped(15, 30).byte_ns(), 100 * 5 + 150 * 10);
  line.add(other);
  EXPECT_EQ(levels(line), (Levels{{10, 100}, {15, 1100}, {20, 150}, {30, 120}}));
  EXPECT_EQ(line.peak(), 1100u);
}

TEST(Analysis, RegisteredBytesAreAUnionFromCallToReturn) {
  const Report r = analyse({make_log(1000, 2000,
                                     {registration(1100, 1150, 10, 4),    // 4 pages
                                      registration(1200, 1210, 12, 4),    // 2 pages more
                                      deregistration(1300, 1400, 10, 4),  // 2 pages less
                                      deregistration(1500, 1600, 12, 4)})});
  EXPECT_EQ(r.registered().peak, 6 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().mean, (4.0 * 100 + 6.0 * 200 + 4.0 * 200) / 1000 * kPage);
  EXPECT_DOUBLE_EQ(r.wall_seconds, 1e-6);
}

TEST(Analysis, RefusedRegistrationsHoldNothing) {
  Event refused = registration(1100, 1150, 10, 4);
  refused.flags = kFailed;
  EXPECT_EQ(analyse({make_log(1000, 2000, {refused})}).registered().peak, 0u);
}

TEST(Analysis, ARunIsFromItsStartToItsEnd) {
  // Registered before the run and let go after it.
  const Report r =
      analyse({make_log(1000, 2000, {registration(500, 600, 10, 3), deregistration(2500, 2600, 10, 3)})});
  EXPECT_EQ(r.registered().peak, 3 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().mean, 3.0 * kPage);
  // Over before it began.
  const Report none =
      analyse({make_log(1000, 2000, {registration(500, 600, 10, 3), deregistration(700, 800, 10, 3)})});
  EXPECT_EQ(none.registered().peak, 0u);
}

TEST(Analysis, OracleIsTheUnionOfPagesUnderLease) {
  const Report r =
      analyse({make_log(0, 1000, {use(100, 300, 10, 4), use(200, 400, 12, 4), use(600, 700, 10, 1)})});
  EXPECT_EQ(r.registered().oracle_peak, 6 * kPage);
  // [100,200) 4, [200,300) 6, [300,400) 4, [600,700) 1
  EXPECT_DOUBLE_EQ(r.registered().oracle_mean, (400.0 + 600 + 400 + 100) / 1000 * kPage);
}

// One buffer in five domains is pinned five times.
TEST(Analysis, FiguresAreSumsOverDomains) {
  std::vector<Event> events;
  for (std::uint8_t domain = 0; domain < 5; ++domain) {
    for (Event e : {registration(100, 100, 10, 4), use(100, 300, 10, 4), use(100, 300, 12, 2)}) {
      e.domain = domain;
      events.push_back(e);
    }
  }
  Event gone = deregistration(400, 400, 10, 4);
  gone.domain = 3;
  events.push_back(gone);
  events.push_back(unmapped(500, 10, 2));
  const RegisteredBytes bytes = analyse({make_log(0, 1000, events)}).registered();
  EXPECT_EQ(bytes.peak, 5 * 4 * kPage);
  EXPECT_DOUBLE_EQ(bytes.mean, (5.0 * 4 * 300 + 4.0 * 4 * 600) / 1000 * kPage);
  EXPECT_EQ(bytes.oracle_peak, 5 * 4 * kPage);
  EXPECT_DOUBLE_EQ(bytes.oracle_mean, 5.0 * 4 * 200 / 1000 * kPage);
  EXPECT_EQ(bytes.leave_pinned_peak, 5 * 4 * kPage);
  EXPECT_DOUBLE_EQ(bytes.leave_pinned_mean, 5.0 * (4 * 400 + 2 * 500) / 1000 * kPage);
}

// Figures that lack their data are absent, instead of 0.
TEST(Analysis, WithoutEventsTheBoundsAreUnknown) {
  Log whole = make_log(0, 1000, {use(100, 300, 10, 4)}, 0),
      cut = make_log(0, 1000, {use(100, 200, 10, 4)}, 1);
  cut.live.counters.events_dropped = 7;
  const Report partly = analyse({whole, cut});
  EXPECT_TRUE(partly.registered().bounds_known);
  EXPECT_TRUE(partly.call_sites_known());
  // Both up to where the one has events.
  EXPECT_DOUBLE_EQ(partly.registered().oracle_mean, 8.0 * 100 / 200 * kPage);
  EXPECT_DOUBLE_EQ(partly.events_cover_seconds, 200e-9);

  cut.events.clear();
  cut.header.start_ns = 10;  // its first event is later than the begin of the node's run
  cut.live.counters.registered_peak_bytes = 3 * kPage;
  cut.live.counters.registered_byte_ns = 495.0 * 3 * kPage;
  cut.live.series[0].peak_bytes = 3 * kPage;
  const Report none = analyse({whole, cut});
  EXPECT_FALSE(none.registered().bounds_known);
  EXPECT_FALSE(none.call_sites_known());
  EXPECT_FALSE(none.per_rank[1].registered.bounds_known);
  EXPECT_TRUE(none.per_rank[0].registered.bounds_known);
  EXPECT_EQ(none.per_rank[1].registered.peak, 3 * kPage);
  EXPECT_DOUBLE_EQ(none.per_rank[1].registered.mean, 1.5 * kPage);
  EXPECT_EQ(registered_timeline(cut).peak(), 3 * kPage);
}

TEST(Analysis, OracleRoundsToPagesOfTheRunsMachine) {
  Log log = make_log(0, 1000, {lease(0, 1000, 65536 - 1, 2)});
  EXPECT_EQ(analyse({log}).registered().oracle_peak, 2 * kPage);
  log.header.page_bytes = 65536;
  EXPECT_EQ(analyse({log}).registered().oracle_peak, 2 * 65536u);
}

TEST(Analysis, OracleRegistersJustInTime) {
  Log log = make_log(0, 1000, {use(200, 300, 10, 4), use(250, 400, 12, 4), use(410, 450, 14, 2)});
  log.live.domains[0].fit_register_a_ns = 10;
  log.live.domains[0].fit_register_b_ns = 20;
  const Report r = analyse({log});
  // The first needs 4 new pages, 60 ns ahead: pages 10-13 from 140 to 300. The second 2 new ones, 40 ns
  // ahead: pages 12-15 from 210 to 400. The third finds its pages gone, 40 ns ahead: from 370, so they
  // stayed. [140,210) 4, [210,300) 6, [300,400) 4, [400,450) 2
  EXPECT_EQ(r.registered().oracle_peak, 6 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().oracle_mean, (4.0 * 70 + 6.0 * 90 + 4.0 * 100 + 2.0 * 50) / 1000 * kPage);
}

TEST(Analysis, OracleDoesNotWaitAsTheRunDid) {
  Event missed = use(200, 300, 10, 4);  // registered on demand from 200 to 260
  missed.wait_ns = 60;
  Event absurd = use(500, 600, 10, 1);
  absurd.wait_ns = ~std::uint64_t{0};
  Log log = make_log(0, 1000, {missed, absurd});
  log.live.domains[0].fit_register_b_ns = 60;
  const Report r = analyse({log});
  EXPECT_DOUBLE_EQ(r.registered().oracle_mean, (4.0 * 100 + 1.0 * 61) / 1000 * kPage);
}

Event run_of_uses(Time first, Time last, std::uint64_t page, std::uint64_t pages, std::uint32_t count,
                  std::uint64_t leased_ns) {
  Event e = use(first, last, page, pages);
  e.kind = EventKind::uses;
  e.count = count;
  e.leased_ns = leased_ns;
  return e;
}

TEST(Analysis, ARunOfUsesCountsAsLongAsItsLeases) {
  // 5 uses of 4 pages between 100 and 500, 40 ns each: the oracle holds 4 pages for 200 ns.
  Log log = make_log(0, 1000, {run_of_uses(100, 500, 10, 4, 5, 200)});
  RegisteredBytes bytes = analyse({log}).registered();
  EXPECT_EQ(bytes.oracle_peak, 4 * kPage);
  EXPECT_DOUBLE_EQ(bytes.oracle_mean, 200.0 * 4 / 1000 * kPage);
  EXPECT_EQ(bytes.leave_pinned_peak, 4 * kPage);
  EXPECT_DOUBLE_EQ(bytes.leave_pinned_mean, 900.0 * 4 / 1000 * kPage);
  // 20 ns to register: ahead of the first, and of each of the other four in its gap of 50 ns.
  log.live.domains[0].fit_register_b_ns = 20;
  EXPECT_DOUBLE_EQ(analyse({log}).registered().oracle_mean, (200.0 + 5 * 20) * 4 / 1000 * kPage);
  // Longer than the gap: they never go.
  log.live.domains[0].fit_register_b_ns = 60;
  EXPECT_DOUBLE_EQ(analyse({log}).registered().oracle_mean, (400.0 + 60) * 4 / 1000 * kPage);
  // Uses that overlapped last longer together than the run.
  log.events[0].leased_ns = ~std::uint64_t{0};
  EXPECT_DOUBLE_EQ(analyse({log}).registered().oracle_mean, (400.0 + 60) * 4 / 1000 * kPage);
}

TEST(Analysis, ARunOfUsesIsTheSameAsItsLeases) {
  std::vector<Event> leases;
  for (Time at : {100, 200, 300, 400}) leases.push_back(use(at, at + 30, 10, 2));
  Log one_by_one = make_log(0, 1000, leases);
  Log summed = make_log(0, 1000, {run_of_uses(100, 430, 10, 2, 4, 4 * 30)});
  for (Log* log : {&one_by_one, &summed}) {
    log->live.domains[0].fit_register_a_ns = 5;
    log->live.counters.acquires = log->live.counters.hits = 4;
  }
  const Report a = analyse({one_by_one}), b = analyse({summed});
  EXPECT_DOUBLE_EQ(a.registered().oracle_mean, b.registered().oracle_mean);
  EXPECT_EQ(a.registered().oracle_peak, b.registered().oracle_peak);
  EXPECT_DOUBLE_EQ(a.registered().leave_pinned_mean, b.registered().leave_pinned_mean);
  EXPECT_EQ(b.acquires.total, 4u);
  ASSERT_EQ(b.call_sites.size(), 1u);
  EXPECT_EQ(b.call_sites[0].acquires, a.call_sites[0].acquires);
  EXPECT_EQ(b.call_sites[0].acquires, 4u);
  EXPECT_EQ(b.call_sites[0].hits, 4u);
  EXPECT_EQ(b.call_sites[0].bytes, 4u * 2 * kPage);
  EXPECT_EQ(b.call_sites[0].wait_seconds, 0);
}

// Peers' holds and transfers are no leases of the program's.
TEST(Analysis, HoldsAndTransfersAreNoUses) {
  Event held = event(EventKind::hold_begin, 100, 100, 10 * kPage, 4 * kPage);
  Event moved = event(EventKind::transfer, 100, 900, 10 * kPage, 4 * kPage);
  moved.protocol = Protocol::direct;
  const Report r = analyse({make_log(0, 1000, {held, moved})});
  EXPECT_EQ(r.registered().oracle_peak, 0u);
  EXPECT_EQ(r.registered().leave_pinned_peak, 0u);
  EXPECT_EQ(r.registered().peak, 0u);
  EXPECT_TRUE(r.call_sites.empty());
  EXPECT_EQ(r.events, 2u);
}

TEST(Analysis, PeersHoldMemory) {
  const auto hold = [](EventKind kind, Time at, std::uint64_t page) {
    return event(kind, at, at, page * kPage, kPage);
  };
  const Report r =
      analyse({make_log(0, 1000,
                        {hold(EventKind::hold_begin, 100, 10), hold(EventKind::hold_begin, 200, 11),
                         hold(EventKind::hold_end, 300, 10)}),
               make_log(0, 1000, {hold(EventKind::hold_begin, 0, 20)}, 1)});
  EXPECT_EQ(r.holds.count, 3U);
  EXPECT_EQ(r.holds.peak, 3 * kPage);
  EXPECT_DOUBLE_EQ(r.holds.mean, (200.0 + 800 + 1000) / 1000 * kPage);
  EXPECT_EQ(r.per_rank[0].holds.peak, 2 * kPage);
}

TEST(Analysis, EachDomainHasItsOwnFit) {
  Event there = use(200, 300, 10, 1), here = use(200, 300, 20, 1);
  there.domain = 1;
  Log log = make_log(0, 1000, {there, here});
  log.live.domains[0].fit_register_b_ns = 50;
  log.live.domains[1].fit_register_b_ns = 100;
  EXPECT_DOUBLE_EQ(analyse({log}).registered().oracle_mean, (100.0 + 50 + 100 + 100) / 1000 * kPage);
}

TEST(Analysis, DomainsAreSummedByNumberDeviceAndNic) {
  const auto log_of = [](int rank, const char* second, std::uint64_t registrations) {
    Log log = make_log(0, 1000, {}, rank);
    log.domains.resize(2);
    std::strcpy(log.domains[0].device, "pin");
    std::strcpy(log.domains[1].device, second);
    log.domains[1].max_regions = 8;
    DomainState& state = log.live.domains[1];
    state.registered_peak_bytes = 10 * kPage;
    state.registered_byte_ns = 3000.0 * kPage;
    state.acquires = 7;
    state.hits = 5;
    state.misses = 2;
    state.registrations = registrations;
    state.fit_register_b_ns = static_cast<double>(registrations);
    return log;
  };
  const Report r = analyse({log_of(0, "emulated", 2), log_of(1, "emulated", 3), log_of(2, "verbs", 4)});
  ASSERT_EQ(r.domains.size(), 3u);
  EXPECT_EQ(r.domains[0].device, "pin");
  EXPECT_EQ(r.domains[0].ranks, 3u);
  EXPECT_EQ(r.domains[0].peak, 0u);
  EXPECT_EQ(r.domains[1].device, "emulated");
  EXPECT_EQ(r.domains[1].number, 1u);
  EXPECT_EQ(r.domains[1].ranks, 2u);
  EXPECT_EQ(r.domains[1].max_regions, 8u);
  EXPECT_EQ(r.domains[1].peak, 20 * kPage);
  EXPECT_DOUBLE_EQ(r.domains[1].mean, 6.0 * kPage);
  EXPECT_EQ(r.domains[1].acquires.total, 14u);
  EXPECT_EQ(r.domains[1].acquires.hits, 10u);
  EXPECT_EQ(r.domains[1].registrations, 5u);
  EXPECT_DOUBLE_EQ(r.domains[1].register_ns_base, 3);  // of the process that registered most
  EXPECT_EQ(r.domains[2].device, "verbs");
}

TEST(Analysis, LeavePinnedGrowsAndIsShrunkByMemoryEventsOnly) {
  const Report r = analyse({make_log(0, 1000,
                                     {use(100, 110, 10, 4), use(200, 210, 12, 4),  // 6 pages from 200
                                      unmapped(400, 11, 2),                        // pages 11, 12: 4 left
                                      unmapped(450, 100, 50),                      // nothing there
                                      use(500, 510, 11, 1)})});                    // 5 pages
  EXPECT_EQ(r.registered().leave_pinned_peak, 6 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().leave_pinned_mean,
                   (4.0 * 100 + 6.0 * 200 + 4.0 * 100 + 5.0 * 500) / 1000 * kPage);
}

TEST(Analysis, TheOrderOfRecordsDoesNotMatter) {
  const std::vector<Event> ordered = {use(100, 110, 10, 4), unmapped(400, 11, 2), use(500, 510, 11, 1)};
  const std::vector<Event> mixed = {ordered[2], ordered[0], ordered[1]};
  EXPECT_DOUBLE_EQ(analyse({make_log(0, 1000, ordered)}).registered().leave_pinned_mean,
                   analyse({make_log(0, 1000, mixed)}).registered().leave_pinned_mean);
}

TEST(Analysis, RanksOfANodeAreSummedOnOneTimeLine) {
  const Report r = analyse({
      make_log(0, 1000, {registration(100, 100, 1, 3), deregistration(400, 400, 1, 3), use(100, 400, 1, 3)},
               0),
      make_log(200, 900, {registration(300, 300, 1, 5), deregistration(600, 600, 1, 5), use(500, 600, 1, 5)},
               1),
  });
  // Equal addresses in two processes are two memories. Registered: 3 from 100, 8 from 300, 5 from 400.
  EXPECT_EQ(r.registered().peak, 8 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().mean, (3.0 * 200 + 8.0 * 100 + 5.0 * 200) / 1000 * kPage);
  EXPECT_EQ(r.registered().oracle_peak, 5 * kPage);
  // Leave-pinned: 3 from 100 to 1000, 5 from 500 to the end of rank 1's run at 900.
  EXPECT_EQ(r.registered().leave_pinned_peak, 8 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().leave_pinned_mean, (3.0 * 900 + 5.0 * 400) / 1000 * kPage);
  ASSERT_EQ(r.nodes.size(), 1u);
  EXPECT_EQ(r.nodes[0].ranks, 2u);
  EXPECT_EQ(r.per_rank.at(1).registered.peak, 5 * kPage);
  EXPECT_DOUBLE_EQ(r.per_rank.at(1).registered.mean, 5.0 * 300 / 700 * kPage);
}

TEST(Analysis, NodesAreNotSummed) {
  const Report r = analyse({
      make_log(0, 1000, {registration(100, 100, 1, 3)}, 0, "a"),
      make_log(5000000, 5002000, {registration(5000100, 5000100, 1, 5)}, 1, "b"),
  });
  ASSERT_EQ(r.nodes.size(), 2u);
  EXPECT_EQ(r.nodes[0].host, "b");
  EXPECT_EQ(r.registered().peak, 5 * kPage);
  EXPECT_DOUBLE_EQ(r.wall_seconds, 2e-6);
}

TEST(Analysis, WithoutAllEventsTheOnlineFiguresSpeak) {
  Log log = make_log(0, 1000, {registration(100, 100, 1, 3), use(100, 200, 1, 3)});
  log.live.counters.events_dropped = 7;
  log.live.counters.registered_byte_ns = 4.0 * kPage * 1000;
  log.live.counters.registered_peak_bytes = 9 * kPage;
  log.live.series[6].peak_bytes = 9 * kPage;
  Report r = analyse({log});
  EXPECT_FALSE(r.all_events());
  EXPECT_EQ(r.registered().peak, 9 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().mean, 4.0 * kPage);
  // The events end at 200: oracle and leave-pinned speak of that time.
  EXPECT_DOUBLE_EQ(r.events_cover_seconds, 200e-9);
  EXPECT_DOUBLE_EQ(r.registered().oracle_mean, 3.0 * 100 / 200 * kPage);
  EXPECT_EQ(r.events_dropped, 7u);

  // A second rank whose peak falls into another bin does not add to the node's peak.
  Log other = log;
  other.header.rank = 1;
  other.live.series[6].peak_bytes = 0;
  other.live.series[3].peak_bytes = 5 * kPage;
  r = analyse({log, other});
  EXPECT_EQ(r.registered().peak, 9 * kPage);
  EXPECT_DOUBLE_EQ(r.registered().mean, 8.0 * kPage);
}

TEST(Analysis, SecondsAdded) {
  Log log = make_log(0, kSecond, {});
  Counters& c = log.live.counters;
  c.acquires = 1000;
  c.registration_ns = 30 * kMillisecond;
  c.wait_ns = 5 * kMillisecond;
  c.bounce_ns = 2 * kMillisecond;
  c.bookkeeping_ns = 100 * 50;  // 50 ns each of 100 samples: 50 us in all
  c.bookkeeping_samples = 100;
  c.helper_cpu_ns = 7 * kMillisecond;
  c.leave_pinned_registration_ns = 10 * kMillisecond;
  Report r = analyse({log});
  EXPECT_DOUBLE_EQ(r.cost.bookkeeping, 50e-6);
  EXPECT_DOUBLE_EQ(r.cost.registration(), 0.037);
  EXPECT_DOUBLE_EQ(r.cost.added(), 0.037 + 50e-6 - 0.010);
  EXPECT_DOUBLE_EQ(r.share_added(), 0.037 + 50e-6 - 0.010);

  c.helper_charged_ns = 7 * kMillisecond;  // while no core was idle
  r = analyse({log});
  EXPECT_DOUBLE_EQ(r.cost.added(), 0.037 + 50e-6 - 0.010 + 0.007);

  // Ranks run side by side: another rank with a loss of 0 halves the mean.
  r = analyse({log, make_log(0, kSecond, {}, 1)});
  EXPECT_DOUBLE_EQ(r.cost.added(), (0.037 + 50e-6 - 0.010 + 0.007) / 2);
  EXPECT_DOUBLE_EQ(r.per_rank.at(0).cost.added(), 0.037 + 50e-6 - 0.010 + 0.007);
  EXPECT_EQ(r.acquires.total, 1000u);
}

TEST(Analysis, ReleasesUnderPressureAddUpButShortagesAreTheNodes) {
  Log a = make_log(0, 1000, {}, 0), b = make_log(0, 1000, {}, 1);
  a.live.counters.pressure_released_bytes = 3 * kPage;
  a.live.counters.pressure_releases = 2;
  b.live.counters.pressure_released_bytes = kPage;
  b.live.counters.pressure_releases = 1;
  const Report r = analyse({a, b});
  EXPECT_EQ(r.under_pressure.bytes, 4 * kPage);
  EXPECT_EQ(r.under_pressure.times, 2u);
  EXPECT_EQ(r.per_rank.at(1).under_pressure.bytes, kPage);
}

TEST(Analysis, PredictionIsJudgedOverAllReuses) {
  Log a = make_log(0, 1000, {}, 0), b = make_log(0, 1000, {}, 1);
  a.live.counters.reuses = 90;
  a.live.counters.within_5 = 45;
  a.live.counters.within_0_5 = 9;
  a.live.counters.late = 2;
  b.live.counters.reuses = 10;
  b.live.counters.within_5 = 10;
  b.live.counters.at_release_within_5 = 5;
  const Report r = analyse({a, b});
  EXPECT_EQ(r.prediction.reuses, 100u);
  EXPECT_DOUBLE_EQ(r.prediction.within_5, 0.55);
  EXPECT_DOUBLE_EQ(r.prediction.within_0_5, 0.09);
  EXPECT_DOUBLE_EQ(r.prediction.at_release_within_5, 0.05);
  EXPECT_EQ(r.prediction.late, 2u);
}

TEST(Analysis, CallSitesAreOneAcrossRanksByName) {
  const auto log_of = [](int rank, std::uint64_t hash) {
    Event miss = lease(10, 20, 0, 100, hash, Outcome::miss);
    miss.call = static_cast<std::uint8_t>(CallKind::send);
    miss.wait_ns = 3000;
    miss.flags = kLate;
    Event hit = lease(30, 40, 0, 50, hash, Outcome::hit);
    hit.call = miss.call;
    Event other = lease(50, 60, 0, 70, 999, Outcome::wait);
    Log log = make_log(0, 1000, {hit, miss, other}, rank);
    SiteEntry site{};
    site.hash = hash;
    std::strcpy(site.name, "exchange (app)");
    if (rank == 1) std::strcpy(site.python, "train.py:41 in step");
    log.sites.push_back(site);
    return log;
  };
  const Report r = analyse({log_of(0, 1), log_of(1, 2)});
  ASSERT_EQ(r.call_sites.size(), 2u);
  const CallSite& site = r.call_sites[0];
  EXPECT_EQ(site.name, "exchange (app)");
  EXPECT_EQ(site.python, "train.py:41 in step");
  EXPECT_EQ(site.call, "send");
  EXPECT_EQ(site.acquires, 4u);
  EXPECT_EQ(site.bytes, 300u);
  EXPECT_EQ(site.hits, 2u);
  EXPECT_EQ(site.misses, 2u);
  EXPECT_EQ(site.late, 2u);
  EXPECT_DOUBLE_EQ(site.wait_seconds, 6e-6);
  EXPECT_EQ(r.call_sites[1].name, "site 00000000000003e7");
  EXPECT_EQ(r.call_sites[1].waits, 2u);
}

TEST(Analysis, AKilledRunEndsWithItsLastEvent) {
  Log log = make_log(0, 100, {use(50, 400, 1, 1)});
  log.live.complete = 0;
  const Report r = analyse({log});
  EXPECT_DOUBLE_EQ(r.wall_seconds, 400e-9);
  EXPECT_DOUBLE_EQ(r.registered().oracle_mean, 350.0 / 400 * kPage);
  EXPECT_FALSE(r.per_rank[0].complete);
}

// It died in a transfer: of the pages registered then no lease has ended.
TEST(Analysis, AKilledRunIsNotComparedWithLessThanItUsed) {
  Log log =
      make_log(0, 1000, {registration(10, 20, 1, 1), use(50, 400, 1, 1), registration(450, 460, 10, 8)});
  EXPECT_TRUE(analyse({log}).registered().bounds_known);
  log.live.complete = 0;
  const Report r = analyse({log});
  EXPECT_EQ(r.registered().peak, 9 * kPage);
  EXPECT_FALSE(r.registered().bounds_known);
  log.events.pop_back();
  EXPECT_TRUE(analyse({log}).registered().bounds_known);
}

// Files are worked off in threads, several logs at a time: the figures are those of the same logs in turn.
TEST(Analysis, FilesGiveWhatTheirLogsGive) {
  TemporaryDirectory directory;
  constexpr int kRanks = 20;
  for (int rank = 0; rank < kRanks; ++rank) {
    RunInfo info;
    info.job = 1;
    info.rank = rank;
    info.ranks = kRanks;
    info.start = 1000;
    LogWriter writer;
    ASSERT_FALSE(writer.open(directory.path(), info, 1 << 20));
    for (int i = 0; i < 50; ++i) {
      const Time at = 1000 + 7 * rank + 40 * i;
      writer.append(lease(at, at + 30 + rank, 0x100000u + 0x1000u * static_cast<unsigned>(i % 3), 4096,
                          static_cast<std::uint64_t>(1 + i % 2), Outcome::miss));
    }
    Series series;
    series.start(1000);
    Counters counters{};
    counters.acquires = static_cast<std::uint64_t>(50 + rank);
    counters.reuses = 10;
    counters.within_0_5 = static_cast<std::uint64_t>(rank % 10);
    writer.finish(counters, series, 4000 + rank, 0);
  }
  std::vector<Log> logs;
  ASSERT_FALSE(read_logs({directory.path()}, logs));
  ASSERT_EQ(logs.size(), static_cast<std::size_t>(kRanks));
  const Report of_logs = analyse(logs);
  Report of_files;
  ASSERT_FALSE(analyse({directory.path()}, of_files));

  EXPECT_EQ(of_files.ranks, kRanks);
  EXPECT_EQ(of_files.acquires.total, 20u * 50 + 190);
  EXPECT_EQ(of_files.events, 20u * 50);
  EXPECT_GT(of_files.registered().leave_pinned_peak, 0u);
  EXPECT_EQ(of_files.registered().oracle_peak, of_logs.registered().oracle_peak);
  EXPECT_DOUBLE_EQ(of_files.registered().oracle_mean, of_logs.registered().oracle_mean);
  EXPECT_EQ(of_files.registered().leave_pinned_peak, of_logs.registered().leave_pinned_peak);
  EXPECT_DOUBLE_EQ(of_files.prediction.within_0_5, of_logs.prediction.within_0_5);
  EXPECT_DOUBLE_EQ(of_files.wall_seconds, of_logs.wall_seconds);
  ASSERT_EQ(of_files.per_rank.size(), of_logs.per_rank.size());
  for (std::size_t i = 0; i < of_files.per_rank.size(); ++i) {
    EXPECT_EQ(of_files.per_rank[i].rank, static_cast<int>(i));
    EXPECT_EQ(of_files.per_rank[i].acquires.total, of_logs.per_rank[i].acquires.total);
  }
  ASSERT_EQ(of_files.call_sites.size(), of_logs.call_sites.size());
  EXPECT_EQ(of_files.call_sites[0].acquires, of_logs.call_sites[0].acquires);
}

}  // namespace
}  // namespace pinion::runlog
