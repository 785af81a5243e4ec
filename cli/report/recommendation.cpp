#include "cli/report/recommendation.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/doctor/caches_above.h"
#include "cli/report/report_notes.h"
#include "cli/report/report_tables.h"
#include "cli/text.h"
#include "cli/typed.h"
#include "retention/costs.h"

namespace pinion::cli {

namespace {

/// Uses of a buffer before its period can be known, times a few buffers.
constexpr std::uint64_t kFewTransfers = 16;
/// A library's variable gives the same if it holds at most so much more, for so much more of the run.
constexpr double kSameMemory = 0.05, kSameTime = 1e-3;

double peak_of(const Way& way) { return static_cast<double>(way.result->registered.peak); }
double mean_of(const Way& way) { return way.result->registered.mean; }

bool is_leave_pinned(const Way& way) { return way.options.retention == RetentionKind::leave_pinned; }

/// A library registers so without its cache.
bool is_on_demand(const Way& way) {
  return way.options.retention == RetentionKind::on_demand && way.options.limit == 0;
}

/// Returns the bytes of a cache that lets the least recently used go, as those of UCX and libfabric; 0: it is
/// none.
std::uint64_t cache_bytes(const Way& way) {
  if (is_leave_pinned(way)) return way.options.limit;
  const bool is_plain_lru = way.options.retention == RetentionKind::lru && way.options.limit == 0;
  return is_plain_lru ? way.options.lru_size : 0;
}

std::string held_text(double held, const char* when, double leave_pinned) {
  const std::string change = leave_pinned > 0 ? change_text(held, leave_pinned, 0) : "none";
  if (change == "+0 %" || change == "-0 %")
    return fmt::format("{} {} (as leave-pinned)", bytes_text(held), when);
  return fmt::format("{} {} instead of {} ({})", bytes_text(held), when, bytes_text(leave_pinned), change);
}

/// The ways within a limit of the user's, where one of them refuses nothing; else all.
std::vector<Way> within_limit(std::vector<Way> ways, std::uint64_t limit) {
  const auto is_within = [&](const Way& way) {
    return limit == 0 || (way.options.limit != 0 && way.options.limit <= limit);
  };
  const auto serves = [&](const Way& way) { return is_within(way) && way.result->acquires.bounced == 0; };
  if (std::any_of(ways.begin(), ways.end(), serves))
    std::erase_if(ways, [&](const Way& way) { return !is_within(way); });
  return ways;
}

class Recommendation {
 public:
  Recommendation(Verdict& verdict, const Situation& situation)
      : verdict_(verdict), situation_(situation), ways_(situation.ways) {
    for (const Way& way : ways_) {
      figures_.push_back(figures_of(*way.result));
      verdict.ways.push_back({way_text(way.options), figures_.back()});
    }
    terms_.pinned = find_pinned();
    terms_.present = find_present();
    const simulate::Result& pinned = *ways_[terms_.pinned].result;
    terms_.seconds = pinned.seconds;
    terms_.least_gain = situation.least_gain * ranks_of_node(pinned);
    terms_.memory_short = situation.memory_short;
  }

  void add() {
    if (is_too_short()) return too_short();
    const std::size_t chosen = choose(figures_, terms_);
    if (chosen == terms_.pinned) return nothing();
    if (chosen == terms_.present) return keep();
    change(ways_[chosen]);
  }

 private:
  void say(std::string sentence) { verdict_.sentences.push_back(std::move(sentence)); }
  void advise(std::string text, std::string command) {
    verdict_.advice.push_back({std::move(text), std::move(command)});
  }
  std::string of_program(const char* text) const {
    return situation_.name.empty() ? text : fmt::format("{}: {}", situation_.name, text);
  }

  /// Without a limit, or else with the highest.
  std::size_t find_pinned() const {
    std::size_t found = 0;
    const auto room = [&](std::size_t i) {
      const std::uint64_t limit = ways_[i].options.limit;
      return limit == 0 ? UINT64_MAX : limit;
    };
    for (std::size_t i = 0; i < ways_.size(); ++i)
      if (is_leave_pinned(ways_[i]) && (!is_leave_pinned(ways_[found]) || room(i) > room(found))) found = i;
    return found;
  }
  std::size_t find_present() const {
    if (!situation_.present) return terms_.pinned;
    const auto is_present = [&](const Way& way) {
      return format_options(way.options) == format_options(*situation_.present);
    };
    const auto found = std::find_if(ways_.begin(), ways_.end(), is_present);
    return found == ways_.end() ? ways_.size() : static_cast<std::size_t>(found - ways_.begin());
  }

