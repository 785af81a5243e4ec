#include "runlog/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace pinion::runlog {

namespace {

constexpr std::int64_t kTenYears = std::int64_t{10} * 365 * 86400 * 1'000'000'000;
constexpr std::int64_t kLatestStart = INT64_MAX / 2;
constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 57;  // the largest user address space there is

class File {
 public:
  explicit File(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }

  bool read(std::uint64_t offset, void* out, std::uint64_t bytes) const {
    auto* at = static_cast<char*>(out);
    while (bytes > 0) {
      const ssize_t got = ::pread(descriptor_, at, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::uint64_t>(got);
    }
    return true;
  }

 private:
  int descriptor_;
};

template <std::size_t size>
bool terminated(const char (&text)[size]) {
  return std::memchr(text, 0, size) != nullptr;
}

// Reports go to terminals: a log must not speak to one.
template <std::size_t size>
void make_printable(char (&text)[size]) {
  for (char& c : text)
    if (c != 0 && std::iscntrl(static_cast<unsigned char>(c))) c = '?';
}

bool amount(double value) { return std::isfinite(value) && value >= 0; }

// Each of these returns what is wrong, or nullptr.

const char* fault_of(const FileHeader& h) {
  if (h.header_bytes != sizeof(FileHeader) || h.live_bytes != sizeof(LiveState) ||
      h.site_bytes != sizeof(SiteEntry) || h.event_bytes != sizeof(Event))
    return "its records have other sizes than its version has";
  if (!terminated(h.pinion_version) || !terminated(h.host) || !terminated(h.command) ||
      !terminated(h.options) || !terminated(h.retention) || !terminated(h.predictor) || !terminated(h.device))
    return "a text without an end";
  if (h.rank < -1 || h.ranks < -1 || h.local_ranks < -1 || h.cores < -1 ||
      (h.ranks >= 0 && h.rank >= h.ranks))
    return "an impossible rank or number of ranks";
  if (!std::has_single_bit(h.page_bytes) || h.page_bytes < 1024 || h.page_bytes > (1u << 30))
    return "an impossible page size";
  if (!amount(h.ns_per_tick) || !amount(h.memcpy_bytes_per_ns)) return "a calibration that is no number";
  if (h.start_ns < 0 || h.start_ns > kLatestStart) return "an impossible start time";
  if (h.live > 1) return "no valid state";
  if (h.site_count > kMaxSites) return "more call sites than its table holds";
  if (h.event_count > h.events_capacity) return "more events than its capacity";
  return nullptr;
}

const char* fault_of(const LiveState& live, const FileHeader& h) {
  if (live.last_ns < h.start_ns || live.last_ns - h.start_ns > kTenYears) return "an impossible end time";
  if (live.series_bin_ns <= 0 || live.series_bin_ns > kTenYears || live.complete > 1)
    return "a damaged state";
  const Counters& c = live.counters;
  for (const double value : {c.registered_byte_ns, c.fit_register_a_ns, c.fit_register_b_ns,
                             c.fit_deregister_a_ns, c.fit_deregister_b_ns, c.leave_pinned_registration_ns})
    if (!amount(value)) return "a counter that is no number";
  if (c.registered_peak_bytes > kAddressEnd || c.registered_now_bytes > kAddressEnd ||
      c.leave_pinned_bytes > kAddressEnd || live.pinned_at_exit_bytes > kAddressEnd)
    return "more registered bytes than there are addresses";
  for (const SeriesBin& bin : live.series)
    if (!amount(bin.byte_ns) || bin.peak_bytes > kAddressEnd) return "a damaged time series";
  return nullptr;
}

const char* fault_of(const SiteEntry& site) {
  if (site.frame_count > kMaxFrames) return "a call site with too many frames";
  if (!terminated(site.name)) return "a call site whose name has no end";
  return nullptr;
}

const char* fault_of(const Event& e, const FileHeader& h) {
  if (e.kind < EventKind::lease || e.kind > EventKind::memory_event) return "an event of unknown kind";
  if (e.outcome > Outcome::observed) return "an event with an unknown outcome";
  if (e.begin_ns < 0 || e.end_ns < e.begin_ns) return "an event whose time runs backwards";
  if (e.end_ns - h.start_ns > kTenYears) return "an event with an impossible time";
  if (e.address > kAddressEnd || e.bytes > kAddressEnd - e.address)
    return "an event with an impossible range";
  return nullptr;
}

Error corrupt(const std::string& path, const char* reason) {
  return Error::make(EINVAL, "%.200s: corrupt log: %s", path.c_str(), reason);
}

Error truncated(const std::string& path) {
  return Error::make(EINVAL, "%.200s: truncated log: the file ends before what its header counts",
                     path.c_str());
}

}  // namespace

std::int64_t Log::last_ns() const {
  std::int64_t last = live.last_ns;
  if (!live.complete)
    for (const Event& event : events) last = std::max(last, event.end_ns);
  return last;
}

bool Log::all_events() const {
  return live.counters.events_dropped == 0 && live.counters.records_dropped == 0;
}

Error read_log(const std::string& path, Log& log) {
  log = {};
  log.path = path;
  const File file(path);
  struct stat status {};
  if (file.descriptor() < 0 || ::fstat(file.descriptor(), &status) != 0) {
    const int code = errno;
    return Error::make(code, "%.200s: %s", path.c_str(), std::strerror(code));
  }
  if (!S_ISREG(status.st_mode)) return Error::make(EINVAL, "%.200s: not a file", path.c_str());
  const auto size = static_cast<std::uint64_t>(status.st_size);

  FileHeader& header = log.header;
  constexpr std::uint64_t begin_bytes = offsetof(FileHeader, header_bytes);
  if (size < begin_bytes || !file.read(0, &header, begin_bytes) ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return Error::make(EINVAL, "%.200s: not a Pinion log", path.c_str());
  if (header.version > kVersion)
    return Error::make(ENOTSUP,
                       "%.200s: log format %u, written by a newer Pinion; this one (%s) reads up to %u",
                       path.c_str(), header.version, PINION_VERSION, kVersion);
  if (header.version == 0) return corrupt(path, "format version 0");
  if (size < sites_offset() || !file.read(0, &header, sizeof header)) return truncated(path);
  if (const char* fault = fault_of(header)) return corrupt(path, fault);
  make_printable(header.pinion_version);
  make_printable(header.host);
  make_printable(header.command);
  make_printable(header.options);
  make_printable(header.retention);
  make_printable(header.predictor);
  make_printable(header.device);

  if (!file.read(live_offset() + header.live * sizeof(LiveState), &log.live, sizeof(LiveState)))
    return truncated(path);
  if (const char* fault = fault_of(log.live, header)) return corrupt(path, fault);

  if (header.site_count > (size - sites_offset()) / sizeof(SiteEntry)) return truncated(path);
  log.sites.resize(header.site_count);
  if (!file.read(sites_offset(), log.sites.data(), log.sites.size() * sizeof(SiteEntry)))
    return truncated(path);
  for (SiteEntry& site : log.sites) {
    if (const char* fault = fault_of(site)) return corrupt(path, fault);
    make_printable(site.name);
  }

  const std::uint64_t room = size < events_offset() ? 0 : (size - events_offset()) / sizeof(Event);
  if (header.event_count > room) return truncated(path);
  log.events.resize(std::min(header.event_count, kMaxEvents));
  log.live.counters.events_dropped += header.event_count - log.events.size();
  if (!file.read(events_offset(), log.events.data(), log.events.size() * sizeof(Event)))
    return truncated(path);
  for (Event& event : log.events) {
    // A memory event may be of the whole address space: what happened was not seen, so nothing may be kept.
    if (event.kind == EventKind::memory_event && event.address <= kAddressEnd)
      event.bytes = std::min(event.bytes, kAddressEnd - event.address);
    if (const char* fault = fault_of(event, header)) return corrupt(path, fault);
  }
  return {};
}

Error read_logs(const std::vector<std::string>& paths, std::vector<Log>& logs) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code failed;
    if (!fs::is_directory(path, failed)) {
      files.push_back(path);
      continue;
    }
    const std::size_t before = files.size();
    for (fs::directory_iterator entry(path, failed), end; !failed && entry != end; entry.increment(failed))
      if (entry->path().extension() == ".plog") files.push_back(entry->path().string());
    if (failed) return Error::make(failed.value(), "%.200s: %s", path.c_str(), failed.message().c_str());
    if (files.size() == before)
      return Error::make(ENOENT, "%.200s: no run logs (*.plog) in this directory", path.c_str());
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  if (files.empty()) return Error::make(ENOENT, "no run log given");
  for (const std::string& file : files) {
    Log log;
    if (Error error = read_log(file, log)) return error;
    logs.push_back(std::move(log));
  }
  return {};
}

}  // namespace pinion::runlog
