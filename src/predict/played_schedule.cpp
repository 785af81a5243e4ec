#include "predict/played_schedule.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/plain_file.h"
#include "predict/schedule_predictor.h"

namespace pinion {

// ---- the file ----

PlayedSchedule::~PlayedSchedule() {
  if (mapped_) ::munmap(mapped_, count_ * sizeof(Use));
}

std::string PlayedSchedule::path() {
  const char* prefix = std::getenv("PINION_TEST_SCHEDULE");
  return prefix && *prefix ? std::string(prefix) + "." + std::to_string(::getpid()) : "";
}

Error PlayedSchedule::create(const std::string& path, std::size_t uses) {
  const int descriptor = replace_plain_file(path, 0600);  // of an earlier process with this number
  Error error;
  if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(uses * sizeof(Use))) != 0)
    error = Error::make(errno, "%.200s: %s", path.c_str(), std::strerror(errno));
  else
    error = map(descriptor, uses * sizeof(Use));
  if (descriptor >= 0) ::close(descriptor);
  return error;
}

Error PlayedSchedule::open(const std::string& path) {
  const int descriptor = open_plain_file(path, O_RDWR);
  struct stat file {};
  Error error;
  if (descriptor < 0 || ::fstat(descriptor, &file) != 0)
    error = Error::make(errno, "%.200s: %s", path.c_str(), std::strerror(errno));
  else if (file.st_uid != ::geteuid())
    error = Error::make(EPERM, "%.200s: not a file of this user", path.c_str());
  else
    error = map(descriptor, static_cast<std::size_t>(file.st_size));
  if (descriptor >= 0) ::close(descriptor);
  return error;
}

Error PlayedSchedule::map(int descriptor, std::size_t bytes) {
  if (bytes < sizeof(Use)) return Error::make(EINVAL, "a schedule without uses");
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED)
    return Error::make(errno, "a schedule cannot be mapped: %s", std::strerror(errno));
  mapped_ = static_cast<Use*>(memory);
  count_ = bytes / sizeof(Use);
  return {};
}

// ---- the predictor ----

namespace {

class PlayedPredictor final : public Predictor {
 public:
  explicit PlayedPredictor(std::string path) : path_(std::move(path)) {}

  const char* name() const override { return "played"; }
  Observed observe(const Use& use) override;
  void forget(BufferId buffer) override {
    if (follower_) follower_->forget(buffer);
  }
  Time next_use(BufferId buffer, Time after) const override {
    return follower_ ? follower_->next_use(buffer, after) : kNever;
  }
  Duration sooner() const override { return sooner_; }

 private:
  /// Follows the schedule of one thread, whose uses it locates by their time.
  class Follower final : public SchedulePredictor {
   public:
    Follower(std::shared_ptr<const Schedule> plan, const PlayedSchedule& played)
        : SchedulePredictor("played", std::move(plan)), played_(played) {}
    using SchedulePredictor::shift_of;

   protected:
    std::optional<std::size_t> locate(const Use& use) const override;

   private:
    const PlayedSchedule& played_;
  };

  void open();

  const std::string path_;
  bool tried_ = false;
  PlayedSchedule played_;
  std::unique_ptr<Follower> follower_;
  Duration sooner_ = 0;
};

/// The last use of the buffer that had begun when the transfer did.
std::optional<std::size_t> PlayedPredictor::Follower::locate(const Use& use) const {
  const Address begin = page_floor(use.address);
  const auto buffer = schedule().buffer_of({begin, begin + use.pages * page_size()});
  if (!buffer) return std::nullopt;
  const std::vector<std::size_t>& positions = schedule().times(*buffer).front().positions;
  const Time time =
      use.time + use.delayed + kMicrosecond;  // both were read from the same counter, then rounded
  const auto after = std::partition_point(positions.begin(), positions.end(), [&](std::size_t at) {
    const Ticks begun = played_[at].begun.load(std::memory_order_acquire);
    return begun != 0 && calibration().to_time(begun) <= time;
  });
  if (after == positions.begin()) return std::nullopt;
  return *std::prev(after);
}

// The program fills in the schedule before its first transfer, but maybe after the predictor is made.
void PlayedPredictor::open() {
  tried_ = true;
  if (const Error error = played_.open(path_)) {
    std::fprintf(stderr, "pinion: PINION_TEST_SCHEDULE: nothing is predicted: %s\n", error.message);
    return;
  }
  auto plan = std::make_shared<Schedule>(1);
  for (std::size_t at = 0; at < played_.size(); ++at) plan->add(0, played_[at].time, played_[at].range, 0);
  follower_ = std::make_unique<Follower>(std::move(plan), played_);
}

Observed PlayedPredictor::observe(const Use& use) {
  if (!tried_) open();
  if (!follower_) return {};
  const Duration before = follower_->shift_of(0);
  Use of_the_thread = use;
  of_the_thread.thread = 0;
  const Observed observed = follower_->observe(of_the_thread);
  sooner_ = std::max<Duration>(before - follower_->shift_of(0), 0);
  return observed;
}

}  // namespace

std::unique_ptr<Predictor> played_predictor() {
  const std::string path = PlayedSchedule::path();
  return path.empty() ? nullptr : std::make_unique<PlayedPredictor>(path);
}

std::unique_ptr<Predictor> make_live_predictor(const std::string& name, unsigned window,
                                               unsigned period_window) {
  std::unique_ptr<Predictor> played = played_predictor();
  return played ? std::move(played) : make_predictor(name, window, period_window);
}

}  // namespace pinion
