#include "base/plain_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/held_signals.h"

namespace pinion {

namespace {

int open_regular(const std::string& path, int flags, struct stat& status) {
  const int file = ::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) {
    if (errno == ENXIO || errno == EISDIR) errno = EINVAL;  // a socket; a directory
    return -1;
  }
  int code = ::fstat(file, &status) != 0 ? errno : 0;
  if (code == 0 && !S_ISREG(status.st_mode)) code = EINVAL;
  if (code == 0) return file;
  ::close(file);
  errno = code;
  return -1;
}

}  // namespace

int open_plain_file(const std::string& path, int access) {
  struct stat status {};
  return open_regular(path, access | O_NOFOLLOW, status);
}

int open_named_file(const std::string& path) {
  struct stat status {};
  return open_named_file(path, status);
}

int open_named_file(const std::string& path, struct stat& status) {
  return open_regular(path, O_RDONLY, status);
}

int open_users_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  struct stat status {};
  if (::fstat(file, &status) == 0 && is_users_alone(status)) return file;
  if (file >= 0) ::close(file);
  return -1;
}

int create_plain_file(const std::string& path, mode_t mode) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

int replace_plain_file(const std::string& path, mode_t mode) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return -1;
  return create_plain_file(path, mode);
}

bool is_users_alone(const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0 &&
         status.st_nlink <= 1;
}

const char* open_failure(int code) {
  switch (code) {
    case ELOOP:
      return "a symbolic link, which may lead anywhere; name the file itself";
    case EINVAL:
      return "not a regular file";
    default:
      return std::strerror(code);
  }
}

bool read_up_to(int file, std::size_t most, std::string& bytes) {
  bytes.clear();
  char part[4096];  // any size will do
  while (bytes.size() < most) {
    const ssize_t n = ::read(file, part, std::min(sizeof part, most - bytes.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) break;
    bytes.append(part, static_cast<std::size_t>(n));
  }
  return true;
}

std::uint64_t file_size_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur
                                                                                   : UINT64_MAX;
}

int take_file_space(int file, std::uint64_t offset, std::uint64_t bytes) {
  // A signal undoes the work so far: frequent ones would let the call begin anew for ever.
  const HeldSignals held;
  int code = 0;
  do code = ::posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (code == EINTR);
  return code;
}

bool write_whole(int file, const std::string& bytes) {
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
      static_cast<std::uint64_t>(status.st_size) + bytes.size() > file_size_limit()) {
    errno = EFBIG;
    return false;
  }
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace pinion
