#include "cli/run/compare_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/text.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kFewestForPercent = 5;  ///< runs of each
constexpr double kNoise = 0.01;               ///< of a run's time: differences that need no explanation

const ComparedRow* find(const std::vector<ComparedRow>& rows, const char* name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const ComparedRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

bool overlap(const ComparedRow& a, const ComparedRow& b) {
  return a.least_seconds <= b.most_seconds && b.least_seconds <= a.most_seconds;
}

/// Whether registration accounts for the difference, in its direction and at half its size.
bool is_explained(const ComparedRow& ours, const ComparedRow& theirs) {
  const double difference = ours.seconds - theirs.seconds;
  const double by_registration = ours.added_seconds - theirs.added_seconds;
  return std::abs(difference) <= kNoise * theirs.seconds ||
         (difference * by_registration > 0 && std::abs(difference) <= 2 * std::abs(by_registration));
}

std::string run_text(const ComparedRow& row) {
  return fmt::format("{} for {:.2f} s ({:.2f} to {:.2f})", row.name, row.seconds, row.least_seconds,
                     row.most_seconds);
}

void add_times(Verdict& verdict, const ComparedRow& ours, const ComparedRow& theirs) {
  const bool is_noise = overlap(ours, theirs) || !is_explained(ours, theirs);
  const bool are_many = std::min(ours.runs, theirs.runs) >= kFewestForPercent;
  verdict.sentences.push_back(fmt::format(
      "The program ran under {}, under {}{}.", run_text(ours), run_text(theirs),
      !is_noise && are_many && theirs.seconds > 0 ? ": " + change_text(ours.seconds, theirs.seconds, 0)
                                                  : ""));
  if (overlap(ours, theirs)) {
    verdict.sentences.emplace_back("The difference is noise: it lies within the spread of the runs.");
  } else if (is_noise) {
    verdict.sentences.push_back(fmt::format(
        "Registration explains {} of the difference, the rest is noise: more runs (--repeat 9) on a quiet "
        "machine show less of it.",
        seconds_text(std::abs(ours.added_seconds - theirs.added_seconds))));
  }
}

void choose_row(Verdict& verdict, const std::vector<ComparedRow>& rows, const ChoiceTerms& common) {
  std::vector<const ComparedRow*> of;
  std::vector<WayFigures> figures;
  ChoiceTerms terms = common;
  for (const ComparedRow& row : rows) {
    if (row.bytes.peak == 0) continue;
    if (row.name == "leave-pinned") {
      terms.pinned = terms.present = of.size();
      terms.seconds = row.seconds;
    }
    of.push_back(&row);
    figures.push_back({static_cast<double>(row.bytes.peak), row.bytes.mean, row.added_seconds, row.refused});
  }
  if (of.empty() || of[terms.pinned]->name != "leave-pinned") return;
  const std::size_t chosen = choose(figures, terms);
  if (chosen == terms.pinned) {
    verdict.choice = "nothing to gain";
    verdict.sentences.emplace_back("Nothing to gain: no row is worth a change from leave-pinned.");
    return;
  }
  verdict.choice = of[chosen]->name;
  verdict.advice.push_back({"The best of these rows:", of[chosen]->command});
}

}  // namespace

Verdict verdict_of(const std::vector<ComparedRow>& rows, const Situation& situation) {
  Verdict verdict;
  const ComparedRow* const helper = find(rows, "helper");
  const ComparedRow* const pinned = find(rows, "leave-pinned");
  if (helper && pinned) {
    if (helper->refused == 0 && pinned->refused == 0 && helper->bytes.peak != 0)
      verdict.sentences.push_back(fmt::format(
          "Strategy helper held {}.",
          instead_text(helper->bytes, static_cast<double>(pinned->bytes.peak), pinned->bytes.mean)));
    add_times(verdict, *helper, *pinned);
  }
  const ComparedRow* const limited = find(rows, "helper-limited");
  const ComparedRow* const library = find(rows, "library-limited");
  if (limited && library) {
    add_times(verdict, *limited, *library);
    const bool is_quicker = limited->seconds < library->seconds && !overlap(*limited, *library) &&
                            is_explained(*limited, *library);
    verdict.advice.push_back({"Under the limit:", is_quicker ? limited->command : library->command});
  }
  if (situation.ways.empty())
    choose_row(verdict, rows, {.least_gain = situation.least_gain, .memory_short = situation.memory_short});
  else
    recommend(verdict, situation);
  return verdict;
}

}  // namespace pinion::cli
