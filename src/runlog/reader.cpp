#include "runlog/reader.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>

#include "base/plain_file.h"
#include "base/range.h"
#include "base/shown_text.h"
#include "base/version.h"
#include "runlog/one_run.h"

namespace pinion::runlog {

namespace {

constexpr std::int64_t kTenYears = std::int64_t{10} * 365 * 86400 * 1'000'000'000;
constexpr std::int64_t kLatestStart = INT64_MAX / 2;
constexpr std::int32_t kMostRanks = 1 << 24;  // reports look for each one of a job

class File {
 public:
  explicit File(const std::string& path) : descriptor_(open_plain_file(path, O_RDONLY)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }

  /// Writers share a lock on it (node_file.h).
  bool written_to() const {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK;
    ::flock(descriptor_, LOCK_UN);
    return false;
  }

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

bool amount(double value) { return std::isfinite(value) && value >= 0; }

// Each of these returns the fault, or nullptr.

const char* fault_of(const NodeHeader& h) {
  if (h.chunk_bytes != kChunkBytes || h.process_bytes != sizeof(ProcessHeader) ||
      h.live_bytes != live_bytes(h.version) || h.site_bytes != site_bytes(h.version) ||
      h.event_bytes != sizeof(Event) || h.domain_bytes != sizeof(DomainEntry) ||
      h.module_bytes != sizeof(ModuleEntry))
    return "its records have other sizes than its version has";
  return nullptr;
}

const char* fault_of(const ProcessHeader& h) {
  if (!terminated(h.pinion_version) || !terminated(h.host) || !terminated(h.command) ||
      !terminated(h.options) || !terminated(h.retention) || !terminated(h.predictor) || !terminated(h.device))
    return "a text without an end";
  if (h.rank < -1 || h.ranks < -1 || h.local_ranks < -1 || h.cores < -1 || h.ranks > kMostRanks ||
      (h.ranks >= 0 && h.rank >= h.ranks))
    return "an impossible rank or number of ranks";
  if (!std::has_single_bit(h.page_bytes) || h.page_bytes < 1024 || h.page_bytes > (1u << 30))
    return "an impossible page size";
  if (!amount(h.ns_per_tick) || !amount(h.memcpy_bytes_per_ns)) return "a calibration that is no number";
  if (h.start_ns < 0 || h.start_ns > kLatestStart) return "an impossible start time";
  if (h.live > 1) return "no valid state";
  if (h.acts > kLastActs) return "an unknown way to act";
  if (h.site_count > kMaxSites) return "more call sites than its table holds";
  if (h.domain_count > kMaxDomains) return "more domains than its table holds";
  if (h.module_count > kMaxModules) return "more modules than its table holds";
  return nullptr;
}

const char* fault_of(const DomainEntry& domain) {
  if (!terminated(domain.device) || !terminated(domain.nic) || !terminated(domain.description))
    return "a domain with a text without an end";
  return nullptr;
}

const char* fault_of(const DomainState& domain) {
  for (const double value : {domain.registered_byte_ns, domain.fit_register_a_ns, domain.fit_register_b_ns,
                             domain.fit_deregister_a_ns, domain.fit_deregister_b_ns})
    if (!amount(value)) return "a figure of a domain that is no number";
  if (domain.registered_peak_bytes > kAddressEnd || domain.registered_now_bytes > kAddressEnd)
    return "more registered bytes in a domain than there are addresses";
  return nullptr;
}

const char* fault_of(const LiveState& live, const ProcessHeader& h) {
  if (live.last_ns < h.start_ns || live.last_ns - h.start_ns > kTenYears) return "an impossible end time";
  if (live.series_bin_ns <= 0 || live.series_bin_ns > kTenYears || live.complete > 1)
    return "a damaged state";
  const Counters& c = live.counters;
  if (!amount(c.registered_byte_ns) || !amount(c.leave_pinned_registration_ns) || !amount(c.exposed_byte_ns))
    return "a counter that is no number";
  if (c.registered_peak_bytes > kAddressEnd || c.registered_now_bytes > kAddressEnd ||
      c.leave_pinned_bytes > kAddressEnd || live.pinned_at_exit_bytes > kAddressEnd ||
      c.kernel_pinned_peak_bytes > kAddressEnd)
    return "more registered bytes than there are addresses";
  if (c.lateness.kept > Lateness::kMost || (c.lateness.kept > 0 && c.lateness.stride == 0))
    return "more wake-ups than are kept";
  for (const DomainState& domain : live.domains)
    if (const char* fault = fault_of(domain)) return fault;
  for (const SeriesBin& bin : live.series)
    if (!amount(bin.byte_ns) || bin.peak_bytes > kAddressEnd) return "a damaged time series";
  return nullptr;
}

const char* fault_of(const ModuleEntry& module) {
  if (module.end < module.begin) return "a module that ends before it begins";
  if (module.build_id_bytes > kMostBuildIdBytes) return "a module with too long a build id";
  if (!terminated(module.path)) return "a module whose path has no end";
  return nullptr;
}

const char* fault_of(const SiteEntry& site) {
  if (site.frame_count > kMaxFrames) return "a call site with too many frames";
  if (site.first_frame > site.frame_count) return "a call site that begins after its frames";
  if (!terminated(site.name) || !terminated(site.python)) return "a call site whose name has no end";
  return nullptr;
}

const char* fault_of(const Event& e, const ProcessHeader& h) {
  if (e.kind < EventKind::lease || e.kind > kLastKind) return "an event of unknown kind";
  if (e.kind == EventKind::transfer && e.protocol > kLastProtocol)
    return "a transfer with an unknown protocol";
  if (e.kind != EventKind::transfer && e.outcome > Outcome::observed)
    return "an event with an unknown outcome";
  if (e.kind == EventKind::uses && e.count == 0) return "a run of no uses";
  if (e.begin_ns < 0 || e.end_ns < e.begin_ns) return "an event whose time runs backwards";
  if (e.end_ns - h.start_ns > kTenYears) return "an event with an impossible time";
  if (e.domain >= kMaxDomains) return "an event of an impossible domain";
  if (e.address > kAddressEnd || e.bytes > kAddressEnd - e.address)
    return "an event with an impossible range";
  if (e.page_order != 0 && (std::uint64_t{h.page_bytes} << e.page_order) > kLargestPage)
    return "an event in pages of an impossible size";
  return nullptr;
}

// `which` names the log, where a file has several.
Error corrupt(const std::string& which, const char* reason) {
  return Error::make(EINVAL, "%.240s: corrupt log: %s", which.c_str(), reason);
}

Error truncated(const std::string& which) {
  return Error::make(EINVAL, "%.240s: truncated log: the file is shorter than its header states",
                     which.c_str());
}

/// A chunk of a process's log: its place there, and where it lies in the file.
struct Chunk {
  std::uint64_t index;
  std::uint64_t offset;
};

// The log of a process, as far as the file holds it.
class Section {
 public:
  /// `chunks` in the order of their places, no place twice.
  Section(const File& file, const std::vector<Chunk>& chunks) : file_(file), chunks_(chunks) {}

