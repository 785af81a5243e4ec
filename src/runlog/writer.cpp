#include "runlog/writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/range.h"

namespace pinion::runlog {

namespace {

constexpr std::uint64_t kEventsPerStep = (1 << 20) / sizeof(Event);
constexpr std::uint32_t kSitesPerStep = 128;

template <std::size_t size>
void copy_text(char (&out)[size], const std::string& text) {
  const std::size_t bytes = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), bytes);
  out[bytes] = 0;
}

template <class T>
void store_release(T& target, T value) {
  std::atomic_ref<T>(target).store(value, std::memory_order_release);
}

}  // namespace

Error LogWriter::open(const std::string& directory, const RunInfo& info, std::uint64_t log_bytes) {
  close();
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed)
    return Error::make(failed.value(), "log directory %s: %s", directory.c_str(), failed.message().c_str());

  char host[sizeof FileHeader::host] = {};
  ::gethostname(host, sizeof host - 1);
  path_ = directory + "/" + host + "." +
          (info.rank >= 0 ? std::to_string(info.rank) : "p" + std::to_string(::getpid())) + ".plog";
  // An older file is unlinked, not truncated: a process that still has it mapped would take a bus error.
  ::unlink(path_.c_str());
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) {
    const int code = errno;
    return Error::make(code, "log %s: %s", path_.c_str(), std::strerror(code));
  }
  const auto give_up = [&](Error error) {
    close();
    ::unlink(path_.c_str());
    return error;
  };
  if (Error error = reserve(0, sites_offset())) return give_up(error);

  events_capacity_ = log_bytes / sizeof(Event);
  mapped_bytes_ = file_bytes(events_capacity_);
  void* const mapping = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapping == MAP_FAILED) {
    const int code = errno;
    return give_up(Error::make(code, "log %s: mapping %llu bytes: %s", path_.c_str(),
                               static_cast<unsigned long long>(mapped_bytes_), std::strerror(code)));
  }
  ::madvise(mapping, mapped_bytes_, MADV_DONTFORK);
  char* const base = static_cast<char*>(mapping);
  header_ = reinterpret_cast<FileHeader*>(base);
  live_ = reinterpret_cast<LiveState*>(base + live_offset());
  sites_ = reinterpret_cast<SiteEntry*>(base + sites_offset());
  events_ = reinterpret_cast<Event*>(base + events_offset());
  sites_capacity_ = kMaxSites;

  FileHeader& h = *header_;
  h.version = kVersion;
  h.header_bytes = sizeof(FileHeader);
  h.live_bytes = sizeof(LiveState);
  h.event_bytes = sizeof(Event);
  h.site_bytes = sizeof(SiteEntry);
  h.events_capacity = events_capacity_;
  copy_text(h.pinion_version, PINION_VERSION);
  copy_text(h.host, host);
  copy_text(h.command, info.command);
  copy_text(h.options, info.options);
  copy_text(h.retention, info.retention);
  copy_text(h.predictor, info.predictor);
  copy_text(h.device, info.device);
  h.rank = info.rank;
  h.ranks = info.ranks;
  h.local_ranks = info.local_ranks;
  h.cores = info.cores;
  h.page_bytes = static_cast<std::uint32_t>(page_size());
  h.process = static_cast<std::uint32_t>(::getpid());
  h.limit_bytes = info.limit_bytes;
  h.ns_per_tick = calibration().ns_per_tick;
  h.base_ticks = calibration().base_ticks;
  h.base_ns = calibration().base_time;
  h.memcpy_bytes_per_ns = info.memcpy_bytes_per_ns;
  h.start_ns = info.start;
  live_[0].last_ns = info.start;
  live_[0].series_bin_ns = Series::kFirstBinWidth;
  // The magic comes last: a file without it was never begun.
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  return {};
}

