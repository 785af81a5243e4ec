// The file that the processes of a job on one node write their logs to (format.h): creating or joining it,
// and taking chunks of it. Owns the open file, a mapping of its header, and a shared lock on it. The lock
// marks the file as still in use; the mapping keeps it where the program closes the file. One thread at a
// time may call it, and never from a hook.
//
// Where mappings are private to a process (shared_mapping.h), the node's file stays empty and is marked so.
// Each process then writes a file of its own beside it: chunks are memory of the process, and write_back()
// carries them to the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/kept_file.h"
#include "runlog/format.h"

namespace pinion::runlog {

/// Whether a regular file, not a link, begins as logs do.
bool is_log(const std::string& path);
/// Whether a process writes to this log, as far as its lock shows.
bool is_written_to(const std::string& path);

class NodeFile {
 public:
  NodeFile() = default;
  ~NodeFile() { close(); }
  NodeFile(const NodeFile&) = delete;
  NodeFile& operator=(const NodeFile&) = delete;

  /// Joins `<directory>/<host>.<job>.plog`, which the first process of the job on this node creates; makes
  /// the directory where needed. The creator moves other jobs' files of this node into folders of
  /// their own there (run-JOB) when nobody writes to them any more and `replaces`: a directory holds one run.
  enum class Mapping { where_possible, none };
  Error open(const std::string& directory, std::uint64_t job, bool replaces,
             Mapping mapping = Mapping::where_possible);
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

  /// Returns whether bytes written to the chunks reach the file only by write_back().
  bool needs_write_back() const { return own_header_ != nullptr; }
  Error write_back(const void* begin, std::uint64_t bytes);

 private:
  /// Chunks that write_back() is for.
  struct Piece {
    char* address;
    std::uint64_t bytes;
    std::uint64_t offset;  ///< in the file
  };

  Error create(const std::string& directory, const std::string& name);
  /// No error and a null header: each of the node's processes has its own file.
  Error join();
  Error open_own(const std::string& directory, const std::string& name);
  void remember(const Piece& piece);
  void move_finished(const std::string& directory, const std::string& host) const;
  Error within_size_limit(std::uint64_t end) const;

  /// Runs `use` with the descriptor of the file of `path_`, to be asked for at each call. Where the program
  /// has closed it, the file is opened anew, out of the program's sight.
  Error with_file(const std::function<Error(const std::function<int()>&)>& use);

  std::string path_;
  KeptFile file_;       ///< the node's
  bool alone_ = false;  ///< links fail here, so the node has no file of that name
  Mapping mapping_ = Mapping::where_possible;
  NodeHeader* header_ = nullptr;
  int opened_by_ = 0;          ///< process id
  std::uint32_t process_ = 0;  ///< our number, from 1
  // Of a file of this process's own.
  KeptFile own_file_;
  std::unique_ptr<NodeHeader> own_header_;  ///< null: there is none
  std::vector<Piece> pieces_;
};

}  // namespace pinion::runlog
