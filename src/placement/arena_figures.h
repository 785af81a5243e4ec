// The figures of a run's arenas (arena.h), left by each process as figure_rows.h has it. Ordinary code.
#pragma once

#include <cstdint>
#include <string>

namespace pinion {

struct ArenaFigures {
  std::uint64_t processes = 0;
  std::uint64_t bytes = 0;          ///< of addresses
  std::uint64_t segments = 0;       ///< that the heap had at a time, at most
  std::uint64_t segment_bytes = 0;  ///< likewise
  std::uint64_t registrations = 0;  ///< of segments
  std::uint64_t ahead = 0;          ///< of them, before a request needed it
  std::uint64_t refused = 0;        ///< registrations of segments, by the device or a limit
  std::uint64_t doomed = 0;         ///< segments whose memory the program changed
  std::uint64_t let_go = 0;         ///< segments, for room under a limit
  std::uint64_t requests = 0;       ///< within the arena
  std::uint64_t served = 0;         ///< of them, by a segment's registration
  std::uint64_t served_bytes = 0;
  std::uint64_t cleared_bytes = 0;   ///< written with zeros, for a program's MADV_DONTNEED
  std::uint64_t withheld_bytes = 0;  ///< of munmap, whose memory stays

  void add(const ArenaFigures& other);
};

/// This process's, if it has an arena.
void write_arena_figures(const char* directory, const ArenaFigures& figures);
/// Sums over the processes of a run.
ArenaFigures read_arena_figures(const std::string& directory);
/// Whether a process has left this file.
bool is_arena_figures(const std::string& path);

}  // namespace pinion