  // ---- no change ----

  std::uint64_t reuses() const {
    std::uint64_t most = 0;
    for (const Way& way : ways_) most = std::max(most, way.result->prediction.reuses);
    return most;
  }
  bool is_too_short() const {
    const simulate::Result& pinned = *ways_[terms_.pinned].result;
    const auto ranks = static_cast<std::uint64_t>(std::max(1, pinned.ranks));
    return reuses() == 0 || pinned.acquires.total / ranks < kFewTransfers;
  }
  void too_short() {
    verdict_.choice = "too short to tell";
    const runlog::Acquires& pinned = ways_[terms_.pinned].result->acquires;
    // A use inside of an earlier one's memory is a hit, and no reuse: only equal ranges are predicted.
    const std::uint64_t again = std::max(reuses(), pinned.hits + pinned.waits);
    say(fmt::format("{}: {}, of which {} used memory of earlier ones. A longer run shows more.",
                    of_program("There was little to learn from"),
                    plural_text(pinned.total, "transfer", "transfers"), count_text(again)));
  }

  void nothing() {
    verdict_.choice = "nothing to gain";
    const Way& pinned = ways_[terms_.pinned];
    say(fmt::format("{}: of {} {}, none is worth a change from leave-pinned ({} at most, {} on average).",
                    of_program("Nothing to gain"), plural_text(ways_.size(), "way", "ways"),
                    situation_.simulated, bytes_text(peak_of(pinned)), bytes_text(mean_of(pinned))));
    say(why_nothing());
  }

  std::string why_nothing() const {
    ChoiceTerms any_gain = terms_;
    any_gain.least_gain = 0;
    if (choose(figures_, any_gain) != terms_.pinned) return why_too_little();
    const simulate::Result& pinned = *ways_[terms_.pinned].result;
    const runlog::RegisteredBytes& bytes = pinned.registered;
    if (bytes.oracle_mean >= (1 - 2 * kWorthChanging) * bytes.leave_pinned_mean)
      return fmt::format(
          "Nearly all of it is in use all the time: transfers alone hold {} on average, and every strategy "
          "holds at least that.",
          bytes_text(bytes.oracle_mean));
    for (const Way& way : ways_)
      if (way.result->kept_all_below_bytes != 0 && way.options.minimum_gain != 0) return why_too_little();
    return "Its buffers are used again too soon to let them go in between" + cost_of_each_use() + ".";
  }

  std::string why_too_little() const {
    return fmt::format(
        "Letting less than {} go in a process is not worth its cost while memory is not short "
        "(--minimum-gain{}).",
        bytes_text(situation_.least_gain),
        situation_.gain_is_of_this_machine ? "; by this machine's memory, as the log does not tell its own"
                                           : "");
  }

  std::string cost_of_each_use() const {
    for (const Way& way : ways_)
      if (way.options.retention == RetentionKind::on_demand && way.result->seconds > 0)
        return fmt::format(
            ": registering them for each use would cost {} of the run, and a change may cost {}",
            percent_text(way.result->cost.added() / way.result->seconds), percent_text(kWorthPaying));
    return {};
  }

  void keep() {
    verdict_.choice = "keep what you have";
    say(fmt::format("{}: of {} {}, none is better.", of_program("Keep what you have"),
                    plural_text(ways_.size(), "way", "ways"), situation_.simulated));
  }

  // ---- a change ----

