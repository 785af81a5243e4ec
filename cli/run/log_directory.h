// Directories of logs: a directory of the user's, or one that goes away with its owner.
#pragma once

#include <string>

namespace pinion::cli {

/// Makes the directory where needed. Returns its absolute path, since a program may change its own. Throws
/// UsageError.
std::string make_log_directory(const std::string& path);

/// The fate of the logs and figures of an earlier run in a directory.
enum class Earlier { kept, removed };

/// Makes it too, for one run: files of an earlier one are removed, or moved into a folder of their own there
/// (run-1, run-2, ...). What a file contains decides: files of other programs stay, and one with a log's name
/// is refused, as is a directory whose run goes on.
std::string prepare_log_directory(const std::string& path, Earlier earlier);

/// Its owner holds a lock on it, which marks it as in use. The next owner clears what earlier ones, who were
/// killed, have left beside it.
class TemporaryLogDirectory {
 public:
  TemporaryLogDirectory();
  ~TemporaryLogDirectory();
  TemporaryLogDirectory(const TemporaryLogDirectory&) = delete;
  TemporaryLogDirectory& operator=(const TemporaryLogDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;  ///< the open directory
};

}  // namespace pinion::cli
