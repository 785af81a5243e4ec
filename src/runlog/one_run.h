// Checks that logs are of one run: figures added up over several runs would be meaningless. A value of one
// thread's.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "runlog/reader.h"

namespace pinion::runlog {

/// One file is of one run. Files are of the same run when a process in each has the same name of the run
/// (ProcessHeader::run). Under a launcher without such a name, files with different ranks of jobs of the same
/// size count as one run: the nodes of a job write such files.
class OneRun {
 public:
  /// The logs of a file follow each other.
  void add(const Log& log);
  /// Names two runs, where there are two.
  Error error() const;

 private:
  struct File {
    std::string path, command, host;
    std::set<std::uint32_t> runs;
    std::set<std::int32_t> ranks;
    std::int32_t job_ranks = -1;
    std::size_t processes = 0;
  };
  static bool same_run(const File& a, const File& b);
  static std::string text(const File& file);

  std::vector<File> files_;
};

}  // namespace pinion::runlog
