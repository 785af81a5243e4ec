#include "node/node_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/assert.h"
#include "base/mix.h"
#include "base/plain_file.h"
#include "base/process_stat.h"
#include "base/range.h"
#include "monitor/system_call.h"

namespace pinion::node {

namespace {

template <class T>
using Shared = std::atomic<T>;
static_assert(Shared<std::uint64_t>::is_always_lock_free, "shared between processes");

struct SharedCpus {
  Shared<std::uint64_t> words[kMostCpus / 64];

  void store(const CpuSet& cpus) {
    for (std::size_t i = 0; i < std::size(words); ++i) {
      std::uint64_t word = 0;
      for (std::size_t bit = 0; bit < 64; ++bit) word |= std::uint64_t{cpus[64 * i + bit]} << bit;
      words[i].store(word, std::memory_order_relaxed);
    }
  }
  CpuSet load() const {
    CpuSet cpus;
    for (std::size_t i = 0; i < std::size(words); ++i) {
      for (std::uint64_t word = words[i].load(std::memory_order_relaxed); word != 0; word &= word - 1)
        cpus.set(64 * i + static_cast<std::size_t>(std::countr_zero(word)));
    }
    return cpus;
  }
};

/// All fields but the owner are written by the owner alone, and mean nothing together.
struct alignas(64) Slot {
  Shared<std::uint64_t> owner;  ///< identity; 0: free
  Shared<std::uint64_t> need;
  Shared<std::uint64_t> tie;
  Shared<std::uint64_t> shortage;
  Shared<std::uint32_t> threads;
  SharedCpus allowed, bound;
};

constexpr char kMagic[8] = {'p', 'i', 'n', 'r', 'o', 'o', 'm', '\0'};
constexpr std::uint32_t kVersion = 3;

}  // namespace

/// A file of zeros becomes a table when its magic is written.
struct SharedTable {
  char magic[8];
  std::uint32_t version;
  std::uint32_t bytes;
  std::uint64_t limit;  ///< written under the file's lock, by the first member
  alignas(64) Shared<std::uint64_t> shortages;
  Shared<std::uint32_t> slots_used;  ///< all slots ever used lie below this number
  Slot slots[NodeTable::kMostProcesses];
  Shared<std::uint64_t> pieces[NodeTable::kPieces];  ///< identities; 0: free
};

namespace {

Error failed(const std::string& path, const char* what) {
  const int code = errno;
  return Error::make(code, "%.200s: %s: %s", path.c_str(), what, std::strerror(code));
}

std::string prefix() { return "pinion-" + std::to_string(::geteuid()) + "-node-"; }

/// Calls visit(name) for each file of the directory whose name begins so.
template <class Visit>
void for_each_file(const std::string& directory, const std::string& begin, Visit&& visit) {
  DIR* entries = ::opendir(directory.c_str());
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries))
    if (std::strncmp(entry->d_name, begin.c_str(), begin.size()) == 0) visit(std::string(entry->d_name));
  ::closedir(entries);
}

