#include "cli/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/report/gpu_copies.h"
#include "cli/report/recommendation.h"
#include "cli/report/report_notes.h"
#include "cli/report/report_tables.h"
#include "cli/text.h"
#include "cli/typed.h"
#include "lease/acts.h"
#include "registry/budget.h"

namespace pinion::cli {

namespace {

using runlog::RegisteredBytes;
using runlog::Report;

/// Whether a run held less than leave-pinned by a share worth a sentence.
bool saves(const RegisteredBytes& held) {
  return static_cast<double>(held.peak) <
             (1 - kWorthChanging) * static_cast<double>(held.leave_pinned_peak) ||
         held.mean < (1 - kWorthChanging) * held.leave_pinned_mean;
}

bool predicts(const Report& r) { return r.retention == to_string(RetentionKind::helper); }

std::string where_text(const Report& r) {
  const runlog::NodeReport& node = r.nodes.front();
  if (r.nodes.size() > 1)
    return fmt::format("Registered memory of node {} ({}), the highest of {}", node.host,
                       plural_text(node.ranks, "rank", "ranks"),
                       plural_text(r.nodes.size(), "node", "nodes"));
  return node.ranks == 1 ? "Registered memory"
                         : fmt::format("Registered memory of {} ranks", count_text(node.ranks));
}

/// Collects sentences and advice on one run.
class Judge {
 public:
  Judge(const Report& r, const Strategies* strategies, const LibrariesPart* held, const TypedProgram& program,
        const SiteText& site_text)
      : r_(r),
        strategies_(strategies),
        held_(held),
        program_(program),
        site_text_(site_text),
        options_(options_to_advise(r)) {}

  Verdict verdict() {
    refused_by_machine();
    unfit();
    if (is_measured(r_))
      say("Pinion only measured: no NIC registers here, and your MPI's own registrations are unchanged.");
    if (r_.copies.any()) say(gpu_copies_text(r_.copies) + ".");
    if (r_.acquires.total == 0) {
      nothing_seen();
    } else if (is_measured(r_)) {
      measured();
    } else {
      acted();
    }
    return std::move(verdict_);
  }

 private:
  void say(std::string sentence) { verdict_.sentences.push_back(std::move(sentence)); }
  void advise(std::string text, std::string command) {
    verdict_.advice.push_back({std::move(text), std::move(command)});
  }

  void nothing_seen() {
    // The threshold is the MPI front's: other users ask for each registration by a call of its own.
    if (r_.job_ranks == 0) return say("No transfer was seen, so no memory was registered for one.");
    say(fmt::format("No transfer of {} or more was seen, so no memory was registered for one.",
                    bytes_text(static_cast<double>(options_.threshold))));
    Options options = options_;
    options.threshold = 4 << 10;
    if (options_.threshold > options.threshold)
      advise(fmt::format("Count smaller transfers too, from {} on:", bytes_text(4 << 10)),
             program_.before + typed_run(options) + program_.after);
  }

  void measured() {
    if (strategies_ == nullptr) return say("The log lacks the events to simulate strategies from.");
    recommend_way();
    if (!verdict_.advice.empty())
      advise("See why no NIC is used here, and who can change it:", "pinion doctor");
  }

  void acted() {
    const RegisteredBytes& held = r_.registered();
    // Less memory is no merit where transfers were refused, or nothing was registered.
    const bool compares = held.bounds_known && held.peak != 0 && r_.acquires.bounced == 0;
    say(fmt::format(
        "{}: {}, {}.{}", where_text(r_),
        compares ? instead_text(held, static_cast<double>(held.leave_pinned_peak), held.leave_pinned_mean)
                 : fmt::format("{} at most, {} on average", bytes_text(static_cast<double>(held.peak)),
                               bytes_text(held.mean)),
        cost_text(r_.cost.added(), r_.wall_seconds),
        held.bounds_known ? "" : " The log lacks the events to compare this with."));
    shortages();
    if (predicts(r_) && held.bounds_known && saves(held)) holder();
    recommend_way();
  }

