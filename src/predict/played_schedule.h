// For tests of live runs: a program with a fixed schedule of uses (examples/play) hands it to the predictor
// of its own process, so that perfect prediction runs live. Under PINION_TEST_SCHEDULE=PREFIX both
// map the file PREFIX.<process id>. The program writes down the beginning of each use, so the predictor
// locates uses by time, even where records are lost or sum up many uses.
//
// The program is one thread; the predictor belongs to the helper. They share `begun` only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"
#include "predict/predictor.h"

namespace pinion {

class PlayedSchedule {
 public:
  struct Use {
    Time time;                 ///< planned, from any origin
    Range range;               ///< of the transfer
    std::atomic<Ticks> begun;  ///< 0: not yet
  };

  PlayedSchedule() = default;
  ~PlayedSchedule();
  PlayedSchedule(const PlayedSchedule&) = delete;
  PlayedSchedule& operator=(const PlayedSchedule&) = delete;

  /// The file of this process; empty where PINION_TEST_SCHEDULE is unset or empty.
  static std::string path();
  /// The program's part: creates the file. All is zero until filled in, which precedes the first transfer.
  Error create(const std::string& path, std::size_t uses);
  /// The predictor's part. The file's name may be removed afterwards.
  Error open(const std::string& path);

  bool is_open() const { return mapped_ != nullptr; }
  std::size_t size() const { return count_; }
  Use& operator[](std::size_t position) const { return mapped_[position]; }

 private:
  Error map(int descriptor, std::size_t bytes);

  Use* mapped_ = nullptr;
  std::size_t count_ = 0;
};

/// The predictor that follows the schedule of this process; null where PINION_TEST_SCHEDULE is unset or
/// empty.
std::unique_ptr<Predictor> played_predictor();
/// The predictor of a live run: the schedule's, where there is one, else the one of that name.
std::unique_ptr<Predictor> make_live_predictor(const std::string& name, unsigned window,
                                               unsigned period_window);

}  // namespace pinion