  /// False where a chunk is missing.
  bool read(std::uint64_t offset, void* out, std::uint64_t bytes) const {
    auto* at = static_cast<char*>(out);
    for (auto chunk = find(offset / kChunkBytes); bytes > 0; ++chunk) {
      const std::uint64_t within = offset % kChunkBytes;
      if (chunk == chunks_.end() || chunk->index != offset / kChunkBytes) return false;
      const std::uint64_t part = std::min(bytes, kChunkBytes - within);
      if (!file_.read(chunk->offset + within, at, part)) return false;
      at += part;
      offset += part;
      bytes -= part;
    }
    return true;
  }

  /// Bytes that are there without a gap, from the chunk boundary `offset` on.
  std::uint64_t bytes_from(std::uint64_t offset) const {
    std::uint64_t index = offset / kChunkBytes;
    for (auto chunk = find(index); chunk != chunks_.end() && chunk->index == index; ++chunk) ++index;
    return index * kChunkBytes - offset;
  }

 private:
  std::vector<Chunk>::const_iterator find(std::uint64_t index) const {
    return std::lower_bound(chunks_.begin(), chunks_.end(), index,
                            [](const Chunk& chunk, std::uint64_t wanted) { return chunk.index < wanted; });
  }

  const File& file_;
  const std::vector<Chunk>& chunks_;
};

/// A file's processes by number.
using Processes = std::map<std::uint32_t, std::vector<Chunk>>;

Error read_tables(const File& file, const std::string& path, const NodeHeader& header,
                  std::uint64_t file_bytes, Processes& processes) {
  // Chunks beyond the table, and chunks taken during the read, are left out.
  const std::uint64_t taken = std::min(header.chunks, kMaxChunks);
  std::vector<ChunkOwner> table(kOwnersPerTable);
  for (std::uint64_t first = 0; first < taken; first += kOwnersPerTable) {
    const std::uint64_t count = std::min(taken - first, kOwnersPerTable);
    if (table_offset(first) >= file_bytes) break;
    if (!file.read(table_offset(first), table.data(), count * sizeof(ChunkOwner))) return truncated(path);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto [process, index] = table[i];
      if (process == 0) continue;
      if (process > header.processes) return corrupt(path, "a chunk of a process that never joined");
      if (chunk_offset(first + i) + kChunkBytes > file_bytes) return truncated(path);
      processes[process].push_back({index, chunk_offset(first + i)});
    }
  }
  for (auto& [process, chunks] : processes) {
    std::sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) { return a.index < b.index; });
    const auto same = [](const Chunk& a, const Chunk& b) { return a.index == b.index; };
    if (std::adjacent_find(chunks.begin(), chunks.end(), same) != chunks.end())
      return corrupt(path, "two chunks at one place");
  }
  return {};
}

