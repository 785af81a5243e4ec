#include "cli/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/report/gpu_copies.h"
#include "cli/report/report_notes.h"
#include "cli/report/report_tables.h"
#include "cli/text.h"
#include "cli/typed.h"
#include "engine/acts.h"

namespace pinion::cli {

namespace {

using runlog::RegisteredBytes;
using runlog::Report;

constexpr double kWorthTelling = 0.05;
/// Uses of a buffer before its period can be known, times a few buffers.
constexpr std::uint64_t kFewTransfers = 16;

/// Memory and cost of a strategy, measured or simulated.
struct Outcome {
  RegisteredBytes bytes;
  double added = 0, seconds = 0;
};

Outcome outcome_of(const Report& r) { return {r.registered(), r.cost.added(), r.wall_seconds}; }
Outcome outcome_of(const simulate::Result& r) { return {r.registered, r.cost.added(), r.seconds}; }

Options options_of(const Report& r) {
  Options options = recorded_options(r.options);
  options.log.clear();
  return options;
}

bool predicts(const Report& r) { return r.retention == to_string(RetentionKind::helper); }

std::string against_text(double value, double reference) {
  return reference > 0 ? change_text(value, reference, 0) : "none";
}

std::string cost_text(const Outcome& o) {
  if (o.added <= 0) return fmt::format("at no cost in time (run: {})", seconds_text(o.seconds));
  return fmt::format("for {} of {} ({})", seconds_text(o.added), seconds_text(o.seconds),
                     percent_text(o.seconds > 0 ? o.added / o.seconds : 0));
}

/// "64.0 MiB at most instead of 96.0 MiB (-33 %)", or "96.0 MiB at most (as leave-pinned)"
std::string instead_text(double held, const char* when, double leave_pinned) {
  const std::string change = against_text(held, leave_pinned);
  if (change == "+0 %" || change == "-0 %")
    return fmt::format("{} {} (as leave-pinned)", bytes_text(held), when);
  return fmt::format("{} {} instead of {} ({})", bytes_text(held), when, bytes_text(leave_pinned), change);
}

/// Memory of a strategy, beside leave-pinned's.
std::string instead_text(const RegisteredBytes& held, double leave_pinned_peak, double leave_pinned_mean) {
  return instead_text(static_cast<double>(held.peak), "at most", leave_pinned_peak) + ", " +
         instead_text(held.mean, "on average", leave_pinned_mean);
}

/// Compares with the leave-pinned that is computed from the run's own transfers.
std::string instead_text(const RegisteredBytes& held) {
  return instead_text(held, static_cast<double>(held.leave_pinned_peak), held.leave_pinned_mean);
}

/// Whether a strategy holds less than leave-pinned by a share worth a sentence.
bool saves(const RegisteredBytes& held, double leave_pinned_peak, double leave_pinned_mean) {
  return static_cast<double>(held.peak) < (1 - kWorthTelling) * leave_pinned_peak ||
         held.mean < (1 - kWorthTelling) * leave_pinned_mean;
}

bool saves(const RegisteredBytes& held) {
  return saves(held, static_cast<double>(held.leave_pinned_peak), held.leave_pinned_mean);
}

/// Whether a limit leaves room for every transfer, in the same time to a thousandth of the run.
bool costs_no_time(const simulate::Result& limited, const simulate::Result& without) {
  return limited.acquires.bounced == 0 &&
         limited.cost.added() <= without.cost.added() + 1e-3 * without.seconds;
}

/// Nor more memory: where late uses are dear, the helper fills more of a limit's room.
bool costs_nothing_more(const simulate::Result& limited, const simulate::Result& without) {
  return costs_no_time(limited, without) &&
         limited.registered.mean <= (1 + kWorthTelling) * without.registered.mean;
}

/// The facts that explain a helper that holds as much as leave-pinned.
struct Circumstances {
  RegisteredBytes bytes;
  std::uint64_t transfers, reuses;
  int ranks;
  double time_budget;                      ///< a share of the run; negative: off
  std::optional<double> on_demand;         ///< share of the run that on-demand registration costs
  std::uint64_t kept_all_below_bytes = 0;  ///< the minimum gain, where it was not reached
};

bool is_all_in_use(const Circumstances& c) {
  return c.bytes.oracle_mean >= (1 - 2 * kWorthTelling) * c.bytes.leave_pinned_mean;
}
bool is_too_short(const Circumstances& c) {
  return c.reuses == 0 || c.transfers / static_cast<std::uint64_t>(std::max(1, c.ranks)) < kFewTransfers;
}

std::string why_not_text(const Circumstances& c) {
  if (c.kept_all_below_bytes)
    return fmt::format(
        "Letting less than {} go in a process is not worth its cost while memory is not short "
        "(--minimum-gain).",
        bytes_text(static_cast<double>(c.kept_all_below_bytes)));
  if (is_all_in_use(c))
    return fmt::format(
        "Nearly all of it is in use all the time: transfers alone hold {} on average, and every "
        "strategy holds at least that.",
        bytes_text(c.bytes.oracle_mean));
  if (is_too_short(c))
    return fmt::format(
        "There was little to learn from: {}, of which {} used a buffer again. A longer run shows more.",
        plural_text(c.transfers, "transfer", "transfers"), count_text(c.reuses));
  if (!c.on_demand) return "Its buffers are used again too soon to let them go in between.";
  return fmt::format(
      "Its buffers are used again too soon: registering them for each use would cost {} of the run, and "
      "the time budget is {}.",
      percent_text(*c.on_demand), c.time_budget < 0 ? "off" : percent_text(c.time_budget));
}

std::string where_text(const Report& r) {
  const runlog::NodeReport& node = r.nodes.front();
  if (r.nodes.size() > 1)
    return fmt::format("Registered memory of node {} ({}), the highest of {}", node.host,
                       plural_text(node.ranks, "rank", "ranks"),
                       plural_text(r.nodes.size(), "node", "nodes"));
  return node.ranks == 1 ? "Registered memory"
                         : fmt::format("Registered memory of {} ranks", count_text(node.ranks));
}

std::string command_text(const Options& options, const TypedProgram& program) {
  return program.before + typed_run(options) + program.after;
}

/// Collects sentences and advice on one run.
class Judge {
 public:
  Judge(const Report& r, const Strategies* strategies, const TypedProgram& program, const SiteText& site_text)
      : r_(r), strategies_(strategies), program_(program), site_text_(site_text), options_(options_of(r)) {}

