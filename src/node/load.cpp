#include "node/load.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "base/own_files.h"

namespace pinion::node {

namespace {

constexpr double kIdle = 0.5, kBusy = 0.2;  // cores
// A thread that finds an idle core runs within some ten microseconds.
constexpr Duration kWaits = 300 * kMicrosecond;

constexpr const char* kUptime = "/proc/uptime";

int open_file(const char* path) { return ::open(path, O_RDONLY | O_CLOEXEC); }

bool read_from(int file, char (&text)[128]) {
  const ssize_t n = ::pread(file, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  return n > 0;
}

bool read_text(const KeptFile& kept, const char* path, char (&text)[128]) {
  if (!kept.is_open()) return false;
  if (const int file = kept.get(); file >= 0) return read_from(file, text);
  // The program has closed it.
  bool read = false;
  with_own_files([&] { read = read_from(open_file(path), text); });
  return read;
}

}  // namespace

bool core_idle(const LoadSample& sample, bool before) {
  // Cores that this thread's cpuset leaves out may be idle.
  if (sample.delay >= kWaits) return false;
  if (sample.idle_cores < 0) return before;
  if (sample.idle_cores >= kIdle) return true;
  return sample.idle_cores > kBusy && before;
}

void Load::open(pid_t thread) {
  schedstat_path_ = "/proc/self/task/" + std::to_string(thread) + "/schedstat";
  uptime_ = KeptFile(open_file(kUptime));
  schedstat_ = KeptFile(open_file(schedstat_path_.c_str()));
}

bool Load::core_idle(Time now, bool before) {
  char text[128];
  LoadSample sample;
  std::uint64_t whole = 0, hundredths = 0;  // the decimal point of sscanf is the program's locale's
  if (read_text(uptime_, kUptime, text) &&
      std::sscanf(text, "%*u.%*u %" SCNu64 ".%2" SCNu64, &whole, &hundredths) == 2) {
    const double idle = static_cast<double>(whole) + static_cast<double>(hundredths) / 100;
    if (idle_seconds_ >= 0 && now > sampled_)
      sample.idle_cores = (idle - idle_seconds_) * kSecond / static_cast<double>(now - sampled_);
    idle_seconds_ = idle;
  }
  std::uint64_t ran = 0, delay = 0, turns = 0;
  if (read_text(schedstat_, schedstat_path_.c_str(), text) &&
      std::sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &ran, &delay, &turns) == 3) {
    if (sampled_ != 0 && turns > turns_)
      sample.delay = static_cast<Duration>((delay - delay_ns_) / (turns - turns_));
    delay_ns_ = delay;
    turns_ = turns;
  }
  sampled_ = now;
  return node::core_idle(sample, before);
}

}  // namespace pinion::node
