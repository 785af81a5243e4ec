// The memory that the node's RDMA devices have registered for the processes of a run, as the kernel lists it
// (`rdma resource show mr`): read over netlink, by an ordinary user, every 20 ms by a thread of its own. So a
// registration that comes and goes in between is missed. Ordinary code, not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace pinion::cli {

struct NicRegions {
  std::uint64_t bytes = 0, regions = 0;
};

/// The kernel's list. Owns a socket.
class NicRegionList {
 public:
  NicRegionList();
  ~NicRegionList();
  NicRegionList(const NicRegionList&) = delete;
  NicRegionList& operator=(const NicRegionList&) = delete;

  /// Reads those of all processes that began at or after this one; empty if the device or the list is
  /// missing.
  std::optional<NicRegions> read();

 private:
  struct Owner {
    std::uint32_t process;
    bool counts;
  };
  bool counts(std::uint32_t process);
  /// Queries with this command, and calls `entry` with the payload of each message of the answer.
  template <class F>
  bool dump(int command, std::optional<std::uint32_t> device, F&& entry);

  int socket_ = -1;
  std::uint64_t began_;  ///< clock ticks since boot
  std::vector<std::uint32_t> devices_;
  std::vector<Owner> owners_;
};

/// Peaks and means over a run, from its construction on.
class NicMemory {
 public:
  NicMemory();
  ~NicMemory() { end(); }

  struct Figures {
    std::uint64_t peak_bytes = 0, peak_regions = 0;
    double mean_bytes = 0, mean_regions = 0;
  };
  /// Ends the reading. Empty if the kernel lacks the list.
  std::optional<Figures> figures();

 private:
  void watch();
  void end();

  NicRegionList list_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool ending_ GUARDED_BY(mutex_) = false;
  bool known_ = true;
  Figures figures_;  ///< the means as integrals over `passed_`
  Duration passed_ = 0;
  std::thread thread_;
};

}  // namespace pinion::cli