  Verdict verdict() {
    if (is_measured(r_))
      say("Pinion only measured: no NIC registers here, and your MPI's own registrations are unchanged.");
    if (r_.copies.any()) say(gpu_copies_text(r_.copies) + ".");
    if (r_.acquires.total == 0) {
      nothing_seen();
    } else if (is_measured(r_)) {
      measured();
    } else if (predicts(r_)) {
      acted();
    } else {
      other_strategy();
    }
    return std::move(verdict_);
  }

 private:
  void say(std::string sentence) { verdict_.sentences.push_back(std::move(sentence)); }
  void advise(std::string text, std::string command) {
    verdict_.advice.push_back({std::move(text), std::move(command)});
  }
  std::string typed(const Options& options) const { return command_text(options, program_); }
  /// Returns the options that a what-if row was simulated with.
  Options options_with(const Strategies::WhatIf& row) const {
    Options options = options_;
    options.retention = RetentionKind::helper;
    (void)set_option(options, row.option, row.value);
    return options;
  }

  void nothing_seen() {
    // The threshold is the MPI front's: other users ask for each registration by a call of its own.
    if (r_.job_ranks == 0) return say("No transfer was seen, so no memory was registered for one.");
    say(fmt::format("No transfer of {} or more was seen, so no memory was registered for one.",
                    bytes_text(static_cast<double>(options_.threshold))));
    Options options = options_;
    options.threshold = 4 << 10;
    if (options_.threshold > options.threshold)
      advise(fmt::format("Count smaller transfers too, from {} on:", bytes_text(4 << 10)), typed(options));
  }