Error LogWriter::reserve(std::uint64_t offset, std::uint64_t bytes) {
  // Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which ends the program.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      offset + bytes > limit.rlim_cur)
    return Error::make(EFBIG, "log %s: the file size limit of %llu bytes (ulimit -f) is too small for it",
                       path_.c_str(), static_cast<unsigned long long>(limit.rlim_cur));
  int code;
  do {
    code = ::posix_fallocate(file_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code)
    return Error::make(code, "log %s: taking %llu bytes: %s", path_.c_str(),
                       static_cast<unsigned long long>(bytes), std::strerror(code));
  return {};
}

void LogWriter::append(const Event& event) {
  if (!header_) return;
  if (event_count_ == events_reserved_) {
    const std::uint64_t more = std::min(kEventsPerStep, events_capacity_ - events_reserved_);
    if (more == 0 || reserve(events_offset() + events_reserved_ * sizeof(Event), more * sizeof(Event))) {
      events_capacity_ = events_reserved_;  // a full disk is not asked again
      ++events_dropped_;
      return;
    }
    events_reserved_ += more;
  }
  events_[event_count_] = event;
  store_release(header_->event_count, ++event_count_);
}

void LogWriter::add_site(std::uint64_t hash, const std::uint64_t* frames, std::size_t frame_count) {
  if (!header_ || hash == 0) return;
  std::size_t slot = hash % site_slots_.size();
  for (; site_slots_[slot]; slot = (slot + 1) % site_slots_.size())
    if (sites_[site_slots_[slot] - 1].hash == hash) return;
  if (site_count_ == sites_reserved_) {
    const std::uint32_t more = std::min(kSitesPerStep, sites_capacity_ - sites_reserved_);
    if (more == 0 ||
        reserve(sites_offset() + sites_reserved_ * sizeof(SiteEntry), more * sizeof(SiteEntry))) {
      sites_capacity_ = sites_reserved_;
      return;
    }
    sites_reserved_ += more;
  }
  SiteEntry& entry = sites_[site_count_];
  entry.hash = hash;
  entry.frame_count = static_cast<std::uint32_t>(std::min<std::size_t>(frame_count, kMaxFrames));
  std::copy_n(frames, entry.frame_count, entry.frames);
  store_release(header_->site_count, ++site_count_);
  site_slots_[slot] = static_cast<std::uint16_t>(site_count_);
}

void LogWriter::update(const Counters& counters, const Series& series, Time now) {
  if (header_) publish(counters, series, now, 0, false);
}

void LogWriter::publish(const Counters& counters, const Series& series, Time now,
                        std::uint64_t pinned_at_exit_bytes, bool complete) {
  const std::uint32_t next = 1 - header_->live;
  LiveState& state = live_[next];
  state.last_ns = now;
  state.series_bin_ns = series.bin_width();
  state.pinned_at_exit_bytes = pinned_at_exit_bytes;
  state.complete = complete;
  state.counters = counters;
  state.counters.events_dropped = events_dropped_;
  std::copy_n(series.bins(), kSeriesBins, state.series);
  store_release(header_->live, next);
}

void LogWriter::finish(const Counters& counters, const Series& series, Time now,
                       std::uint64_t pinned_at_exit_bytes) {
  if (!header_) return;
  publish(counters, series, now, pinned_at_exit_bytes, true);
  const std::uint64_t used =
      event_count_ ? file_bytes(event_count_) : sites_offset() + site_count_ * sizeof(SiteEntry);
  // Failing to shrink leaves a larger file, nothing worse.
  [[maybe_unused]] const int ignored = ::ftruncate(file_, static_cast<off_t>(used));
  close();
}

void LogWriter::close() {
  if (header_) ::munmap(header_, mapped_bytes_);
  if (file_ >= 0) ::close(file_);
  header_ = nullptr;
  live_ = nullptr;
  sites_ = nullptr;
  events_ = nullptr;
  file_ = -1;
  event_count_ = events_reserved_ = events_capacity_ = events_dropped_ = mapped_bytes_ = 0;
  site_count_ = sites_reserved_ = sites_capacity_ = 0;
  site_slots_.fill(0);
}

}  // namespace pinion::runlog
