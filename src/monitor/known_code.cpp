#include "monitor/known_code.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <iterator>

#include "base/mix.h"
#include "base/plain_file.h"

namespace pinion {

namespace {

/// The clock that file systems take times from may stand still for a moment, or be another machine's.
constexpr std::int64_t kSettledSeconds = 10;

std::uint64_t mix(std::uint64_t h, const timespec& time) {
  return pinion::mix(pinion::mix(h, static_cast<std::uint64_t>(time.tv_sec)),
                     static_cast<std::uint64_t>(time.tv_nsec));
}

off_t place_of(std::uint64_t fingerprint) {
  return static_cast<off_t>(fingerprint % KnownCode::kFingerprints * sizeof fingerprint);
}

}  // namespace

std::uint64_t fingerprint_of_code(int file, const struct stat& status, std::uint64_t offset,
                                  std::uint64_t bytes, std::uint64_t reader) {
  timespec now{};
  std::uint64_t first_page[512] = {};
  if (::clock_gettime(CLOCK_REALTIME, &now) != 0 || now.tv_sec - status.st_ctim.tv_sec < kSettledSeconds ||
      ::pread(file, first_page, sizeof first_page, 0) <= 0)
    return 0;
  std::uint64_t h = reader;
  for (const std::uint64_t value : {std::uint64_t{status.st_dev}, std::uint64_t{status.st_ino},
                                    static_cast<std::uint64_t>(status.st_size), offset, bytes})
    h = pinion::mix(h, value);
  h = mix(mix(h, status.st_mtim), status.st_ctim);
  for (const std::uint64_t word : first_page) h = pinion::mix(h, word);
  return h;
}

std::string KnownCode::name() { return "pinion-code-" + std::to_string(::geteuid()); }

KnownCode::KnownCode(const std::string& directory) : file_(open_users_file(directory + "/" + name())) {
  if (file_.get() < 0) return;
  may_grow_ = file_size_limit() >= kFingerprints * sizeof(std::uint64_t);
  // Writes nothing: add() may follow in a sandbox that the program closes around the calls that it has seen.
  static_cast<void>(!::pwrite(file_.get(), "", 0, 0));
}

bool KnownCode::has(std::uint64_t fingerprint) const {
  std::uint64_t there = 0;
  return fingerprint != 0 &&
         ::pread(file_.get(), &there, sizeof there, place_of(fingerprint)) == sizeof there &&
         there == fingerprint;
}

void KnownCode::add(std::uint64_t fingerprint) const {
  if (fingerprint == 0 || !may_grow_) return;
  static_cast<void>(!::pwrite(file_.get(), &fingerprint, sizeof fingerprint, place_of(fingerprint)));
}

}  // namespace pinion