  void recommend_way() { recommend(verdict_, situation_of(r_, strategies_, held_, program_)); }

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
    if (without_room_ && !is_refused_by_machine())
      say(fmt::format("The limit of {} binds: {} of {} found no room and went without registration, slower.",
                      limit_text(r_), plural_text(without_room_, "transfer", "transfers"),
                      count_text(r_.acquires.total)));
    if (r_.beyond.bytes)
      say(fmt::format("The program's own registrations exceeded the limit by {} at most, for {}.",
                      bytes_text(static_cast<double>(r_.beyond.bytes)), seconds_text(r_.beyond.seconds)));
  }

  bool is_refused_by_machine() const {
    return without_room_ != 0 && options_.limit == 0 && options_.node_limit == 0 &&
           options_.limit_regions == 0;
  }

  /// Returns the origin of the limit in force if it is one of this machine's beside RLIMIT_MEMLOCK; else
  /// nothing.
  std::string limit_beside_memlock() const {
    const Limits limits = find_limits(0, 0, static_cast<int>(r_.nodes.front().ranks), 0, Pinned::uncounted);
    return limits.bytes == r_.limit_bytes ? limits.bytes_from : "";
  }

  /// Headline: a limit that the user did not set, and what to ask for.
  void refused_by_machine() {
    if (!is_refused_by_machine()) return;
    const std::string room =
        r_.limit_bytes == 0 ? "" : " of " + bytes_text(static_cast<double>(r_.limit_bytes)) + " a process";
    const std::string origin = limit_beside_memlock();
    const std::string text = fmt::format(
        "This machine's limit{} {} refused {} of {}: they went without registration, slower.", room,
        origin.empty() ? "on locked memory (RLIMIT_MEMLOCK, `ulimit -l`)" : "(" + origin + ")",
        count_text(without_room_), plural_text(r_.acquires.total, "transfer", "transfers"));
    const Needs needs = needs_of(r_);
    // The pin device's pages count for all processes of the user.
    const auto processes = static_cast<std::uint64_t>(is_trial(r_) ? r_.nodes.front().ranks : 1);
    const std::uint64_t ask = needs.most * processes + (held_ ? held_->most_bytes : 0);
    // Less than there is would not help: others had used the limit up.
    if (needs.most == 0 || ask <= r_.limit_bytes) return say(text);
    say(fmt::format("{} Ask for {}, which holds all; the transfers of one moment need {}.", text,
                    bytes_text(static_cast<double>(ask)),
                    bytes_text(static_cast<double>(needs.least * processes))));
    if (origin.empty())
      advise(
          "Have it raised, by `memlock` in /etc/security/limits.conf or LimitMEMLOCK= of the batch daemon:",
          fmt::format("ulimit -l {}", (ask + 1023) / 1024));
  }

  /// Refusals that no limit explains.
  void unfit() {
    if (without_room_ == r_.acquires.bounced) return;
    say(fmt::format(
        "{} of {} met memory that no device can register: it is unmapped, lacks the rights, or has "
        "guard pages.",
        count_text(r_.acquires.bounced - without_room_),
        plural_text(r_.acquires.total, "transfer", "transfers")));
  }

  const Report& r_;
  const Strategies* strategies_;
  const LibrariesPart* held_;
  const TypedProgram& program_;
  const SiteText& site_text_;
  const Options options_;
  const std::uint64_t without_room_ = bounced_without_room(r_);
  Verdict verdict_;
};

}  // namespace

TypedProgram typed_program(const std::string& command, int ranks) {
  return {ranks > 1 ? fmt::format("mpirun -n {} ", ranks) : "", command};
}

Verdict verdict_of(const Report& report, const Strategies* strategies, const LibrariesPart* held,
                   const TypedProgram& program, const SiteText& site_text) {
  return Judge(report, strategies, held, program, site_text).verdict();
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
  Json ways = Json::array();
  for (const JudgedWay& way : verdict.ways)
    ways.push_back({{"way", way.name},
                    {"peak_bytes", static_cast<std::uint64_t>(way.figures.peak)},
                    {"mean_bytes", way.figures.mean},
                    {"seconds_added", way.figures.added},
                    {"bounced", way.figures.refused}});
  const auto name = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"sentences", verdict.sentences},
          {"advice", std::move(advice)},
          {"choice", name(verdict.choice)},
          {"library_choice", name(verdict.library_choice)},
          {"ways", std::move(ways)}};
}

}  // namespace pinion::cli