  void measured() {
    const simulate::Result* const helper = row_of(strategies_, RetentionKind::helper);
    if (helper == nullptr) return say("The log lacks the events to simulate strategies from.");
    const Outcome o = outcome_of(*helper);
    const bool worth = saves(o.bytes);
    say(fmt::format("Simulated from this run's log with NIC '{}', Pinion would hold {}, {}.",
                    strategies_->nic, instead_text(o.bytes), cost_text(o)));
    if (!worth) return why_not(o, helper->prediction.reuses, helper->kept_all_below_bytes);
    advise_limit();
    advise("See why no NIC is used here, and who can change it:", "pinion doctor");
  }

  void acted() {
    const Outcome o = outcome_of(r_);
    if (!o.bytes.bounds_known) {
      say(fmt::format("{}: {} at most, {} on average, {}. The log lacks the events to compare this with.",
                      where_text(r_), bytes_text(static_cast<double>(o.bytes.peak)), bytes_text(o.bytes.mean),
                      cost_text(o)));
      return;
    }
    const bool helped = saves(o.bytes);
    say(fmt::format("{}: {}, {}.", where_text(r_), instead_text(o.bytes), cost_text(o)));
    shortages();
    if (helped) {
      holder();
    } else {
      why_not(o, r_.prediction.reuses, r_.kept_all_below_bytes);
    }
    if (helped || r_.acquires.bounced) advise_limit();
  }

  void other_strategy() {
    const Outcome o = outcome_of(r_);
    say(fmt::format("Under strategy {} this run held {} at most, {} on average, {}.", r_.retention,
                    bytes_text(static_cast<double>(o.bytes.peak)), bytes_text(o.bytes.mean), cost_text(o)));
    shortages();
    const simulate::Result* const helper = row_of(strategies_, RetentionKind::helper);
    if (helper == nullptr) return;
    const Outcome simulated = outcome_of(*helper);
    say(fmt::format("Simulated from its log, strategy helper would hold {} at most, {} on average, {}.",
                    bytes_text(static_cast<double>(simulated.bytes.peak)), bytes_text(simulated.bytes.mean),
                    cost_text(simulated)));
    Options options = options_;
    options.retention = RetentionKind::helper;
    if (simulated.bytes.mean < o.bytes.mean || simulated.added < o.added)
      advise("Let the helper decide:", typed(options));
  }

  /// The call site that most of the registered memory waits for.
  void holder() {
    double sum = 0;
    const runlog::CallSite* most = nullptr;
    for (const runlog::CallSite& site : r_.call_sites) {
      sum += site.held_byte_seconds;
      if (most == nullptr || site.held_byte_seconds > most->held_byte_seconds) most = &site;
    }
    if (most == nullptr || most->held_byte_seconds <= 0) return;
    const double share = most->held_byte_seconds / sum;
    // A log names its call sites at the end of the run.
    const std::string where = most->name.starts_with("site ") ? "" : " in " + site_text_(*most);
    say(fmt::format("{} of it stays registered after {}{}.",
                    share > 0.5 ? "Most" : fmt::format("The largest part ({})", percent_text(share)),
                    most->call, where));
  }

  void shortages() {
    if (r_.under_pressure.times) say("Pinion " + pressure_text(r_.under_pressure) + ".");
    if (r_.acquires.bounced)
      say(fmt::format(
          "{}: {} of {} found no room and went without registration, slower.",
          r_.limit_bytes ? "The limit of " + limit_text(r_) + " binds" : "The limits of this machine bind",
          plural_text(r_.acquires.bounced, "transfer", "transfers"), count_text(r_.acquires.total)));
    if (r_.beyond.bytes)
      say(fmt::format("The program's own registrations exceeded the limit by {} at most, for {}.",
                      bytes_text(static_cast<double>(r_.beyond.bytes)), seconds_text(r_.beyond.seconds)));
  }

