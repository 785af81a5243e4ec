// The table that the processes of one user's job on a node share: a file in shared memory with a slot for
// each process and the pieces that a limit of the node is dealt out in.
//
// A NodeTable is one process's membership in it. join(), leave() and the object itself: one thread at a time.
// Between them any thread may call the rest; never from hooks.
//
// Processes may be killed at any instruction, so every step is free of waiting:
//   - A slot belongs to the process whose identity it holds. A lock on a byte of the file shows that it
//   lives,
//     also to processes of another container, to which its number means nothing. The lock lasts as long as
//     the process has the file mapped: it needs no descriptor. A member that finds a slot without a lock
//     gives back its pieces, then the slot. Both are compare-and-swaps against that identity, so several
//     members may try, and one may be killed in between.
//   - A piece belongs to the identity in its word: taking and giving back are one compare-and-swap each.
//     So the pieces of all processes stay within the limit at any time.
//   - Joining and leaving take turns by another lock on the file.
// The last member to leave removes the file. The file of a job that was killed as a whole is removed by the
// same user's next job. A child of fork() loses membership and mapping.
//
// The file's contents are untrusted: indices are the process's own, and numbers of others only weigh in
// decisions.
// The file must be the user's own, and closed to others. Another user may have taken its name before (a file,
// a symbolic link); then the next of a row of names serves. All processes first look for an existing table
// under all names. So they meet in one, whenever the other user takes or frees a name.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "node/cores.h"
#include "node/policy.h"

namespace pinion::node {

/// The identity of a living process: pid and (the low half of) its start time; never 0.
std::uint64_t identity_of(int process);
/// Returns one for members of a table, which differs also for processes of another PID namespace.
std::uint64_t member_identity_of(int process);
inline int process_of(std::uint64_t identity) { return static_cast<int>(identity >> 32); }

struct SharedTable;

class NodeTable {
 public:
  static constexpr int kMostProcesses = 512;
  /// A process wastes half of a piece on average: 512 of them 3 % of a limit.
  static constexpr std::uint64_t kPieces = 8192;
  static constexpr int kNames = 64;  ///< that a table may have

  NodeTable() = default;
  ~NodeTable() { leave(); }
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;

  /// Joins the table of `job` in `directory`. `limit`: bytes that its processes may have registered together;
  /// 0: no limit. A process that joins a table with another limit takes over that one. `identity`
  /// is the calling process's; tests give others.
  Error join(const std::string& directory, std::uint64_t job, std::uint64_t limit, std::uint64_t identity);
  /// The first name of the job's table.
  static std::string name_of(std::uint64_t job);
  /// A table without a file, for processes that exist in a simulation only: joined by each of them under a
  /// number of its own, other than 0, and left by each. One thread.
  static std::shared_ptr<SharedTable> simulated();
  Error join(std::shared_ptr<SharedTable> table, std::uint64_t limit, std::uint64_t number);
  /// Gives everything back. Harmless outside.
  void leave();
  bool inside() const { return file_ != nullptr; }

  // ---- the limit ----

  std::uint64_t limit() const { return limit_; }
  /// Whole pages. The part of the limit beyond the last whole piece goes unused.
  std::uint64_t piece_bytes() const { return piece_bytes_; }
  /// Takes pieces, all `count` or none: their numbers are added to `pieces`.
  bool take(std::size_t count, std::vector<std::uint16_t>& pieces);
  void give_back(std::uint16_t piece);
  /// The identities of the other processes that hold pieces, and how many.
  std::map<std::uint64_t, std::uint64_t> pieces_of_others() const;
  /// Bytes requested but unavailable; 0: no longer.
  void post_shortage(std::uint64_t bytes);
  /// The shortage that this process posted last.
  std::uint64_t shortage() const;
  /// Changes whenever a process runs short: one load.
  std::uint64_t shortages() const;

  // ---- posts of the processes ----

  struct Post {
    Standing standing;
    std::uint32_t threads = 1;  ///< that compute
    CpuSet allowed;             ///< CPUs that its cpuset has
    CpuSet bound;               ///< CPUs that its program runs on
  };
  void post(const Post& post);
  struct Member {
    std::uint64_t identity = 0;
    std::uint64_t shortage = 0;
    Post post;
  };
  /// All processes here, in the same order for all of them; `self`: the number of the calling one.
  std::vector<Member> members(std::size_t& self) const;
  /// Finds out whether a few of the others (or all) have ended, and clears up after them. Returns how many
  /// had.
  int clear_up(bool all);

 private:
  /// Joins under one of its names, `flags` beyond those for reading and writing. `passed`: the system does
  /// not support a table there.
  Error open_and_join(const std::string& path, int flags, std::uint64_t limit, bool& passed);
  Error check_lock();
  template <class Lock>
  bool enter(std::uint64_t limit, Lock&& lock);
  bool anybody_else() const;
  void reclaim(int slot, std::uint64_t identity);

  SharedTable* file_ = nullptr;
  std::shared_ptr<SharedTable> simulated_;  ///< the contents of a table without a file
  std::string path_;
  std::uint64_t inode_ = 0;
  std::uint64_t identity_ = 0;
  int slot_ = -1;
  int opened_by_ = 0;  ///< process id
  std::uint64_t limit_ = 0;
  std::uint64_t piece_bytes_ = 0;
  std::uint64_t pieces_ = 0;
  std::uint64_t next_piece_ = 0;  ///< where take() begins
  int next_look_ = 0;
};

/// Removes the files of this user's tables in `directory` that nobody alive is in.
void remove_abandoned_tables(const std::string& directory);

}  // namespace pinion::node
