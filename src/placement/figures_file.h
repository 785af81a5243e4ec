// The figures of each process's heap, left in the run's log directory at its end: one file a process,
// HOST.PID.hugepages, of `name=value` lines. Ordinary code; allocates.
#pragma once

#include <cstdint>
#include <string>

namespace pinion {

struct PlacementFigures {
  std::uint64_t processes = 0;
  std::uint64_t blocks = 0;          ///< allocated in all
  std::uint64_t peak_bytes = 0;      ///< in blocks at a time, at most
  std::uint64_t advised_bytes = 0;   ///< mapped for transparent hugepages, at most
  std::uint64_t base_bytes = 0;      ///< mapped where the system has none, at most
  std::uint64_t used_bytes = 0;      ///< at the end: pages that a block had, and that may still be there
  std::uint64_t hugepage_bytes = 0;  ///< at the end: in hugepages, by the kernel's count
  std::uint64_t returned_bytes = 0;  ///< given back to the kernel, in all
  std::uint64_t static_bytes = 0;    ///< of static data, placed for transparent hugepages
  std::uint64_t static_hugepage_bytes = 0;  ///< of them, at the end: in hugepages by the kernel's count

  void add(const PlacementFigures& other);
};

/// This process's, if its heap had a block, or its static data was placed. Processes that cannot write leave
/// none.
void write_placement_figures(const char* directory);
/// Sums over the processes of a run.
PlacementFigures read_placement_figures(const std::string& directory);
/// Whether a process has left this file.
bool is_placement_figures(const std::string& path);

}  // namespace pinion