/// The open file of a table: the turn to join or leave it, which is a lock on its first byte, and a lock for
/// each slot on one behind it. The slots' last as long as their file is open or mapped.
class Door {
 public:
  explicit Door(const std::string& path, int flags)
      : file_(::open(path.c_str(), flags | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600)) {}
  ~Door() {
    if (file_ < 0) return;
    lock(F_OFD_SETLK, F_UNLCK, 0, 1);  // a mapping, or a forked child, may have the file open too
    ::close(file_);
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  int file() const { return file_; }
  /// False: another process holds it for far too long.
  bool wait() {
    constexpr int kTries = 2000;
    for (int i = 0; i < kTries; ++i) {
      if (try_lock()) return true;
      const timespec pause{0, 1'000'000};
      ::nanosleep(&pause, nullptr);
    }
    return false;
  }
  bool try_lock() { return lock(F_OFD_SETLK, F_WRLCK, 0, 1) == F_WRLCK; }

  /// False: somebody else has it.
  bool lock_slot(int slot) { return lock(F_OFD_SETLK, F_WRLCK, 1 + slot, 1) == F_WRLCK; }
  void unlock_slot(int slot) { lock(F_OFD_SETLK, F_UNLCK, 1 + slot, 1); }
  /// Whether others have locks on one of so many slots; also where that cannot be found out.
  bool are_locked(int first, int count) const {
    return file_ < 0 || lock(F_OFD_GETLK, F_WRLCK, 1 + first, count) != F_UNLCK;
  }

  struct stat status() const {
    struct stat found {};
    ::fstat(file_, &found);
    return found;
  }

 private:
  /// The type of the lock then; -1: refused.
  int lock(int command, short type, off_t begin, off_t bytes) const {
    struct flock part {};
    part.l_type = type;
    part.l_whence = SEEK_SET;
    part.l_start = begin;
    part.l_len = bytes;
    return ::fcntl(file_, command, &part) == 0 ? part.l_type : -1;
  }
  const int file_;
};

bool is_table(const SharedTable& file) {
  return std::memcmp(file.magic, kMagic, sizeof kMagic) == 0 && file.version == kVersion &&
         file.bytes == sizeof(SharedTable);
}

// Memory events of this mapping are irrelevant. Children of fork() lose it.
SharedTable* map(int file) {
  const long mapped = raw_system_call(
      SYS_mmap, arguments_of(0L, sizeof(SharedTable), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L));
  if (is_error(mapped)) {
    errno = static_cast<int>(-mapped);
    return nullptr;
  }
  raw_system_call(SYS_madvise, arguments_of(mapped, sizeof(SharedTable), MADV_DONTFORK));
  return reinterpret_cast<SharedTable*>(mapped);
}
void unmap(SharedTable* file) { raw_system_call(SYS_munmap, arguments_of(file, sizeof(SharedTable))); }

}  // namespace

std::uint64_t identity_of(int process) {
  return static_cast<std::uint64_t>(process) << 32 | (process_stat(process).started & 0xffffffff);
}

std::uint64_t member_identity_of(int process) {
  const std::uint64_t started = process_stat(process).started;
  return static_cast<std::uint64_t>(process) << 32 | (mix(started, pid_namespace(process)) & 0xffffffff);
}

// ---- joining and leaving ----

std::string NodeTable::name_of(std::uint64_t job) {
  char name[17];
  std::snprintf(name, sizeof name, "%016" PRIx64, job);
  return prefix() + name;
}

Error NodeTable::join(const std::string& directory, std::uint64_t job, std::uint64_t limit,
                      std::uint64_t identity) {
  leave();
  identity_ = identity;
  opened_by_ = ::getpid();
  const std::string first = directory + "/" + name_of(job);
  Error refused;
  for (const int flags : {0, O_CREAT}) {
    for (int i = 0; i < kNames; ++i) {
      bool passed = false;
      const Error error =
          open_and_join(i == 0 ? first : first + "." + std::to_string(i), flags, limit, passed);
      if (!passed) return error ? error : check_lock();
      if (flags == O_CREAT && !refused) refused = error;
    }
  }
  return refused;
}

/// Some file systems keep a lock no longer than its descriptor.
Error NodeTable::check_lock() {
  if (Door(path_, 0).are_locked(slot_, 1)) return {};
  const std::string path = path_;
  leave();
  return Error::make(ENOLCK, "%.200s: locks do not last on its file system", path.c_str());
}

Error NodeTable::open_and_join(const std::string& path, int flags, std::uint64_t limit, bool& passed) {
  for (;;) {
    Door door(path, flags);
    passed = true;
    if (door.file() < 0) return failed(path, "cannot be opened");
    if (!is_users_alone(door.status()))
      return Error::make(EPERM, "%.200s: not a file of this user's alone", path.c_str());
    passed = false;
    if (!door.wait()) return Error::make(EBUSY, "%.200s: locked by another process", path.c_str());
    const struct stat status = door.status();
    if (status.st_nlink == 0) continue;  // the last one has left meanwhile
    if (status.st_size != 0 && status.st_size != sizeof(SharedTable))
      return Error::make(EINVAL, "%.200s: another version of Pinion meets there", path.c_str());
    const bool fits = status.st_size != 0 || sizeof(SharedTable) <= file_size_limit();
    if (const int code = fits ? take_file_space(door.file(), 0, sizeof(SharedTable)) : EFBIG) {
      errno = code;
      return failed(path, "cannot be made");
    }
    SharedTable* file = map(door.file());
    if (!file) return failed(path, "cannot be mapped");
    if (file->magic[0] == '\0') {
      file->version = kVersion;
      file->bytes = sizeof(SharedTable);
      std::memcpy(file->magic, kMagic, sizeof kMagic);
    }
    if (!is_table(*file)) {
      unmap(file);
      return Error::make(EINVAL, "%.200s: another version of Pinion meets there", path.c_str());
    }
    file_ = file;
    path_ = path;
    inode_ = status.st_ino;
    clear_up(true);
    if (enter(limit, [&](int slot) { return door.lock_slot(slot); })) return {};
    leave();
    return Error::make(ENOSPC, "%.200s: %d processes are in it already", path.c_str(), kMostProcesses);
  }
}

