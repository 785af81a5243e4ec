#include "node/stop_request.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "base/own_files.h"
#include "base/process_stat.h"
#include "node/node_table.h"

namespace pinion::node {

namespace {

enum class State : std::uint32_t { asked = 1, stopped = 2 };

struct Content {
  char magic[8];
  std::uint64_t identity;
  std::uint32_t version;
  State state;
  std::uint64_t registered;
};
constexpr char kMagic[8] = {'p', 'i', 'n', 's', 't', 'o', 'p', '\0'};
constexpr std::uint32_t kVersion = 1;
constexpr const char* kDirectory = "/dev/shm";
constexpr const char* kPrefix = "pinion-stop.";

std::string name_of(pid_t process) { return kPrefix + std::to_string(process); }

/// Nobody but `user` and root can have written it. A hard link could lead to a file of another kind.
bool is_of(const struct stat& status, uid_t user) {
  return S_ISREG(status.st_mode) && status.st_uid == user && (status.st_mode & 077) == 0 &&
         status.st_nlink == 1;
}

/// An open file; -1: none.
class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }
  bool is_of(uid_t user) const {
    struct stat status {};
    return ::fstat(number_, &status) == 0 && node::is_of(status, user);
  }
  /// Reads the request for this process; false: it is for another one, or not whole.
  bool read(std::uint64_t identity, Content& content) const {
    return ::pread(number_, &content, sizeof content, 0) == sizeof content &&
           std::memcmp(content.magic, kMagic, sizeof kMagic) == 0 && content.version == kVersion &&
           content.identity == identity;
  }
  bool write(std::uint64_t identity, State state, std::uint64_t registered) const {
    Content content{{}, identity, kVersion, state, registered};
    std::memcpy(content.magic, kMagic, sizeof kMagic);
    return ::pwrite(number_, &content, sizeof content, 0) == sizeof content;
  }

 private:
  const int number_;
};

constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

// ---- in the process ----

constinit std::atomic<bool> g_asked{false};

std::string own_path() { return std::string(kDirectory) + "/" + name_of(::getpid()); }

/// Returns what `use` does with the request to this process; false: there is none.
bool with_request(const std::function<bool(const File&)>& use) {
  struct stat status {};
  const std::string path = own_path();
  if (::lstat(path.c_str(), &status) != 0 || !is_of(status, ::geteuid())) return false;
  bool result = false;
  with_own_files([&] {
    const File file(::open(path.c_str(), O_RDWR | kFlags));
    Content content{};
    result = file.is_of(::geteuid()) && file.read(identity_of(::getpid()), content) && use(file);
  });
  return result;
}

}  // namespace

bool StopRequest::asked() {
  if (g_asked.load(std::memory_order_relaxed)) return true;
  const bool found = with_request([](const File&) { return true; });
  if (found) g_asked.store(true, std::memory_order_relaxed);
  return found;
}

void StopRequest::answer(std::uint64_t registered) {
  if (answered_ == registered) return;
  if (with_request(
          [&](const File& file) { return file.write(identity_of(::getpid()), State::stopped, registered); }))
    answered_ = registered;
}

void StopRequest::remove() const {
  if (answered_) ::unlink(own_path().c_str());
}

// ---- on the other side ----

namespace {

/// A process as the requesting side sees it.
struct Target {
  uid_t user = 0;
  pid_t own_number = 0;  ///< in its own namespace
  std::uint64_t identity = 0;
};

Error find(pid_t process, Target& target) {
  const ProcessStat stat = process_stat(process);
  if (!stat.read || stat.ended) return Error::make(ESRCH, "there is no process %d", process);
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  unsigned real = 0, effective = 0;
  bool known = false;
  target.own_number = process;
  for (std::string line; std::getline(status, line);) {
    if (std::sscanf(line.c_str(), "Uid: %u %u", &real, &effective) == 2) known = true;
    // The numbers in each namespace that it is in, its own last.
    if (line.rfind("NSpid:", 0) == 0)
      target.own_number = std::atoi(line.c_str() + line.find_last_of(" \t") + 1);
  }
  if (!known) return Error::make(ESRCH, "there is no process %d", process);
  target.user = effective;
  target.identity = static_cast<std::uint64_t>(target.own_number) << 32 | (stat.started & 0xffffffff);
  if (::geteuid() != 0 && ::geteuid() != target.user)
    return Error::make(EPERM, "process %d is of user %u: that user or root may stop Pinion in it", process,
                       target.user);
  return {};
}

/// The process's /dev/shm. In a container, its files are the container's: no symbolic link is followed there.
int open_directory(pid_t process) {
  const std::string root = "/proc/" + std::to_string(process) + "/root";
  const File its(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (its.number() < 0) return -1;
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_IN_ROOT;
  return static_cast<int>(::syscall(SYS_openat2, its.number(), kDirectory, &how, sizeof how));
}

Error failed(pid_t process, const char* what) {
  const int code = errno;
  return Error::make(code, "process %d: %s of its %s: %s", process, what, kDirectory, std::strerror(code));
}

/// Removes this user's requests to processes that have ended.
void remove_abandoned() {
  DIR* const directory = ::opendir(kDirectory);
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    if (std::strncmp(entry->d_name, kPrefix, std::strlen(kPrefix)) != 0) continue;
    const int process = std::atoi(entry->d_name + std::strlen(kPrefix));
    struct stat status {};
    // Processes of other namespaces have numbers of their own: an hour is more than a request takes.
    constexpr time_t kOld = 3600;
    if (process > 0 && !process_stat(process).read && name_of(process) == entry->d_name &&
        ::fstatat(::dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_of(status, ::geteuid()) && ::time(nullptr) - status.st_mtime > kOld)
      ::unlinkat(::dirfd(directory), entry->d_name, 0);
  }
  ::closedir(directory);
}

}  // namespace

Error ask_to_stop(pid_t process) {
  Target target;
  if (const Error error = find(process, target)) return error;
  remove_abandoned();
  const File directory(open_directory(process));
  if (directory.number() < 0) return failed(process, "opening");
  const std::string name = name_of(target.own_number);
  {
    const File before(::openat(directory.number(), name.c_str(), O_RDONLY | kFlags));
    Content content{};
    if (before.is_of(target.user) && before.read(target.identity, content)) return {};
  }
  // What lies there is of an earlier process of that number, or another user's.
  if (::unlinkat(directory.number(), name.c_str(), 0) != 0 && errno != ENOENT)
    return failed(process, ("removing " + name).c_str());
  const File file(
      ::openat(directory.number(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, S_IRUSR | S_IWUSR));
  if (file.number() < 0) return failed(process, ("creating " + name).c_str());
  if (::fchown(file.number(), target.user, static_cast<gid_t>(-1)) != 0 ||
      !file.write(target.identity, State::asked, 0)) {
    const Error error = failed(process, ("writing " + name).c_str());
    ::unlinkat(directory.number(), name.c_str(), 0);
    return error;
  }
  return {};
}

std::optional<StopAnswer> stop_answer(pid_t process) {
  Target target;
  if (find(process, target)) return {};
  const File directory(open_directory(process));
  const File file(::openat(directory.number(), name_of(target.own_number).c_str(), O_RDONLY | kFlags));
  Content content{};
  if (!file.is_of(target.user) || !file.read(target.identity, content) || content.state != State::stopped)
    return {};
  return StopAnswer{content.registered};
}

}  // namespace pinion::node