/// Counters that an older version lacks are 0.
bool read_live(const Section& section, std::uint32_t version, std::uint32_t number, LiveState& live) {
  const std::uint64_t at = live_offset() + number * live_bytes(version);
  const std::uint64_t lacking = lacking_in(version);
  const std::uint64_t before = offsetof(LiveState, domains) - lacking;
  live = {};
  return section.read(at, &live, before) &&
         section.read(at + before, live.domains, live_bytes(version) - before);
}

Error read_state(const Section& section, std::uint32_t version, const std::string& which, Log& log) {
  ProcessHeader& header = log.header;
  if (!section.read(0, &header, sizeof header)) return truncated(which);
  if (header.begun == 0) return {};
  if (const char* fault = fault_of(header)) return corrupt(which, fault);
  make_printable(header.pinion_version);
  make_printable(header.host);
  make_printable(header.command);
  make_printable(header.options);
  make_printable(header.retention);
  make_printable(header.predictor);
  make_printable(header.device);

  log.domains.resize(header.domain_count);
  if (!section.read(domains_offset(), log.domains.data(), log.domains.size() * sizeof(DomainEntry)))
    return truncated(which);
  for (DomainEntry& domain : log.domains) {
    if (const char* fault = fault_of(domain)) return corrupt(which, fault);
    make_printable(domain.device);
    make_printable(domain.nic);
    make_printable(domain.description);
  }

  if (!read_live(section, version, header.live, log.live)) return truncated(which);
  if (const char* fault = fault_of(log.live, header)) return corrupt(which, fault);
  return {};
}

/// False where they are missing.
bool read_sites(const Section& section, std::uint32_t version, Log& log) {
  const std::uint64_t bytes = site_bytes(version), count = log.header.site_count;
  if (count > section.bytes_from(sites_offset()) / bytes) return false;
  std::vector<char> entries(count * bytes);
  if (!section.read(sites_offset(), entries.data(), entries.size())) return false;
  log.sites.assign(count, SiteEntry{});
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(&log.sites[i], entries.data() + i * bytes, bytes);
  return true;
}