  /// Why the helper holds as much as leave-pinned.
  void why_not(const Outcome& o, std::uint64_t reuses, std::uint64_t kept_all_below_bytes) {
    Circumstances c{o.bytes, r_.acquires.total,   reuses, r_.ranks, options_.time_budget,
                    {},      kept_all_below_bytes};
    const simulate::Result* const on_demand = row_of(strategies_, RetentionKind::on_demand);
    if (on_demand != nullptr && on_demand->seconds > 0)
      c.on_demand = on_demand->cost.added() / on_demand->seconds;
    say(why_not_text(c));
    if (!is_all_in_use(c) && !is_too_short(c) && kept_all_below_bytes == 0) advise_budget(o);
  }

  /// More time for less memory, where that is so.
  void advise_budget(const Outcome& o) {
    if (strategies_ == nullptr) return;
    for (const Strategies::WhatIf& row : strategies_->what_if) {
      if (row.option != "time-budget") continue;
      const Outcome with = outcome_of(row.result);
      if (with.bytes.mean > (1 - 4 * kWorthTelling) * o.bytes.mean) continue;
      return advise(fmt::format("A time budget of {} would hold {} on average, {} (simulated):", row.value,
                                bytes_text(with.bytes.mean), cost_text(with)),
                    typed(options_with(row)));
    }
  }

  /// The least limit that costs nothing more, or has room for every transfer where the present one has not.
  void advise_limit() {
    const simulate::Result* const helper = row_of(strategies_, RetentionKind::helper);
    if (helper == nullptr) return;
    for (const Strategies::WhatIf& row : strategies_->what_if) {
      if (row.option != "limit") continue;
      const bool binds = r_.acquires.bounced > 0;
      if (!(binds ? costs_no_time(row.result, *helper) : costs_nothing_more(row.result, *helper))) continue;
      const Options options = options_with(row);
      if (options.limit == options_.limit ||
          (options_.limit != 0 && !binds && options.limit > options_.limit))
        return;
      return advise(fmt::format("A limit of {} a process {} (simulated):",
                                bytes_text(static_cast<double>(options.limit)),
                                binds ? "has room for every transfer" : "would cost nothing more"),
                    typed(options));
    }
  }

  const Report& r_;
  const Strategies* strategies_;
  const TypedProgram& program_;
  const SiteText& site_text_;
  const Options options_;
  Verdict verdict_;
};

}  // namespace

TypedProgram typed_program(const std::string& command, int ranks) {
  return {ranks > 1 ? fmt::format("mpirun -n {} ", ranks) : "", command};
}

Verdict verdict_of(const Report& report, const Strategies* strategies, const TypedProgram& program,
                   const SiteText& site_text) {
  return Judge(report, strategies, program, site_text).verdict();
}

Verdict verdict_of(const std::vector<ComparedRow>& rows) {
  constexpr double kNoise = 0.01;  ///< of a run's time: differences that need no explanation
  Verdict verdict;
  const auto find = [&](const char* name) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const ComparedRow& r) { return r.name == name; });
    return found == rows.end() ? nullptr : &*found;
  };
  const auto run_text = [](const ComparedRow& r) {
    return fmt::format("{} for {:.2f} s ({:.2f} to {:.2f})", r.name, r.seconds, r.least_seconds,
                       r.most_seconds);
  };
  const auto add_times = [&](const ComparedRow& ours, const ComparedRow& theirs) {
    const bool overlap =
        ours.least_seconds <= theirs.most_seconds && theirs.least_seconds <= ours.most_seconds;
    verdict.sentences.push_back(fmt::format("The program ran under {}, under {}: {}{}.", run_text(ours),
                                            run_text(theirs), against_text(ours.seconds, theirs.seconds),
                                            overlap ? ", within the spread of the runs" : ""));
  };
  // A longer time than registration explains is other work's, mostly, in so few runs.
  const auto add_unexplained = [&](const ComparedRow& ours, const ComparedRow& theirs) {
    const double longer = ours.least_seconds - theirs.most_seconds;
    const double explained = ours.added_seconds - theirs.added_seconds;
    if (longer <= std::max(kNoise * theirs.seconds, 2 * explained)) return;
    verdict.sentences.push_back(fmt::format(
        "Registration explains {} of the difference; more runs (--repeat 9) on a quiet machine tell "
        "whether the rest is other work's.",
        seconds_text(std::max(0.0, explained))));
  };
  const ComparedRow* const helper = find("helper");
  const ComparedRow* const pinned = find("leave-pinned");
  if (helper && pinned) {
    const auto peak = static_cast<double>(pinned->bytes.peak);
    verdict.sentences.push_back(
        fmt::format("Strategy helper held {}.", instead_text(helper->bytes, peak, pinned->bytes.mean)));
    add_times(*helper, *pinned);
    add_unexplained(*helper, *pinned);
    if (saves(helper->bytes, peak, pinned->bytes.mean))
      verdict.advice.push_back({"Run it so:", helper->command});
    else
      verdict.advice.push_back(
          {"See why it holds as much as leave-pinned:", "pinion report " + quoted(helper->logs)});
  }
  const ComparedRow* const limited = find("helper-limited");
  const ComparedRow* const library = find("library-limited");
  if (limited && library) {
    add_times(*limited, *library);
    if (limited->seconds < library->seconds) verdict.advice.push_back({"Under the limit:", limited->command});
  }
  return verdict;
}

