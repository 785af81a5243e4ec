#include "device/kernel/shared_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "device/kernel/mapped_pages.h"

namespace pinion {

namespace {

/// A file that was deleted has another name in the kernel's answers, which leads nowhere. The device is left
/// out of the comparison: an overlay's files have two.
bool others_can_cut(const MappedFile& file) {
  struct stat status {};
  if (!file.is_shared || ::stat(file.name.c_str(), &status) != 0 || status.st_ino != file.inode) return false;
  if (!S_ISREG(status.st_mode)) return false;
  const bool is_ours = status.st_uid == ::geteuid() || status.st_uid == 0;
  const mode_t to_others = status.st_gid == status.st_uid ? S_IWOTH : S_IWGRP | S_IWOTH;
  return !is_ours || (status.st_mode & to_others) != 0;
}

std::vector<Range> read_cuttable() {
  std::vector<Range> found;
  for_each_mapped_file([&](const MappedFile& file) {
    if (others_can_cut(file)) found.push_back(file.range);
  });
  return found;
}

bool overlaps(const std::vector<Range>& ranges, Range range) {
  for (const Range one : ranges)
    if (one.overlaps(range)) return true;
  return false;
}

/// Holds what was read last. It is never destroyed: threads may be inside when the process ends.
class LastReading {
 public:
  bool overlaps(Range range) {
    const MutexLock lock(mutex_);
    const Time now = monotonic_now();
    if (now >= read_again_) {
      ranges_ = read_cuttable();
      const Time read = monotonic_now();
      read_again_ = read + kRestAfterReading * (read - now);
    }
    return pinion::overlaps(ranges_, range);
  }

 private:
  Mutex mutex_;
  std::vector<Range> ranges_ GUARDED_BY(mutex_);
  Time read_again_ GUARDED_BY(mutex_) = 0;
};

LastReading& last_reading() {
  static LastReading* const reading = new LastReading;
  return *reading;
}

}  // namespace

bool others_can_cut(Range range) {
  const int maps = mapped_pages().question_file();
  if (maps < 0) return last_reading().overlaps(range);
  AnsweredMapping mapping;
  for (Address at = range.begin; at < range.end && ask_for_mapping(maps, at, mapping);
       at = mapping.range.end) {
    if (!mapping.is_shared || !mapping.of_file) continue;
    MappedFile file;
    if (ask_for_file(maps, at, file) && others_can_cut(file)) return true;
  }
  return false;
}

bool others_can_cut_by_text(Range range) { return overlaps(read_cuttable(), range); }

}  // namespace pinion
