#include "transfer/bootstrap/bootstrap.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/plain_file.h"
#include "base/process.h"
#include "base/process_stat.h"
#include "transfer/bootstrap/launcher_exchange.h"

namespace pinion::transfer {

namespace {

constexpr std::uint64_t kMagic = 0x32647261436e6950;  // "PinCard2"
constexpr std::size_t kMostAddress = 1024;
/// More than another user takes by accident; one who takes all is named by the error.
constexpr unsigned kMostNames = 64;

/// The beginning of a file; the address follows.
struct FileHeader {
  std::uint64_t magic, checksum, token, node, started, word;
  std::uint32_t rank, peers;
  std::int32_t process;
  std::uint32_t address_bytes;
  char provider[64];
};

/// FNV-1a: finds damage, not malice.
std::uint64_t hash(const void* bytes, std::size_t count, std::uint64_t hash = 0xcbf29ce484222325) {
  for (std::size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3;
  return hash;
}

std::uint64_t checksum(FileHeader header, const void* address) {
  header.checksum = 0;
  return hash(address, header.address_bytes, hash(&header, sizeof header));
}

/// Processes that see each other's numbers: of one boot and one process namespace.
std::uint64_t this_node() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  const std::uint64_t space = pid_namespace();
  return hash(&space, sizeof space, hash(boot.data(), boot.size()));
}

Error failed(const char* step, const std::string& name) {
  const int code = errno;
  return Error::make(code, "%s %s: %s", step, name.c_str(), std::strerror(code));
}

}  // namespace

Error membership_of_launcher(Membership& membership) {
  const JobPlace place = job_place();
  if (place.rank < 0 || place.ranks < 1 || place.rank >= place.ranks)
    return Error::make(EINVAL, "no launcher gives this process a rank: start it by mpirun or srun");
  membership.rank = static_cast<Peer>(place.rank);
  membership.peers = static_cast<Peer>(place.ranks);
  membership.directory.clear();
  if (place.local_ranks != place.ranks && launcher_exchanges()) return {};
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  char name[64];
  std::snprintf(name, sizeof name, "/pinion-transfer-%u-%016llx", static_cast<unsigned>(::geteuid()),
                static_cast<unsigned long long>(job_key()));
  membership.directory = (runtime && *runtime ? runtime : std::string("/tmp")) + name;
  membership.names = kMostNames;
  return {};
}

Card own_card(const Membership& membership) {
  Card card;
  card.rank = membership.rank;
  card.peers = membership.peers;
  card.node = this_node();
  card.process = ::getpid();
  card.started = process_stat(card.process).started;
  if (::getrandom(&card.token, sizeof card.token, 0) != sizeof card.token)
    card.token = hash(&card, sizeof card, static_cast<std::uint64_t>(monotonic_now()));
  return card;
}

std::string card_to_bytes(const Card& card) {
  FileHeader header{};
  header.magic = kMagic;
  header.token = card.token;
  header.node = card.node;
  header.started = card.started;
  header.word = card.word;
  header.rank = card.rank;
  header.peers = card.peers;
  header.process = card.process;
  header.address_bytes = static_cast<std::uint32_t>(card.address.size());
  card.provider.copy(header.provider, sizeof header.provider - 1);
  header.checksum = checksum(header, card.address.data());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes.append(reinterpret_cast<const char*>(card.address.data()), card.address.size());
}

Error card_from_bytes(const std::string& bytes, Card& card) {
  FileHeader header;
  if (bytes.size() < sizeof header) return Error::make(EBADMSG, "a card is truncated");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) return Error::make(EBADMSG, "this is no card of an endpoint");
  if (header.address_bytes > kMostAddress || bytes.size() != sizeof header + header.address_bytes)
    return Error::make(EBADMSG, "a card is truncated, or too long");
  const char* const address = bytes.data() + sizeof header;
  if (checksum(header, address) != header.checksum || header.provider[sizeof header.provider - 1] != 0)
    return Error::make(EBADMSG, "a card is damaged");
  card.rank = header.rank;
  card.peers = header.peers;
  card.token = header.token;
  card.node = header.node;
  card.process = header.process;
  card.started = header.started;
  card.word = header.word;
  card.provider = header.provider;
  card.address.assign(address, address + header.address_bytes);
  return {};
}

Error check_card(const Card& card, Peer rank, Peer peers) {
  if (card.rank == rank && card.peers == peers) return {};
  return Error::make(EBADMSG, "a card of another job: process %u of %u instead of %u of %u", card.rank,
                     card.peers, rank, peers);
}

Error Directory::open(const std::string& path, unsigned names) {
  Error refused;
  // All processes of the job find the one that the first of them made.
  for (const bool makes : {false, true}) {
    for (unsigned i = 0; i < names; ++i) {
      const Error error = open_name(i == 0 ? path : path + "." + std::to_string(i), makes);
      if (!error) return {};
      if (makes && !refused) refused = error;
    }
  }
  return refused;
}

