#include "runlog/writer.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/range.h"
#include "base/version.h"
#include "monitor/system_call.h"

namespace pinion::runlog {

namespace {

constexpr std::uint64_t kEventsPerChunk = kChunkBytes / sizeof(Event);
constexpr std::uint64_t kAreaBytes = events_offset() + NodeFile::kMostAtOnce * kChunkBytes;

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

Error LogWriter::open(const std::string& directory, const RunInfo& info, std::uint64_t log_bytes,
                      NodeFile::Mapping mapping) {
  close();
  if (Error error = file_.open(directory, info.job, info.rank >= 0, mapping)) return error;
  const long area = raw_system_call(
      SYS_mmap, arguments_of(0L, kAreaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  Error error =
      is_error(area) ? Error::make(static_cast<int>(-area), "no address space for the log") : Error{};
  if (!error) {
    area_ = reinterpret_cast<char*>(area);
    error = file_.take(1, 0, area_);
  }
  if (error) {
    close();
    return error;
  }
  header_ = reinterpret_cast<ProcessHeader*>(area_);
  domains_ = reinterpret_cast<DomainEntry*>(area_ + domains_offset());
  live_ = reinterpret_cast<LiveState*>(area_ + live_offset());
  modules_ = reinterpret_cast<ModuleEntry*>(area_ + modules_offset());
  sites_ = reinterpret_cast<SiteEntry*>(area_ + sites_offset());
  window_ = reinterpret_cast<Event*>(area_ + events_offset());
  events_capacity_ = log_bytes / sizeof(Event);
  site_slots_.assign(std::size_t{2} * kMaxSites, 0);

  ProcessHeader& h = *header_;
  copy_text(h.pinion_version, PINION_VERSION);
  ::gethostname(h.host, sizeof h.host - 1);
  copy_text(h.command, info.command);
  copy_text(h.options, info.options);
  copy_text(h.retention, info.retention);
  copy_text(h.predictor, info.predictor);
  copy_text(h.device, info.device);
  h.acts = info.acts;
  h.run = info.run;
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
  store_release(h.begun, 1u);
  if (!file_.needs_write_back()) return {};
  const Error error_of_disk = file_.write_back(area_, kChunkBytes);
  if (error_of_disk) close();
  return error_of_disk;
}

void LogWriter::set_acts(Acts acts, const std::string& retention, const std::string& device) {
  if (!header_) return;
  copy_text(header_->retention, retention);
  copy_text(header_->device, device);
  header_->acts = acts;
}

// Writes files that need write_back(): events, call sites and domains before the header that counts them, and
// the state before the header that names it. Items that the disk has no room for stay uncounted.
void LogWriter::write_back(bool all_sites) {
  if (!file_.needs_write_back()) return;
  write_back_events();
  if (all_sites) sites_written_ = 0;
  if (!file_.write_back(sites_ + sites_written_, (site_count_ - sites_written_) * sizeof(SiteEntry)))
    sites_written_ = site_count_;
  if (file_.write_back(domains_, domain_count_ * sizeof(DomainEntry))) return;
  if (file_.write_back(modules_, header_->module_count * sizeof(ModuleEntry))) return;
  if (file_.write_back(&live_[header_->live], sizeof(LiveState))) return;
  header_->event_count = event_count_;
  header_->site_count = sites_written_;
  // A full disk is retried at the next look, like the failures above.
  static_cast<void>(file_.write_back(header_, sizeof *header_));
}

void LogWriter::write_back_events() {
  if (!file_.needs_write_back() || event_count_ == events_written_) return;
  const Event* const first = window_ + (events_written_ - window_begin_);
  if (file_.write_back(first, (event_count_ - events_written_) * sizeof(Event))) {
    events_dropped_ += event_count_ - events_written_;
    event_count_ = events_capacity_ = window_end_ = events_written_;
  }
  events_written_ = event_count_;
}

// The window doubles, from one chunk on: short logs stay small, long ones take few system calls.
bool LogWriter::grow_events() {
  const std::uint64_t count =
      std::clamp<std::uint64_t>(event_count_ / kEventsPerChunk, 1, NodeFile::kMostAtOnce);
  const std::uint64_t index = (events_offset() + event_count_ * sizeof(Event)) / kChunkBytes;
  write_back_events();  // the next window takes the place of this one
  if (event_count_ >= events_capacity_ || file_.take(count, index, area_ + events_offset())) {
    events_capacity_ = event_count_;  // a full disk is not asked again
    return false;
  }
  window_chunks_ = count;
  window_begin_ = event_count_;
  window_end_ = std::min(window_begin_ + count * kEventsPerChunk, events_capacity_);
  return true;
}

void LogWriter::append(const Event& event) {
  if (!header_) return;
  if (event_count_ == window_end_ && !grow_events()) {
    ++events_dropped_;
    return;
  }
  window_[event_count_ - window_begin_] = event;
  store_release(header_->event_count, ++event_count_);
}

bool LogWriter::grow_sites() {
  const std::uint64_t index = sites_offset() / kChunkBytes + site_chunks_;
  sites_full_ =
      site_count_ == kMaxSites || static_cast<bool>(file_.take(1, index, area_ + index * kChunkBytes));
  if (!sites_full_) ++site_chunks_;
  return !sites_full_;
}

void LogWriter::add_site(std::uint64_t hash, const std::uint64_t* frames, std::size_t frame_count) {
  if (!header_ || hash == 0) return;
  std::size_t slot = hash % site_slots_.size();
  for (; site_slots_[slot]; slot = (slot + 1) % site_slots_.size())
    if (sites_[site_slots_[slot] - 1].hash == hash) return;
  if ((site_count_ + 1) * sizeof(SiteEntry) > site_chunks_ * kChunkBytes && (sites_full_ || !grow_sites()))
    return;
  SiteEntry& entry = sites_[site_count_];
  entry.hash = hash;
  entry.frame_count = static_cast<std::uint32_t>(std::min<std::size_t>(frame_count, kMaxFrames));
  std::copy_n(frames, entry.frame_count, entry.frames);
  store_release(header_->site_count, ++site_count_);
  site_slots_[slot] = static_cast<std::uint16_t>(site_count_);
}

void LogWriter::add_domain(const DomainInfo& info) {
  if (!header_ || domain_count_ == kMaxDomains) return;
  DomainEntry& entry = domains_[domain_count_];
  copy_text(entry.device, info.device);
  copy_text(entry.nic, info.nic);
  copy_text(entry.description, info.description);
  entry.max_regions = info.max_regions;
  entry.max_region_bytes = info.max_region_bytes;
  entry.max_bytes = info.max_bytes;
  store_release(header_->domain_count, ++domain_count_);
}

void LogWriter::set_domain_state(std::uint32_t number, const DomainState& state) {
  if (number < domain_count_) domain_states_[number] = state;
}

void LogWriter::set_modules(const std::vector<ModuleEntry>& modules) {
  if (!header_) return;
  const std::size_t count = std::min<std::size_t>(modules.size(), kMaxModules);
  std::copy_n(modules.begin(), count, modules_);
  store_release(header_->module_count, static_cast<std::uint32_t>(count));
}

void LogWriter::note_stop(Time now) {
  if (!header_) return;
  const Duration after = std::clamp<Duration>((now - header_->start_ns) / kMillisecond, 1, UINT32_MAX);
  stopped_after_ms_ = static_cast<std::uint32_t>(after);
}

void LogWriter::update(const Counters& counters, const Series& series, Time now) {
  if (!header_) return;
  write_back_events();  // before their number is published: the disk may be full
  publish(counters, series, now, 0, false);
  write_back(false);
}

void LogWriter::publish(const Counters& counters, const Series& series, Time now,
                        std::uint64_t pinned_at_exit_bytes, bool complete) {
  const std::uint32_t next = 1 - header_->live;
  LiveState& state = live_[next];
  state.last_ns = now;
  state.series_bin_ns = series.bin_width();
  state.pinned_at_exit_bytes = pinned_at_exit_bytes;
  state.complete = complete;
  state.stopped_after_ms = stopped_after_ms_;
  state.counters = counters;
  state.counters.events_dropped = events_dropped_;
  std::copy(domain_states_.begin(), domain_states_.end(), state.domains);
  std::copy_n(series.bins(), kSeriesBins, state.series);
  store_release(header_->live, next);
}

void LogWriter::finish(const Counters& counters, const Series& series, Time now,
                       std::uint64_t pinned_at_exit_bytes) {
  if (!header_) return;
  write_back_events();
  publish(counters, series, now, pinned_at_exit_bytes, true);
  write_back(true);
  // The disk space that no event came for. Failing leaves a larger file, nothing worse.
  const Address used = page_ceil(reinterpret_cast<Address>(window_ + (event_count_ - window_begin_)));
  const Address end = reinterpret_cast<Address>(window_) + window_chunks_ * kChunkBytes;
  if (used < end) raw_system_call(SYS_madvise, arguments_of(used, end - used, MADV_REMOVE));
  close();
}

void LogWriter::close() {
  if (area_ && file_.is_mapped()) raw_system_call(SYS_munmap, arguments_of(area_, kAreaBytes));
  file_.close();
  area_ = nullptr;
  header_ = nullptr;
  domains_ = nullptr;
  live_ = nullptr;
  modules_ = nullptr;
  sites_ = nullptr;
  window_ = nullptr;
  event_count_ = events_capacity_ = events_dropped_ = window_begin_ = window_end_ = window_chunks_ = 0;
  events_written_ = 0;
  domain_count_ = 0;
  domain_states_ = {};
  site_count_ = sites_written_ = 0;
  site_chunks_ = 0;
  sites_full_ = false;
  std::vector<std::uint16_t>().swap(site_slots_);
}

}  // namespace pinion::runlog
