// Remembers which files of code make no system calls of their own (own_calls.h), for the later processes of
// this user on this node: they need not read them again.
//
// A fingerprint stands for a part of a file in its present state, and for the reader: device, inode, size,
// times of change, the first page, where linkers put the build id. The file of fingerprints lies in shared
// memory. Its contents are untrusted: it must be the user's own and closed to others, and what else it holds
// (damage, another version's) equals a fingerprint of 64 bits by chance alone. So it can cost time, and never
// sight.
//
// A KnownCode owns the file while it exists; each use opens it anew, as programs close all descriptors. One
// thread; ordinary code. Processes need no turns: a fingerprint is a word in a place of its own, and one that
// overwrites another costs time.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "base/kept_file.h"

namespace pinion {

/// The fingerprint of `bytes` bytes of the open file from `offset` on, for a reader that has a fingerprint
/// itself. 0: there is none, as the file has changed too lately for its times to show another change.
/// `status`: the file's.
std::uint64_t fingerprint_of_code(int file, const struct stat& status, std::uint64_t offset,
                                  std::uint64_t bytes, std::uint64_t reader);

class KnownCode {
 public:
  static constexpr std::uint64_t kFingerprints = 4096;

  explicit KnownCode(const std::string& directory = "/dev/shm");

  /// Its name in the directory.
  static std::string name();
  bool has(std::uint64_t fingerprint) const;
  void add(std::uint64_t fingerprint) const;

 private:
  KeptFile file_;
  bool may_grow_ = false;
};

}  // namespace pinion
