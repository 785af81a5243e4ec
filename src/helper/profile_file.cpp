#include "helper/profile_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/mix.h"
#include "base/plain_file.h"
#include "base/warning.h"
#include "predict/profile.h"

namespace pinion {

namespace {

constexpr off_t kMostBytes = 64 << 20;

/// glibc's struct dl_find_object, of <dlfcn.h>.
struct FoundObject {
  std::uint64_t flags;
  Address map_start, map_end;
  void *link_map, *eh_frame;
  std::uint64_t reserved[7];
};
/// glibc's since 2.35; null before. Weak and declared here, so that a build for an older glibc uses it too.
extern "C" [[gnu::weak]] int find_object(Address code, FoundObject* found) __asm__("_dl_find_object");

struct File {
  explicit File(int number) : fd(number) {}
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  const int fd;
};

Error failed(const char* what, const std::string& path) {
  return Error::make(errno, "%s: %s: %s", path.c_str(), what, open_failure(errno));
}

Error foreign(const std::string& path) {
  return Error::make(EINVAL, "%s: not a profile of Pinion", path.c_str());
}

/// A mistyped name may lead to any file of the user's. An empty one has nothing to lose.
bool is_profile_or_empty(const std::string& bytes) { return bytes.empty() || Profile::has_mark(bytes); }

}  // namespace

std::string profile_path(const std::string& path, int rank) {
  return rank > 0 ? path + "." + std::to_string(rank) : path;
}

Error read_profile(const std::string& path, std::string& bytes) {
  bytes.clear();
  const File file(open_plain_file(path, O_RDONLY));
  if (file.fd < 0) return errno == ENOENT ? Error{} : failed("cannot be opened", path);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) return failed("cannot be read", path);
  if (status.st_size > kMostBytes) return foreign(path);
  if (!read_up_to(file.fd, static_cast<std::size_t>(status.st_size), bytes))
    return failed("cannot be read", path);
  if (is_profile_or_empty(bytes)) return {};
  bytes.clear();
  return foreign(path);
}

Error write_profile(const std::string& path, const std::string& bytes) {
  std::string replaced;
  if (Error unread = read_profile(path, replaced)) return unread;
  const std::string part = path + ".part." + std::to_string(::getpid());
  {
    const File file(replace_plain_file(part));
    if (file.fd < 0) return failed("cannot be written", part);
    if (!write_whole(file.fd, bytes)) {
      const Error error = failed("cannot be written", part);
      ::unlink(part.c_str());
      return error;
    }
  }
  if (::rename(part.c_str(), path.c_str()) == 0) return {};
  const Error error = failed("cannot be written", path);
  ::unlink(part.c_str());
  return error;
}

std::uint64_t StableSites::name(CallSite site) {
  if (const auto known = names_.find(site); known != names_.end()) return known->second;
  std::uint64_t name = 0;
  CallFrames frames;
  if (find_object != nullptr && call_site_frames(site, frames)) {
    name = mix(7, frames.depth);
    for (std::uint32_t i = 0; i < frames.depth; ++i) {
      // A return address may lie behind its function's last byte: look up the call instead.
      const Address address = frames.return_addresses[i] - 1;
      FoundObject found{};
      if (find_object(address, &found) == 0)
        name = mix(mix(name, found.map_end - found.map_start), address - found.map_start);
    }
  }
  if (name == 0) name = site;
  if (names_.size() == kMost) names_.clear();
  names_.emplace(site, name);
  return name;
}

LearntProfile::LearntProfile(const std::string& path, int rank)
    : path_(path.empty() ? path : profile_path(path, rank)) {
  if (!wanted()) return;
  // A profile that cannot be used is left out; the run goes on.
  if (Error unread = read_profile(path_, bytes_)) warn("no profile: %s", unread.message);
}

void LearntProfile::begin(Predictor& predictor) const {
  if (bytes_.empty()) return;
  if (Error unused = predictor.load_profile(bytes_)) warn("%s", unused.message);
}

void LearntProfile::keep(const std::vector<std::string>& profiles) const {
  const auto most = std::max_element(profiles.begin(), profiles.end(),
                                     [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (!wanted() || most == profiles.end() || most->empty()) return;
  if (Error failed = write_profile(path_, *most)) warn("profile: %s", failed.message);
}

}  // namespace pinion
