// Directories of logs: a directory of the user's, or one that goes away with its owner.
#pragma once

#include <string>

namespace pinion::cli {

/// Makes the directory where needed. Returns its absolute path, since a program may change its own. Throws
/// UsageError.
std::string make_log_directory(const std::string& path);

/// Makes it too, and removes the logs and figures of an older run, because a directory holds one run. What a
/// file contains decides: files of other programs stay, and one with a log's name is refused.
std::string prepare_log_directory(const std::string& path);

class TemporaryLogDirectory {
 public:
  TemporaryLogDirectory();
  ~TemporaryLogDirectory();
  TemporaryLogDirectory(const TemporaryLogDirectory&) = delete;
  TemporaryLogDirectory& operator=(const TemporaryLogDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pinion::cli