std::shared_ptr<SharedTable> NodeTable::simulated() { return std::make_shared<SharedTable>(); }

Error NodeTable::join(std::shared_ptr<SharedTable> table, std::uint64_t limit, std::uint64_t number) {
  leave();
  identity_ = number;
  simulated_ = std::move(table);
  file_ = simulated_.get();
  if (enter(limit, [](int) { return true; })) return {};
  leave();
  return Error::make(ENOSPC, "%d processes are in the node's table already", kMostProcesses);
}

/// Takes a free slot that `lock(slot)` locks; false: there is none.
template <class Lock>
bool NodeTable::enter(std::uint64_t limit, Lock&& lock) {
  if (!anybody_else()) file_->limit = limit;
  limit_ = file_->limit;
  const std::uint64_t least = (limit_ + kPieces - 1) / kPieces;
  piece_bytes_ = std::max<std::uint64_t>(page_size(), page_ceil(least));
  pieces_ = std::min(kPieces, limit_ / piece_bytes_);
  for (int i = 0; i < kMostProcesses && slot_ < 0; ++i) {
    Slot& slot = file_->slots[i];
    // A member that has left may have its lock for a moment longer.
    if (slot.owner.load() != 0 || !lock(i)) continue;
    slot.owner.store(identity_);  // none but who has the turn takes a slot
    slot_ = i;
    file_->slots_used = std::max<std::uint32_t>(file_->slots_used, static_cast<std::uint32_t>(i + 1));
    post_shortage(0);
    post({});
  }
  return slot_ >= 0;
}

void NodeTable::leave() {
  if (!file_) return;
  if (simulated_) {
    if (slot_ >= 0) reclaim(slot_, identity_);
    simulated_.reset();
  } else if (opened_by_ == ::getpid()) {
    Door door(path_, 0);
    const bool turn = door.file() >= 0 && door.status().st_ino == inode_ && door.wait();
    if (slot_ >= 0) reclaim(slot_, identity_);
    if (turn) {
      clear_up(true);
      if (!anybody_else()) ::unlink(path_.c_str());
    }
    unmap(file_);
  }
  file_ = nullptr;
  slot_ = -1;
  limit_ = pieces_ = 0;
}

bool NodeTable::anybody_else() const {
  return std::any_of(std::begin(file_->slots), std::end(file_->slots), [&](const Slot& slot) {
    const std::uint64_t owner = slot.owner.load();
    return owner != 0 && owner != identity_;
  });
}

void NodeTable::reclaim(int slot, std::uint64_t identity) {
  for (Shared<std::uint64_t>& piece : file_->pieces) {
    std::uint64_t owner = identity;
    piece.compare_exchange_strong(owner, 0);
  }
  file_->slots[slot].owner.compare_exchange_strong(identity, 0);
}

int NodeTable::clear_up(bool all) {
  if (simulated_) return 0;  // nobody ends without leaving
  constexpr int kAFew = 2;
  int ended = 0;
  const Door door(path_, 0);
  if (door.file() < 0 || door.status().st_ino != inode_) return 0;
  for (int looked = 0, i = 0; i < kMostProcesses && (all || looked < kAFew); ++i) {
    const int slot = next_look_;
    next_look_ = (next_look_ + 1) % kMostProcesses;
    const std::uint64_t owner = file_->slots[slot].owner.load();
    if (owner == 0 || slot == slot_) continue;
    ++looked;
    if (door.are_locked(slot, 1)) continue;
    reclaim(slot, owner);
    ++ended;
  }
  return ended;
}

