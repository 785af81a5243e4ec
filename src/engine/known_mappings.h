// Sizes of mappings that earlier runs of a program on this node have registered whole (birth_advice.h), in a
// file of the user's. A program counts as the same by its file, and by its first argument, which names an
// interpreter's script. Nothing is known where the file may not be had.
//
// Owns no descriptor: each call opens the file. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pinion {

class KnownMappings {
 public:
  static constexpr std::size_t kMost = 1024;  ///< of all programs of the user's

  /// `command`: the program's line.
  explicit KnownMappings(const std::string& command, const std::string& directory = "/dev/shm");

  std::vector<std::uint64_t> sizes() const;
  void add(std::uint64_t bytes) const;

 private:
  // A word of the file: the program, and the pages of the mapping. 0: free.
  static constexpr unsigned kPagesBits = 28;
  static constexpr std::uint64_t kPages = (std::uint64_t{1} << kPagesBits) - 1;

  const std::string path_;
  const std::uint64_t program_;  ///< 0: nothing is known, nor kept
};

}  // namespace pinion
