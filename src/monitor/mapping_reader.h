// Reads the process's mappings, line by line of /proc/thread-self/maps, in order of address.
//
// Owns the open file and a small buffer. Any thread, any signal handler: free of allocation, unless the
// caller asks for paths. Other threads may change mappings meanwhile; each line was right when it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/range.h"
#include "monitor/own_process.h"

namespace pinion {

struct Mapping {
  Range range;
  int protection = 0;  ///< PROT_READ, PROT_WRITE, PROT_EXEC
  std::uint64_t offset = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;  ///< 0: no file
  bool is_private = false;
  bool system_v = false;
};

class MappingReader {
 public:
  // Not /proc/self: it is empty once the main thread has exited.
  MappingReader() : text_("/proc/thread-self/maps") {}

  bool is_open() const { return text_.is_open(); }
  /// Whether mappings are missing: the kernel refused the file, or a part of it.
  bool failed() const { return text_.failed(); }
  /// Takes the next line. `path` gets the name of its file, with " (deleted)" behind one that has none any
  /// more; it is empty, or in brackets, for other memory. False: that was the last one.
  bool next(Mapping& mapping, std::string* path = nullptr);

 private:
  void rights(Mapping& mapping);

  KernelText text_;
};

/// Calls visit(mapping) for each that overlaps the range. False: /proc is missing, or was refused.
template <class Visit>
bool for_each_mapping(Range range, Visit&& visit) {
  MappingReader reader;
  for (Mapping mapping; reader.next(mapping) && mapping.range.begin < range.end;)
    if (mapping.range.overlaps(range)) visit(mapping);
  return !reader.failed();
}

}  // namespace pinion
