// Sizes of mappings that earlier runs of a program on this node have registered (birth_advice.h), in a file
// of the user's. A program counts as the same by its file, and by its first argument, which names an
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

  struct Size {
    std::uint64_t bytes = 0;
    unsigned at_once = 0;  ///< so many were registered that were there together; 0: some never were
    bool operator==(const Size&) const = default;
  };
  static constexpr unsigned kMostAtOnce = 15;

  std::vector<Size> sizes() const;
  /// `at_once`: Size's; more than kMostAtOnce count as these. What has 0 stays so.
  void keep(std::uint64_t bytes, unsigned at_once) const;
  /// Unless it has 0.
  void forget(std::uint64_t bytes) const;

 private:
  // A word of the file: the program, how many at once, and the pages of the mapping. 0: free.
  static constexpr unsigned kPagesBits = 28;
  static constexpr std::uint64_t kPages = (std::uint64_t{1} << kPagesBits) - 1,
                                 kAtOnce = std::uint64_t{kMostAtOnce} << kPagesBits,
                                 kProgram = ~(kAtOnce | kPages);

  /// The place of a word that differs at most by its number.
  static std::size_t find(const std::vector<std::uint64_t>& words, std::uint64_t word);

  const std::string path_;
  const std::uint64_t program_;  ///< 0: nothing is known, nor kept
};

}  // namespace pinion