Error Directory::open_name(const std::string& path, bool makes) {
  if (makes && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("cannot make", path);
  KeptFile directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat is {};
  if (!directory.is_open() || ::fstat(directory.get(), &is) != 0) return failed("cannot open", path);
  if (is.st_uid != ::geteuid() || (is.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error::make(EPERM, "%s is not this user's alone: others may write there", path.c_str());
  path_ = path;
  directory_ = static_cast<KeptFile&&>(directory);
  return {};
}

std::string Directory::name_of(Peer rank, const char* ending) const {
  return std::to_string(rank) + (job_ == 0 ? "" : "-" + std::to_string(job_)) + ending;
}

Error Directory::check_vacant(const Card& own) const {
  Card other;
  if (read(card_name(own.rank), other) || other.node != own.node || has_ended(other.process, other.started))
    return {};
  return Error::make(EADDRINUSE, "process %d is rank %u in %s already: another job needs another directory",
                     other.process, own.rank, path_.c_str());
}

Error Directory::publish(const Card& card) {
  if (const Error taken = check_vacant(card)) return taken;
  Error error = write(card);
  // The last process of a job before may have removed the directory.
  if (error.code == ENOENT && !(error = open_name(path_, true))) error = write(card);
  published_ = !error;
  return error;
}

Error Directory::write(const Card& card) const {
  const std::string name = card_name(card.rank), fresh = name + ".new", bytes = card_to_bytes(card);
  ::unlinkat(directory_.get(), fresh.c_str(), 0);
  const int file =
      ::openat(directory_.get(), fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return failed("cannot write", path_ + "/" + fresh);
  Error error;
  if (!write_whole(file, bytes)) error = failed("cannot write", path_ + "/" + fresh);
  ::close(file);
  if (!error && ::renameat(directory_.get(), fresh.c_str(), directory_.get(), name.c_str()) != 0)
    error = failed("cannot name", path_ + "/" + name);
  if (error) ::unlinkat(directory_.get(), fresh.c_str(), 0);
  return error;
}

Error Directory::read(const std::string& name, Card& card) const {
  const int file = ::openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return failed("cannot read", path_ + "/" + name);
  Error error;
  struct stat is {};
  char bytes[sizeof(FileHeader) + kMostAddress + 1];
  ssize_t count = 0;
  if (::fstat(file, &is) != 0) {
    error = failed("cannot read", path_ + "/" + name);
  } else if (!S_ISREG(is.st_mode) || is.st_uid != ::geteuid() || (is.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    error = Error::make(EPERM, "%s/%s is not a file of this user's alone", path_.c_str(), name.c_str());
  } else if ((count = ::read(file, bytes, sizeof bytes)) < 0) {
    error = failed("cannot read", path_ + "/" + name);
  } else if (Error bad = card_from_bytes(std::string(bytes, static_cast<std::size_t>(count)), card)) {
    error = Error::make(bad.code, "%s/%s: %s", path_.c_str(), name.c_str(), bad.message);
  }
  ::close(file);
  return error;
}

Error Directory::collect(Peer peers, Duration within, std::vector<Card>& cards,
                         const std::vector<std::uint64_t>& before) {
  const auto is_before = [&](const Card& card) {
    return std::find(before.begin(), before.end(), card.token) != before.end();
  };
  const Time end = monotonic_now() + within;
  const std::uint64_t node = this_node();
  cards.assign(peers, {});
  for (Peer rank = 0; rank < peers; ++rank) {
    for (Duration nap = 100 * kMicrosecond;; nap = std::min(2 * nap, 20 * kMillisecond)) {
      Card& card = cards[rank];
      Error error = read(card_name(rank), card);
      const bool stale =
          !error && ((card.node == node && has_ended(card.process, card.started)) || is_before(card));
      if (error.code == ENOENT || stale) error = read(left_name(rank), card);
      if (!error && is_before(card)) error = Error::make(ENOENT, "a card of a job before");
      if (!error) {
        if (Error other = check_card(card, rank, peers))
          return Error::make(other.code, "%s: %s", path_.c_str(), other.message);
        break;
      }
      if (error.code != ENOENT) return error;
      if (monotonic_now() >= end)
        return Error::make(ETIMEDOUT, "process %u of %u published no address in %s within %lld ms", rank,
                           peers, path_.c_str(), static_cast<long long>(within / kMillisecond));
      const timespec time{0, nap};
      ::nanosleep(&time, nullptr);
    }
  }
  return {};
}

bool Directory::has(const std::string& name) const {
  struct stat is {};
  return ::fstatat(directory_.get(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Directory::has_left(Peer rank) const { return has(left_name(rank)); }

void Directory::leave(const Card& own, const std::function<bool(Peer)>& is_gone) {
  if (!published_ || directory_.get() < 0) return;
  published_ = false;
  ::renameat(directory_.get(), card_name(own.rank).c_str(), directory_.get(), left_name(own.rank).c_str());
  for (Peer rank = 0; rank < own.peers; ++rank)
    if (rank != own.rank && !has_left(rank) && !is_gone(rank)) return;
  for (Peer rank = 0; rank < own.peers; ++rank) {
    // The card of a peer that has left may be of its next job already.
    ::unlinkat(directory_.get(), (has_left(rank) ? left_name(rank) : card_name(rank)).c_str(), 0);
  }
  ::rmdir(path_.c_str());
}

}  // namespace pinion::transfer