  void change(const Way& chosen) {
    verdict_.choice = way_text(chosen.options);
    say(fmt::format("{}, of {} {}: {} would hold {}, {}.", of_program("Best"),
                    plural_text(ways_.size(), "way", "ways"), situation_.simulated, verdict_.choice,
                    figures_text(chosen), cost_text(chosen.result->cost.added(), chosen.result->seconds)));
    if (is_left_alone_by_default(chosen))
      say(fmt::format("Unasked, Pinion would let nothing go: a process uses less than {} (--minimum-gain).",
                      bytes_text(situation_.default_gain)));
    const Way* const library = library_way(chosen);
    if (library == nullptr) return advise(fmt::format("Run {} so{}:", it(), where()), typed(chosen));
    verdict_.library_choice = way_text(library->options);
    advise_variable(*library);
    advise_pinion(*library, chosen);
  }

  bool is_left_alone_by_default(const Way& chosen) const {
    const Way& pinned = ways_[terms_.pinned];
    return chosen.options.retention == RetentionKind::helper &&
           peak_of(pinned) < situation_.default_gain * ranks_of_node(*pinned.result);
  }

  std::string it() const { return situation_.name.empty() ? "it" : situation_.name; }
  std::string where() const { return situation_.acts_here ? "" : ", where a NIC registers"; }

  std::string figures_text(const Way& way) const {
    const Way& pinned = ways_[terms_.pinned];
    if (figures_[terms_.pinned].refused != 0)
      return fmt::format("{} at most, {} on average", bytes_text(peak_of(way)), bytes_text(mean_of(way)));
    return instead_text(way.result->registered, peak_of(pinned), mean_of(pinned));
  }

  /// The library's own cache with a limit that gives the same as `chosen`; null: none does.
  const Way* library_way(const Way& chosen) const {
    if (!situation_.has_library) return nullptr;
    if (serves_as_library(chosen)) return &chosen;
    const Way* found = nullptr;
    for (const Way& way : ways_)
      if (serves_as_library(way) && gives_the_same(way, chosen) && !is_beaten(way) &&
          (found == nullptr || mean_of(way) < mean_of(*found)))
        found = &way;
    return found;
  }
  bool serves_as_library(const Way& way) const {
    return is_on_demand(way) || cache_bytes(way) > situation_.pools.value_or(0);
  }
  bool gives_the_same(const Way& way, const Way& chosen) const {
    const WayFigures theirs = figures_of(*way.result), ours = figures_of(*chosen.result);
    return theirs.refused <= ours.refused && theirs.peak <= (1 + kSameMemory) * ours.peak &&
           theirs.mean <= (1 + kSameMemory) * ours.mean &&
           theirs.added <= ours.added + kSameTime * terms_.seconds;
  }
  /// In peak, mean and time.
  bool is_beaten(const Way& way) const {
    const WayFigures w = figures_of(*way.result);
    return std::any_of(figures_.begin(), figures_.end(), [&](const WayFigures& other) {
      return other.refused <= w.refused && other.peak < w.peak && other.mean < w.mean &&
             other.added < w.added;
    });
  }

  void advise_variable(const Way& library) {
    if (is_on_demand(library))
      return advise(fmt::format("The MPI library can do {} without its cache{}:", it(), where()),
                    caches_off_command());
    const std::string pools = situation_.pools
                                  ? fmt::format("{}, beside the {} of its pools", it(),
                                                bytes_text(static_cast<double>(*situation_.pools)))
                                  : it() + ", with its pools (not in this log) on top";
    advise(fmt::format("The MPI library's own cache can do {}{}:", pools, where()),
           limit_caches_command(cache_bytes(library) - situation_.pools.value_or(0)));
  }

  /// Names what Pinion would add to the library's own cache.
  void advise_pinion(const Way& library, const Way& chosen) {
    const Way* best = nullptr;
    for (const std::size_t i : unbeaten(figures_)) {
      const Way& way = ways_[i];
      if (!adds_little(figures_[i], figures_[terms_.pinned], terms_.seconds)) continue;
      if (mean_of(way) > (1 - kWorthChanging) * mean_of(library)) continue;
      if (peak_of(way) > (1 + kSameMemory) * peak_of(library)) continue;
      if (best == nullptr || mean_of(way) < mean_of(*best)) best = &way;
    }
    if (best != nullptr)
      return advise(fmt::format("Pinion would add to that{}: {} holds {} on average, {}.", where(),
                                way_text(best->options), bytes_text(mean_of(*best)),
                                cost_text(best->result->cost.added(), best->result->seconds)),
                    typed(*best));
    if (is_on_demand(library)) return;
    advise(fmt::format("Pinion would add a limit that counts the pools too{}:", where()), typed(chosen));
  }

