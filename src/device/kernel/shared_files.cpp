#include "device/kernel/shared_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/process_mutex.h"
#include "device/kernel/mapped_pages.h"
#include "monitor/memory_calls.h"

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
  const bool listed = for_each_mapped_file([&](const MappedFile& file) {
    if (others_can_cut(file)) found.push_back(file.range);
  });
  if (!listed) found.assign(1, all_addresses());  // unknown: nothing is kept
  return found;
}

bool overlaps(const std::vector<Range>& ranges, Range range) {
  for (const Range one : ranges)
    if (one.overlaps(range)) return true;
  return false;
}

/// Never destroyed: threads may be inside when the process ends.
class CuttableFiles {
 public:
  bool overlaps(Range range) {
    const ProcessLock lock(mutex_);
    return pinion::overlaps(reading_.found(read_cuttable), range);
  }

 private:
  ProcessMutex mutex_;
  LastReading<std::vector<Range>> reading_ GUARDED_BY(mutex_);
};

CuttableFiles& cuttable_files() {
  static CuttableFiles* const files = new CuttableFiles;
  return *files;
}

}  // namespace

bool others_can_cut(Range range) {
  const int maps = mapped_pages().question_file();
  if (maps < 0) return cuttable_files().overlaps(range);
  AnsweredMapping mapping;
  for (Address at = range.begin; at < range.end; at = mapping.range.end) {
    // A gap, or the kernel answers no longer.
    if (!ask_for_mapping(maps, at, mapping)) return cuttable_files().overlaps(range);
    if (!mapping.is_shared || !mapping.of_file) continue;
    MappedFile file;
    if (ask_for_file(maps, at, file) && others_can_cut(file)) return true;
  }
  return false;
}

bool others_can_cut_by_text(Range range) { return overlaps(read_cuttable(), range); }

}  // namespace pinion
