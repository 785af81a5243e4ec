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
    bool wholly = false;   ///< the device gained only where a region lay in hugepages as a whole
    bool operator==(const Size&) const = default;
  };
  static constexpr unsigned kMostAtOnce = 15;

  std::vector<Size> sizes() const;
  /// More at once than kMostAtOnce count as these. What has 0 of them stays so.
  void keep(const Size& size) const;
  /// Unless it has 0.
  void forget(std::uint64_t bytes) const;

 private:
  // A word of the file: the program, how many at once, whether wholly, and the pages of the mapping. 0: free.
  static constexpr unsigned kPagesBits = 27, kAtOnceShift = kPagesBits + 1;
  static constexpr std::uint64_t kPages = (std::uint64_t{1} << kPagesBits) - 1, kWholly = kPages + 1,
                                 kAtOnce = std::uint64_t{kMostAtOnce} << kAtOnceShift,
                                 kProgram = ~(kAtOnce | kWholly | kPages);

  /// The place of the word of the same program and size.
  static std::size_t find(const std::vector<std::uint64_t>& words, std::uint64_t word);

  const std::string path_;
  const std::uint64_t program_;  ///< 0: nothing is known, nor kept
};

}  // namespace pinion
