#include "base/kept_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace pinion {

namespace {

/// Calls the kernel itself, because programs' preloads may answer fstat() in their own way. Each io_uring and
/// each userfaultfd has an inode of its own since Linux 5.16.
bool status_of(int descriptor, struct stat& status) {
#ifdef SYS_fstat
  return ::syscall(SYS_fstat, descriptor, &status) == 0;
#else
  return ::fstat(descriptor, &status) == 0;
#endif
}

/// The kernel's table of files is as long as the highest number: 8 KiB for these.
int moved_up(int descriptor) {
  constexpr rlim_t kTableEnd = 1024, kRoom = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return descriptor;
  const rlim_t end = std::min(limit.rlim_cur, kTableEnd);
  const rlim_t lowest = end > 2 * kRoom ? end - kRoom : kRoom;
  const int high = ::fcntl(descriptor, F_DUPFD_CLOEXEC, static_cast<int>(lowest));
  return high < 0 ? descriptor : high;
}

}  // namespace

KeptFile::KeptFile(int descriptor) {
  if (descriptor < 0) return;
  number_ = moved_up(descriptor);
  struct stat status {};
  if (!status_of(number_, status)) return;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  // Unless the program has put a file of its own there meanwhile.
  if (number_ != descriptor && is_file(descriptor)) ::close(descriptor);
}

KeptFile& KeptFile::operator=(KeptFile&& other) noexcept {
  if (this == &other) return *this;
  // The new file may have the number that this one has lost: then it closes nothing.
  if (number_ != other.number_) close();
  number_ = std::exchange(other.number_, -1);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

bool KeptFile::is_file(int descriptor) const {
  struct stat status {};
  return descriptor >= 0 && status_of(descriptor, status) && status.st_dev == device_ &&
         status.st_ino == inode_;
}

void KeptFile::close() {
  if (const int descriptor = get(); descriptor >= 0) ::close(descriptor);
  number_ = -1;
}

}  // namespace pinion