void judge(Verdict& verdict, const std::string& name, const TypedProgram& program,
           const std::vector<SimulatedRow>& rows) {
  const SimulatedRow* helper = nullptr;
  std::optional<double> on_demand;
  for (const SimulatedRow& row : rows) {
    const Options& o = row.options;
    if (o.retention == RetentionKind::helper &&
        (helper == nullptr || (o.limit == 0 && helper->options.limit != 0)))
      helper = &row;
    if (o.retention == RetentionKind::on_demand && row.result->seconds > 0)
      on_demand = row.result->cost.added() / row.result->seconds;
  }
  if (helper == nullptr) return;
  const simulate::Result& r = *helper->result;
  verdict.sentences.push_back(fmt::format("{} would hold {}, {}.",
                                          name.empty() ? "Strategy helper" : name + ": strategy helper",
                                          instead_text(r.registered), cost_text(outcome_of(r))));
  if (!saves(r.registered))
    verdict.sentences.push_back(
        why_not_text({r.registered, r.acquires.total, r.prediction.reuses, r.ranks,
                      helper->options.time_budget, on_demand, r.kept_all_below_bytes}));
  const SimulatedRow* least = nullptr;
  for (const SimulatedRow& row : rows) {
    const Options& o = row.options;
    if (o.retention == RetentionKind::helper && o.limit != 0 && o.limit != helper->options.limit &&
        costs_nothing_more(*row.result, r) && (least == nullptr || o.limit < least->options.limit))
      least = &row;
  }
  const std::string of = name.empty() ? "it" : name;
  if (least != nullptr)
    verdict.advice.push_back({fmt::format("Run {} under a limit of {} a process, which costs nothing more:",
                                          of, bytes_text(static_cast<double>(least->options.limit))),
                              command_text(least->options, program)});
  else if (saves(r.registered))
    verdict.advice.push_back({fmt::format("Run {} so:", of), command_text(helper->options, program)});
}

std::string to_text(const Verdict& verdict, const std::string& indent) {
  std::string out = wrapped(fmt::format("{}", fmt::join(verdict.sentences, " ")), indent);
  for (const Advice& advice : verdict.advice)
    out += wrapped(advice.text, indent) + indent + "  " + advice.command + "\n";
  return out;
}

Json to_json(const Verdict& verdict) {
  Json advice = Json::array();
  for (const Advice& a : verdict.advice) advice.push_back({{"text", a.text}, {"command", a.command}});
  return {{"sentences", verdict.sentences}, {"advice", std::move(advice)}};
}

}  // namespace pinion::cli
