#include "transfer/endpoint/shm_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace pinion::transfer {

void ShmFile::remember(pid_t process, const std::vector<unsigned char>& address) {
  constexpr std::string_view kScheme = "fi_shm://";
  std::string name(address.begin(), std::find(address.begin(), address.end(), 0));
  if (name.starts_with(kScheme)) name.erase(0, kScheme.size());
  if (!name.starts_with(std::to_string(process) + ":") ||
      name.find_first_not_of("0123456789:") != std::string::npos)
    return;
  const std::string path = "/dev/shm/" + name;
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != ::geteuid()) return;
  path_ = path;
  device_ = file.st_dev;
  inode_ = file.st_ino;
}

void ShmFile::remove() const {
  struct stat file {};
  if (!path_.empty() && ::lstat(path_.c_str(), &file) == 0 && file.st_dev == device_ && file.st_ino == inode_)
    ::unlink(path_.c_str());
}

}  // namespace pinion::transfer
