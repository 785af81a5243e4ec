// The file that the processes of a job on one node write their logs to (format.h): creating or joining it,
// and taking chunks of it. Owns the open file, a mapping of its header, and a shared lock on it that says
// that somebody writes here still, which the mapping keeps where the program closes the file. One thread at a time may call it, and never from a hook.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/kept_file.h"
#include "runlog/format.h"

namespace pinion::runlog {

class NodeFile {
 public:
  NodeFile() = default;
  ~NodeFile() { close(); }
  NodeFile(const NodeFile&) = delete;
  NodeFile& operator=(const NodeFile&) = delete;

  /// Joins `<directory>/<host>.<job>.plog`, which the first process of the job on this node creates; makes
  /// the directory where needed. The creator removes other jobs' files of this node when nobody writes to
  /// them any more and `replaces`: a directory holds one run.
  Error open(const std::string& directory, std::uint64_t job, bool replaces);
  void close();

  bool is_open() const { return header_ != nullptr; }
  /// A forked child has the file, and none of its mappings.
  bool is_mapped() const;
  const std::string& path() const { return path_; }

  /// Takes `count` chunks (1 to kMostAtOnce) that lie side by side, with disk space, and maps them at
  /// `address`, so that touching them cannot fault. They become those of this process's log from `index` on.
  /// After an error nothing is mapped there.
  static constexpr std::uint64_t kMostAtOnce = 16;
  Error take(std::uint64_t count, std::uint64_t index, char* address);

 private:
  Error create(const std::string& directory, const std::string& name);
  Error join();
  void remove_finished(const std::string& directory, const std::string& host) const;
  Error within_size_limit(std::uint64_t end) const;

  /// The open file; opened anew by its name where the program has closed it. -1: it is gone.
  int descriptor();

  std::string path_;
  KeptFile file_;
  NodeHeader* header_ = nullptr;
  int opened_by_ = 0;          ///< process id
  std::uint32_t process_ = 0;  ///< our number, from 1
};

}  // namespace pinion::runlog
