// Reads the process's mappings, line by line of /proc/thread-self/maps, in order of address.
//
// Owns the open file and a small buffer. Any thread, any signal handler: free of allocation, with a small
// stack and direct system calls. Other threads may change mappings meanwhile; each line was right when it was
// read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace pinion {

struct Mapping {
  Range range;
  int protection = 0;  ///< PROT_READ, PROT_WRITE, PROT_EXEC
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  bool is_private = false;
  bool system_v = false;
};

class MappingReader {
 public:
  MappingReader();
  ~MappingReader();
  MappingReader(const MappingReader&) = delete;
  MappingReader& operator=(const MappingReader&) = delete;

  bool is_open() const { return fd_ >= 0; }
  /// False: that was the last one.
  bool next(Mapping& mapping);

 private:
  static constexpr int kEnd = -1;

  void advance();
  void skip_word();
  void rights(Mapping& mapping);
  /// A number and the one character behind it.
  std::uint64_t number(unsigned base);

  long fd_;
  int current_ = kEnd;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  char buffer_[512];
};

/// Calls visit(mapping) for each that overlaps the range. False: /proc is missing.
template <class Visit>
bool for_each_mapping(Range range, Visit&& visit) {
  MappingReader reader;
  for (Mapping mapping; reader.is_open() && reader.next(mapping) && mapping.range.begin < range.end;)
    if (mapping.range.overlaps(range)) visit(mapping);
  return reader.is_open();
}

}  // namespace pinion