Error read_events(const Section& section, std::uint32_t version, const std::string& which, Log& log) {
  const ProcessHeader& header = log.header;
  log.modules.resize(header.module_count);
  if (!section.read(modules_offset(version), log.modules.data(), log.modules.size() * sizeof(ModuleEntry)))
    return truncated(which);
  for (ModuleEntry& module : log.modules) {
    if (const char* fault = fault_of(module)) return corrupt(which, fault);
    make_printable(module.path);
  }

  if (!read_sites(section, version, log)) return truncated(which);
  for (SiteEntry& site : log.sites) {
    if (const char* fault = fault_of(site)) return corrupt(which, fault);
    make_printable(site.name);
    make_printable(site.python);
  }

  const std::uint64_t events = events_offset(version);
  if (header.event_count > section.bytes_from(events) / sizeof(Event)) return truncated(which);
  log.events.resize(std::min(header.event_count, kMaxEvents));
  log.live.counters.events_dropped += header.event_count - log.events.size();
  if (!section.read(events, log.events.data(), log.events.size() * sizeof(Event))) return truncated(which);
  for (Event& event : log.events) {
    // A memory event may be of the whole address space: its events were missed, so every registration is in
    // doubt.
    if (event.kind == EventKind::memory_event && event.address <= kAddressEnd)
      event.bytes = std::min(event.bytes, kAddressEnd - event.address);
    if (const char* fault = fault_of(event, header)) return corrupt(which, fault);
  }
  return {};
}

// Adds the number of logs that it had to `count`.
Error read_file(const std::string& path, bool with_events, const std::function<void(Log&&)>& f,
                std::uint64_t& count) {
  const File file(path);
  struct stat status {};
  if (file.descriptor() < 0 || ::fstat(file.descriptor(), &status) != 0) {
    const int code = errno;
    return Error::make(code, "%.200s: %s", path.c_str(), open_failure(code));
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);

  NodeHeader header{};
  constexpr std::uint64_t begin_bytes = offsetof(NodeHeader, chunk_bytes);
  if (size < begin_bytes || !file.read(0, &header, begin_bytes) ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return Error::make(EINVAL, "%.200s: not a Pinion log", path.c_str());
  if (header.version < kOldestVersion || header.version > kVersion)
    return Error::make(ENOTSUP,
                       "%.200s: log format %u, written by %s Pinion; this one (%s) reads formats %u to %u: "
                       "use the Pinion that wrote it, or record the run again",
                       path.c_str(), header.version, header.version > kVersion ? "a newer" : "an older",
                       PINION_VERSION, kOldestVersion, kVersion);
  if (size < sizeof header || !file.read(0, &header, sizeof header)) return truncated(path);
  if (const char* fault = fault_of(header)) return corrupt(path, fault);
  Processes processes;
  if (const Error error = read_tables(file, path, header, size, processes)) return error;

  const bool written_to = file.written_to();
  for (const auto& [process, chunks] : processes) {
    Log log;
    log.path = path;
    log.written_to = written_to;
    const std::string which = path + ", process " + std::to_string(process);
    const Section section(file, chunks);
    if (const Error error = read_state(section, header.version, which, log)) return error;
    if (log.header.begun == 0) continue;
    if (!with_events) log.live.counters.events_dropped += log.header.event_count;
    if (const Error error = with_events ? read_events(section, header.version, which, log) : Error())
      return error;
    ++count;
    f(std::move(log));
  }
  return {};
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

namespace {

Error read_each(const std::vector<std::string>& paths, bool with_events,
                const std::function<void(Log&&)>& f) {
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
  std::uint64_t count = 0;
  OneRun run;
  const auto take = [&](Log&& log) {
    run.add(log);
    f(std::move(log));
  };
  for (const std::string& file : files)
    if (Error error = read_file(file, with_events, take, count)) return error;
  if (count == 0) return Error::make(ENOENT, "%.200s: no process has begun its log", files.front().c_str());
  return run.error();
}

}  // namespace

Error for_each_log(const std::vector<std::string>& paths, const std::function<void(Log&&)>& f) {
  return read_each(paths, true, f);
}

Error for_each_state(const std::vector<std::string>& paths, const std::function<void(Log&&)>& f) {
  return read_each(paths, false, f);
}

Error read_logs(const std::vector<std::string>& paths, std::vector<Log>& logs) {
  return for_each_log(paths, [&](Log&& log) { logs.push_back(std::move(log)); });
}

}  // namespace pinion::runlog
