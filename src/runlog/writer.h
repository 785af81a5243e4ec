// Writes one process's run log (format.h) into its node's file, through mappings. Owns the mappings. One
// thread at a time may call a writer, and never from a hook: growing is system calls. Disk space is taken
// before it is touched, so a full disk costs the log and never the program; after kill -9 the log is whole up
// to the last call; where the file cannot be mapped (node_file.h), up to the last update(). A forked child
// lacks the mappings and may call the destructor only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "runlog/format.h"
#include "runlog/node_file.h"
#include "runlog/series.h"

namespace pinion::runlog {

/// A log's description of its run; complete when the run starts.
struct RunInfo {
  std::uint64_t job = 0;  ///< the same for all processes whose logs share a file: job_key()
  std::uint32_t run = 0;  ///< the same for all processes of the run: run_key()
  std::string command;
  std::string options;  ///< format_options()
  std::string retention;
  std::string predictor;
  std::string device;                                    ///< Device::description() of the first domain
  std::int32_t rank = -1, ranks = -1, local_ranks = -1;  ///< -1 where unknown
  std::int32_t cores = -1;                               ///< of the node
  std::uint64_t limit_bytes = 0;
  double memcpy_bytes_per_ns = 0;
  Time start = 0;  ///< MPI_Init returned, or the first acquire
  Acts acts = Acts::pinned;
};

/// A domain as the log's table has it.
struct DomainInfo {
  std::string device;       ///< as for option `device`, or the kind of a device of the program's own
  std::string nic;          ///< as for option `nic`
  std::string description;  ///< Device::description()
  std::uint64_t max_regions = 0, max_region_bytes = 0, max_bytes = 0;  ///< 0: no cap
};

class LogWriter {
 public:
  LogWriter() = default;
  ~LogWriter() { close(); }
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// Creates `directory` and in it the file of this node and job, or joins it (node_file.h), with room for
  /// `log_bytes` of events. A process that has a rank replaces the files of an earlier job there. After an
  /// error, and without open(), every other call has no effect.
  Error open(const std::string& directory, const RunInfo& info, std::uint64_t log_bytes,
             NodeFile::Mapping mapping = NodeFile::Mapping::where_possible);
  bool is_open() const { return header_ != nullptr; }
  const std::string& path() const { return file_.path(); }

  /// Adds an event, or counts it as dropped when there is no room.
  void append(const Event& event);
  std::uint64_t events_dropped() const { return events_dropped_; }

  /// Makes the call site known; does nothing when it is, or when the table is full. Cheap enough for every
  /// event.
  void add_site(std::uint64_t hash, const std::uint64_t* frames, std::size_t frame_count);

  /// Adds the next domain to the table: its number is the count of those before. Those beyond kMaxDomains are
  /// ignored.
  void add_domain(const DomainInfo& info);
  std::uint32_t domain_count() const { return domain_count_; }
  /// Sets the state of a domain in the table, for the next update() or finish().
  void set_domain_state(std::uint32_t number, const DomainState& state);

  /// Calls `f(SiteEntry&)` for each call site: the moment to fill in names, at the end of the run.
  template <class F>
  void for_each_site(F&& f) {
    for (std::uint32_t i = 0; i < site_count_; ++i) f(sites_[i]);
  }

  /// The modules that those sites lie in, at the end of the run; of more than kMaxModules the first.
  void set_modules(const std::vector<ModuleEntry>& modules);

  /// A change of Pinion's part in registrations during the run.
  void set_acts(Acts acts, const std::string& retention, const std::string& device);

  /// `pinion stop` makes Pinion stand aside: the next update() or finish() says so.
  void note_stop(Time now);

  /// Publishes the counters (events_dropped is this writer's own), the states of domains, and the series,
  /// brought up to `now` by the caller.
  void update(const Counters& counters, const Series& series, Time now);

  /// Ends the log in order: publishes the last state, gives unused space back, and closes.
  void finish(const Counters& counters, const Series& series, Time now, std::uint64_t pinned_at_exit_bytes);

 private:
  bool grow_sites();
  bool grow_events();
  void publish(const Counters& counters, const Series& series, Time now, std::uint64_t pinned_at_exit_bytes,
               bool complete);
  void write_back(bool all_sites);
  void write_back_events();
  void close();

  NodeFile file_;
  char* area_ = nullptr;  ///< address space of the mappings: the log up to its events, and their window
  ProcessHeader* header_ = nullptr;
  DomainEntry* domains_ = nullptr;
  LiveState* live_ = nullptr;
  ModuleEntry* modules_ = nullptr;
  SiteEntry* sites_ = nullptr;
  Event* window_ = nullptr;  ///< the events that are being written; full windows are unmapped

  std::uint64_t event_count_ = 0;
  std::uint64_t events_written_ = 0;  ///< by write_back(), where that is needed
  std::uint64_t events_capacity_ = 0;
  std::uint64_t events_dropped_ = 0;
  std::uint64_t window_begin_ = 0;  ///< number of the window's first event
  std::uint64_t window_end_ = 0;
  std::uint64_t window_chunks_ = 0;
  std::uint32_t stopped_after_ms_ = 0;
  std::uint32_t domain_count_ = 0;
  std::array<DomainState, kMaxDomains> domain_states_{};
  std::uint32_t site_count_ = 0;
  std::uint32_t sites_written_ = 0;  ///< the same
  std::uint64_t site_chunks_ = 0;
  bool sites_full_ = false;
  std::vector<std::uint16_t> site_slots_;  ///< while open; open addressing by hash: index + 1; 0: free
};

}  // namespace pinion::runlog
