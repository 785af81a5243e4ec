// The file that libfabric's shm makes in /dev/shm for an endpoint. A killed process leaves it: 16 MiB, and a
// later process of the same number cannot open an endpoint (EBUSY). So its peers remember the file while the
// process lives, and remove it afterwards.
//
// Ordinary code; one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pinion::transfer {

class ShmFile {
 public:
  /// The file of the endpoint that `process` has at this address. A file that is named
  /// after another process, or is another user's, is left out.
  void remember(pid_t process, const std::vector<unsigned char>& address);
  /// The process has ended. A newer file of the same name stays.
  void remove() const;

 private:
  std::string path_;  ///< empty: none
  std::uint64_t device_ = 0, inode_ = 0;
};

}  // namespace pinion::transfer
