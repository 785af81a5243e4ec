#include "node/stop_request.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
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

/// Others may hold a name; another is taken then.
constexpr unsigned kNames = 4;

/// Containers may share /dev/shm and number their processes each for itself.
std::string name_of(std::uint64_t space, pid_t process, unsigned i) {
  return kPrefix + std::to_string(space) + "-" + std::to_string(process) + "." + std::to_string(i);
}

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

/// The names of the requests to this process.
std::array<std::string, kNames> own_paths() {
  std::array<std::string, kNames> paths;
  const std::uint64_t space = pid_namespace();
  for (unsigned i = 0; i < kNames; ++i)
    paths[i] = std::string(kDirectory) + "/" + name_of(space, ::getpid(), i);
  return paths;
}

bool may_be_believed(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && is_of(status, ::geteuid());
}

/// Returns what `use` does with the request to this process; false: there is none.
bool with_request(const std::function<bool(const File&)>& use) {
  bool result = false;
  for (const std::string& path : own_paths()) {
    if (result || !may_be_believed(path)) continue;
    with_own_files([&] {
      const File file(::open(path.c_str(), O_RDWR | kFlags));
      Content content{};
      result = file.is_of(::geteuid()) && file.read(identity_of(::getpid()), content) && use(file);
    });
  }
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
  if (!answered_) return;
  for (const std::string& path : own_paths())
    if (may_be_believed(path)) ::unlink(path.c_str());
}

// ---- on the other side ----

namespace {

/// A process as the requesting side sees it.
struct Target {
  uid_t user = 0;
  pid_t own_number = 0;  ///< in its own namespace
  std::uint64_t space = 0;
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
  target.space = pid_namespace(process);
  target.identity = static_cast<std::uint64_t>(target.own_number) << 32 | (stat.started & 0xffffffff);
  if (::geteuid() != 0 && ::geteuid() != target.user)
    return Error::make(EPERM, "process %d is of user %u: that user or root may stop Pinion in it", process,
                       target.user);
  if (target.space == 0) return Error::make(EPERM, "process %d: its namespace cannot be seen", process);
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

/// Removes this user's requests to processes of this namespace that have ended.
void remove_abandoned() {
  DIR* const directory = ::opendir(kDirectory);
  if (directory == nullptr) return;
  const std::uint64_t own = pid_namespace();
  while (const dirent* entry = ::readdir(directory)) {
    unsigned long long space = 0;
    int process = 0;
    unsigned i = 0;
    struct stat status {};
    if (std::strncmp(entry->d_name, kPrefix, std::strlen(kPrefix)) == 0 &&
        std::sscanf(entry->d_name + std::strlen(kPrefix), "%llu-%d.%u", &space, &process, &i) == 3 &&
        space == own && process > 0 && name_of(space, process, i) == entry->d_name &&
        !process_stat(process).read &&
        ::fstatat(::dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_of(status, ::geteuid()))
      ::unlinkat(::dirfd(directory), entry->d_name, 0);
  }
  ::closedir(directory);
}

std::optional<Content> request_to(const Target& target, int directory) {
  for (unsigned i = 0; i < kNames; ++i) {
    const File file(
        ::openat(directory, name_of(target.space, target.own_number, i).c_str(), O_RDONLY | kFlags));
    Content content{};
    if (file.is_of(target.user) && file.read(target.identity, content)) return content;
  }
  return {};
}

/// Removes what lies at a name, of an earlier process of that number, or another user's, and creates the
/// file there.
int create_anew(int directory, const std::string& name) {
  if (::unlinkat(directory, name.c_str(), 0) != 0 && errno != ENOENT) return -1;
  return ::openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, S_IRUSR | S_IWUSR);
}

}  // namespace

Error ask_to_stop(pid_t process) {
  Target target;
  if (const Error error = find(process, target)) return error;
  remove_abandoned();
  const File directory(open_directory(process));
  if (directory.number() < 0) return failed(process, "opening");
  if (request_to(target, directory.number())) return {};
  std::string name;
  int created = -1;
  for (unsigned i = 0; i < kNames && created < 0; ++i) {
    name = name_of(target.space, target.own_number, i);
    created = create_anew(directory.number(), name);
  }
  const File file(created);
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
  const std::optional<Content> content = request_to(target, directory.number());
  if (!content || content->state != State::stopped) return {};
  return StopAnswer{content->registered};
}

}  // namespace pinion::node