void remove_abandoned_tables(const std::string& directory) {
  for_each_file(directory, prefix(), [&](const std::string& name) {
    const std::string path = directory + "/" + name;
    Door door(path, 0);
    if (door.file() < 0) return;
    const struct stat status = door.status();
    if (!is_users_alone(status) || status.st_size != sizeof(SharedTable) || !door.try_lock()) return;
    SharedTable* file = map(door.file());
    if (!file) return;
    const bool abandoned = is_table(*file) && !door.are_locked(0, NodeTable::kMostProcesses);
    if (abandoned) ::unlink(path.c_str());
    unmap(file);
  });
}

// ---- the limit ----

bool NodeTable::take(std::size_t count, std::vector<std::uint16_t>& pieces) {
  PINION_ASSERT(inside());
  const std::size_t before = pieces.size();
  for (std::uint64_t looked = 0; looked < pieces_ && pieces.size() < before + count; ++looked) {
    if (next_piece_ >= pieces_) next_piece_ = 0;
    Shared<std::uint64_t>& piece = file_->pieces[next_piece_];
    std::uint64_t owner = piece.load(std::memory_order_relaxed);
    if (owner == 0 && piece.compare_exchange_strong(owner, identity_))
      pieces.push_back(static_cast<std::uint16_t>(next_piece_));
    ++next_piece_;
  }
  if (pieces.size() == before + count) return true;
  while (pieces.size() > before) {
    give_back(pieces.back());
    pieces.pop_back();
  }
  return false;
}

void NodeTable::give_back(std::uint16_t piece) {
  PINION_ASSERT(inside() && piece < kPieces);
  std::uint64_t owner = identity_;
  file_->pieces[piece].compare_exchange_strong(owner, 0);
}

std::map<std::uint64_t, std::uint64_t> NodeTable::pieces_of_others() const {
  std::map<std::uint64_t, std::uint64_t> pieces;
  for (std::uint64_t i = 0; i < pieces_; ++i) ++pieces[file_->pieces[i].load(std::memory_order_relaxed)];
  pieces.erase(0);
  pieces.erase(identity_);
  return pieces;
}

void NodeTable::post_shortage(std::uint64_t bytes) {
  file_->slots[slot_].shortage.store(bytes, std::memory_order_relaxed);
  if (bytes) file_->shortages.fetch_add(1, std::memory_order_release);
}

std::uint64_t NodeTable::shortage() const {
  return file_->slots[slot_].shortage.load(std::memory_order_relaxed);
}

std::uint64_t NodeTable::shortages() const { return file_->shortages.load(std::memory_order_acquire); }

// ---- posts of the processes ----

void NodeTable::post(const Post& post) {
  Slot& slot = file_->slots[slot_];
  slot.need.store(post.standing.need, std::memory_order_relaxed);
  slot.tie.store(post.standing.tie, std::memory_order_relaxed);
  slot.threads.store(post.threads, std::memory_order_relaxed);
  slot.allowed.store(post.allowed);
  slot.bound.store(post.bound);
}

std::vector<NodeTable::Member> NodeTable::members(std::size_t& self) const {
  std::vector<Member> all;
  const int used = std::min<int>(kMostProcesses, static_cast<int>(file_->slots_used.load() & 0xffff));
  for (int i = 0; i < used; ++i) {
    const Slot& slot = file_->slots[i];
    const std::uint64_t owner = slot.owner.load(std::memory_order_acquire);
    if (owner == 0) continue;
    if (i == slot_) self = all.size();
    Member member;
    member.identity = owner;
    member.shortage = slot.shortage.load(std::memory_order_relaxed);
    member.post.standing = {slot.need.load(std::memory_order_relaxed),
                            slot.tie.load(std::memory_order_relaxed)};
    member.post.threads = slot.threads.load(std::memory_order_relaxed);
    member.post.allowed = slot.allowed.load();
    member.post.bound = slot.bound.load();
    all.push_back(member);
  }
  return all;
}

}  // namespace pinion::node
