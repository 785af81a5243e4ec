// Writes one process's run log (format.h) through a mapping. Owns the file and the mapping. One thread at a
// time may call a writer, and never from a hook: growing the file is a system call. Disk space is taken
// before it is touched, so a full disk costs the log and never the program; after kill -9 the file is whole
// up to the last call. A forked child does not have the mapping and must not call anything but the
// destructor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "runlog/format.h"
#include "runlog/series.h"

namespace pinion::runlog {

/// What a log says about its run; known when it starts.
struct RunInfo {
  std::string command;
  std::string options;  ///< format_options()
  std::string retention;
  std::string predictor;
  std::string device;                                    ///< Device::description()
  std::int32_t rank = -1, ranks = -1, local_ranks = -1;  ///< -1 where unknown
  std::int32_t cores = -1;                               ///< of the node
  std::uint64_t limit_bytes = 0;
  double memcpy_bytes_per_ns = 0;
  Time start = 0;  ///< MPI_Init returned, or the first acquire
};

class LogWriter {
 public:
  LogWriter() = default;
  ~LogWriter() { close(); }
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// Creates `directory` and in it `<host>.<rank>.plog` (`<host>.p<pid>.plog` where the rank is unknown),
  /// with room for `log_bytes` of events. An older file of that name is replaced. After an error, and without
  /// open(), every other call does nothing.
  Error open(const std::string& directory, const RunInfo& info, std::uint64_t log_bytes);
  bool is_open() const { return header_ != nullptr; }
  const std::string& path() const { return path_; }

  /// Adds an event, or counts it as dropped when there is no room.
  void append(const Event& event);
  std::uint64_t events_dropped() const { return events_dropped_; }

  /// Makes the call site known; does nothing when it is, or when the table is full. Cheap enough for every
  /// event.
  void add_site(std::uint64_t hash, const std::uint64_t* frames, std::size_t frame_count);

  /// Calls `f(SiteEntry&)` for each call site: the moment to fill in names, at the end of the run.
  template <class F>
  void for_each_site(F&& f) {
    for (std::uint32_t i = 0; i < site_count_; ++i) f(sites_[i]);
  }

  /// Publishes the counters (events_dropped is this writer's own) and the series, brought up to `now` by the
  /// caller.
  void update(const Counters& counters, const Series& series, Time now);

  /// Ends the log in order: publishes the last state, gives unused space back, and closes.
  void finish(const Counters& counters, const Series& series, Time now, std::uint64_t pinned_at_exit_bytes);

 private:
  /// Takes disk space for [offset, offset + bytes), so that touching it cannot fault.
  Error reserve(std::uint64_t offset, std::uint64_t bytes);
  void publish(const Counters& counters, const Series& series, Time now, std::uint64_t pinned_at_exit_bytes,
               bool complete);
  void close();

  std::string path_;
  int file_ = -1;
  FileHeader* header_ = nullptr;  ///< the mapping's begin
  LiveState* live_ = nullptr;
  SiteEntry* sites_ = nullptr;
  Event* events_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;

  std::uint64_t event_count_ = 0;
  std::uint64_t events_reserved_ = 0;  ///< events that disk space is taken for
  std::uint64_t events_capacity_ = 0;
  std::uint64_t events_dropped_ = 0;
  std::uint32_t site_count_ = 0;
  std::uint32_t sites_reserved_ = 0;
  std::uint32_t sites_capacity_ = 0;
  std::array<std::uint16_t, std::size_t{2} * kMaxSites>
      site_slots_{};  ///< open addressing by hash: index + 1; 0: free
};

}  // namespace pinion::runlog