  std::string typed(const Way& way) const {
    Options options = way.options;
    if (options.retention != RetentionKind::helper) options.minimum_gain = Options().minimum_gain;
    if (options.retention != RetentionKind::lru) options.lru_size = Options().lru_size;
    // A simulation has none unless it is told so; a run does, where they pay.
    if (!situation_.present && options.hugepages == Hugepages::off) options.hugepages = Options().hugepages;
    return situation_.program.before + typed_run(options) + situation_.program.after;
  }

  Verdict& verdict_;
  const Situation& situation_;
  const std::vector<Way>& ways_;
  std::vector<WayFigures> figures_;
  ChoiceTerms terms_;
};

}  // namespace

bool is_trial(const runlog::Report& r) { return r.acts == runlog::Acts::pinned && has_rank(r); }

Options options_to_advise(const runlog::Report& r) {
  Options options = recorded_options(r.options);
  options.log.clear();
  if (!is_trial(r) && !is_measured(r)) return options;
  options.device = Options().device;
  options.nic = Options().nic;
  options.front = Options().front;  // the front of MPI alone would only measure
  return options;
}

Situation situation_of(const runlog::Report& r, const Strategies* strategies, const LibrariesPart* held,
                       const TypedProgram& program) {
  const Options options = options_to_advise(r);
  Situation situation;
  situation.program = program;
  situation.acts_here = !is_measured(r) && !is_trial(r);
  situation.simulated = "simulated from this run's log";
  if (strategies != nullptr) {
    situation.ways = within_limit(ways_of(*strategies, options), options.limit);
    if (is_measured(r)) situation.simulated += fmt::format(" with NIC '{}'", strategies->nic);
  }
  if (situation.acts_here && options.retention != RetentionKind::observe) situation.present = options;
  const ProcessMemory memory = process_memory(r, options);
  situation.least_gain = least_gain_of(options, options.limit ? options.limit : memory.bytes);
  situation.gain_is_of_this_machine =
      memory.is_of_this_machine && options.limit == 0 && options.minimum_gain == kAutoSize;
  situation.memory_short = bounced_without_room(r) != 0 || r.under_pressure.times != 0;
  // Without Pinion its buffers would lie on ordinary pages, and each registration take far longer.
  const bool in_hugepages = r.hugepages.advised + r.hugepages.bytes > 0;
  situation.has_library = has_rank(r) && r.acts != runlog::Acts::cuda && !in_hugepages;
  if (held) situation.pools = held->most_bytes;
  return situation;
}

double least_gain_of(const Options& options, std::uint64_t limit) {
  const MinimumGain gain({options.minimum_gain, limit});
  return static_cast<double>(gain.in_force(limit, 1));
}

std::string way_text(const Options& options) {
  std::string text = to_string(options.retention);
  if (options.retention == RetentionKind::lru)
    text += " of " + bytes_text(static_cast<double>(options.lru_size)) + " a process";
  if (options.retention == RetentionKind::helper && options.time_budget != Options().time_budget)
    text += options.time_budget < 0 ? " without a time budget"
                                    : " with a time budget of " + percent_text(options.time_budget);
  if (options.limit != 0)
    text += fmt::format(" under a limit of {} a process", bytes_text(static_cast<double>(options.limit)));
  return text;
}

void recommend(Verdict& verdict, const Situation& situation) {
  if (!situation.ways.empty()) Recommendation(verdict, situation).add();
}

std::string instead_text(const runlog::RegisteredBytes& held, double leave_pinned_peak,
                         double leave_pinned_mean) {
  return held_text(static_cast<double>(held.peak), "at most", leave_pinned_peak) + ", " +
         held_text(held.mean, "on average", leave_pinned_mean);
}

std::string cost_text(double added, double seconds) {
  if (added <= 0) return fmt::format("at no cost in time (run: {})", seconds_text(seconds));
  return fmt::format("for {} of {} ({})", seconds_text(added), seconds_text(seconds),
                     percent_text(seconds > 0 ? added / seconds : 0));
}

}  // namespace pinion::cli
