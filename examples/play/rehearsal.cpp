#include "rehearsal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace play {

namespace {

/// Smaller messages stay unregistered.
bool is_used(Range memory) { return memory.bytes() >= pinion::simulate::Machine{}.threshold; }

std::vector<Range> uses_of(const Step& step) {
  std::vector<Range> uses;
  for (const Range& memory : {step.memory, step.received})
    if (step.call != CallKind::none && is_used(memory)) uses.push_back(memory);
  return uses;
}

std::vector<Range> uses_of(const Steps& steps) {
  std::vector<Range> uses;
  const auto add = [&](const std::vector<Step>& part) {
    for (const Step& step : part)
      for (const Range& use : uses_of(step)) uses.push_back(use);
  };
  add(steps.before);
  for (std::uint64_t turn = 0; turn < steps.turns; ++turn) add(steps.turn);
  add(steps.after);
  return uses;
}

std::string from_environment(const char* name, int rank) {
  const char* prefix = std::getenv(name);
  return prefix && *prefix ? std::string(prefix) + "." + std::to_string(rank) : "";
}

}  // namespace

Error Rehearsal::prepare(const Steps& steps, int rank) {
  kept_ = from_environment("PINION_TEST_REHEARSAL", rank);
  const std::string rehearsed = from_environment("PINION_TEST_SCHEDULE", rank);
  if (kept_.empty() && rehearsed.empty()) return {};
  uses_ = uses_of(steps);
  if (rehearsed.empty()) return {};
  kept_ = rehearsed;
  std::vector<Duration> intervals;
  if (Error error = read(intervals)) return error;
  if (intervals.size() != uses_.size())
    return Error::make(EINVAL, "%.200s: no rehearsal of this program (%zu uses, not %zu)", rehearsed.c_str(),
                       intervals.size(), uses_.size());
  kept_.clear();
  handed_ = pinion::PlayedSchedule::path();
  if (Error error = schedule_.create(handed_, uses_.size())) return error;
  pinion::Time time = 0;
  for (std::size_t at = 0; at < uses_.size(); ++at) {
    time += intervals[at];
    schedule_[at].time = time;
    schedule_[at].range = uses_[at];
  }
  return {};
}

Rehearsal::~Rehearsal() {
  if (!handed_.empty()) ::unlink(handed_.c_str());
}

void Rehearsal::begin(const Step& step) {
  if (uses_.empty()) return;
  for (std::size_t left = uses_of(step).size(); left > 0; --left, ++next_) {
    const pinion::Ticks now = pinion::ticks_now();
    if (schedule_.is_open()) schedule_[next_].begun.store(now, std::memory_order_release);
    if (!kept_.empty()) begun_.push_back(pinion::calibration().to_time(now));
  }
}

Error Rehearsal::read(std::vector<Duration>& intervals) const {
  std::ifstream file(kept_, std::ios::binary);
  for (Duration interval; file.read(reinterpret_cast<char*>(&interval), sizeof interval);)
    intervals.push_back(interval);
  return intervals.empty() ? Error::make(ENOENT, "%.200s: no rehearsal", kept_.c_str()) : Error{};
}

Error Rehearsal::finish() const {
  if (kept_.empty()) return {};
  std::vector<Duration> intervals;
  const bool first = read(intervals) || intervals.size() != begun_.size();
  intervals.resize(begun_.size());
  for (std::size_t at = 0; at < begun_.size(); ++at) {
    const Duration interval = at == 0 ? 0 : begun_[at] - begun_[at - 1];
    intervals[at] = first ? interval : std::min(intervals[at], interval);
  }
  std::ofstream file(kept_, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(intervals.data()),
             static_cast<std::streamsize>(intervals.size() * sizeof(Duration)));
  return file ? Error{} : Error::make(EIO, "%.200s cannot be written", kept_.c_str());
}

}  // namespace play
