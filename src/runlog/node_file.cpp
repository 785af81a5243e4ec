#include "runlog/node_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include "monitor/system_call.h"

namespace pinion::runlog {

namespace {

namespace fs = std::filesystem;

NodeHeader new_header() {
  NodeHeader h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.chunk_bytes = kChunkBytes;
  h.process_bytes = sizeof(ProcessHeader);
  h.live_bytes = sizeof(LiveState);
  h.site_bytes = sizeof(SiteEntry);
  h.event_bytes = sizeof(Event);
  return h;
}

// Mappings come and go while the program runs, and their memory is nobody else's: no memory events of these.
// At `address`, or where the kernel likes. Forked children do not get them.
Error map_shared(int file, std::uint64_t offset, std::uint64_t bytes, char*& address) {
  const int flags = MAP_SHARED | (address ? MAP_FIXED : 0);
  const long mapped = raw_system_call(
      SYS_mmap, arguments_of(address, bytes, PROT_READ | PROT_WRITE, flags, file, static_cast<long>(offset)));
  if (is_error(mapped)) return Error::make(static_cast<int>(-mapped), "mapping: %s", std::strerror(-mapped));
  address = reinterpret_cast<char*>(mapped);
  raw_system_call(SYS_madvise, arguments_of(address, bytes, MADV_DONTFORK));
  return {};
}

Error take_space(int file, std::uint64_t offset, std::uint64_t bytes) {
  int code;
  do {
    code = ::posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code == 0) return {};
  return Error::make(code, "taking %" PRIu64 " bytes: %s", bytes, std::strerror(code));
}

template <class T>
Error write_at(int file, std::uint64_t offset, const T* data, std::uint64_t count) {
  const auto bytes = static_cast<ssize_t>(count * sizeof(T));
  const ssize_t written = ::pwrite(file, data, static_cast<std::size_t>(bytes), static_cast<off_t>(offset));
  if (written == bytes) return {};
  const int code = written < 0 ? errno : ENOSPC;
  return Error::make(code, "writing: %s", std::strerror(code));
}

Error about(const std::string& path, const Error& error) {
  return Error::make(error.code, "log %.200s: %s", path.c_str(), error.message);
}

// A reader takes the lock for itself for an instant, to see whether anybody writes here (reader.cpp). Where
// there are no locks, old files stay.
void say_that_we_write(int file) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Error from_errno(const std::string& path) {
  const int code = errno;
  return Error::make(code, "log %.200s: %s", path.c_str(), std::strerror(code));
}

}  // namespace

Error NodeFile::open(const std::string& directory, std::uint64_t job, bool replaces) {
  close();
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed)
    return Error::make(failed.value(), "log directory %s: %s", directory.c_str(), failed.message().c_str());
  char host[sizeof ProcessHeader::host] = {};
  ::gethostname(host, sizeof host - 1);
  char name[sizeof host + 32];
  std::snprintf(name, sizeof name, "%s.%016" PRIx64 ".plog", host, job);
  path_ = directory + "/" + name;

  Error error;
  bool created = false;
  while (!error && file_ < 0) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (file_ >= 0) break;
    if (errno != ENOENT) return from_errno(path_);
    error = create(directory, name);
    created = file_ >= 0;
  }
  if (!error) error = join();
  if (error) {
    close();
    return error;
  }
  if (created && replaces) remove_finished(directory, host);
  return {};
}

// The file gets its name when its header is whole. Without an error and without a file, another process was
// faster.
Error NodeFile::create(const std::string& directory, const std::string& name) {
  const std::string unnamed = directory + "/." + name + "." + std::to_string(::getpid());
  ::unlink(unnamed.c_str());
  const int file = ::open(unnamed.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return from_errno(unnamed);
  const NodeHeader header = new_header();
  // Locked before others see it: a file that nobody holds is taken for one of an earlier job.
  ::flock(file, LOCK_SH | LOCK_NB);
  Error error = within_size_limit(kChunkBytes);
  if (!error) error = take_space(file, 0, kChunkBytes);
  if (!error) error = write_at(file, 0, &header, 1);
  if (error) {
    error = about(path_, error);
  } else if (::link(unnamed.c_str(), path_.c_str()) == 0) {
    file_ = file;
  } else if (errno != EEXIST) {
    error = from_errno(path_);
  }
  ::unlink(unnamed.c_str());
  if (file_ < 0) ::close(file);
  return error;
}

Error NodeFile::join() {
  say_that_we_write(file_);
  NodeHeader found{};
  const NodeHeader ours = new_header();
  if (::pread(file_, &found, sizeof found, 0) != sizeof found ||
      std::memcmp(&found, &ours, offsetof(NodeHeader, chunks)) != 0)
    return Error::make(EINVAL, "log %.200s: another version of Pinion writes there", path_.c_str());
  char* mapped = nullptr;
  if (const Error error = map_shared(file_, 0, kChunkBytes, mapped)) return about(path_, error);
  header_ = reinterpret_cast<NodeHeader*>(mapped);
  opened_by_ = ::getpid();
  process_ = 1 + std::atomic_ref(header_->processes).fetch_add(1, std::memory_order_relaxed);
  return {};
}

// A file that nobody holds a lock on is finished, in order or not.
void NodeFile::remove_finished(const std::string& directory, const std::string& host) const {
  std::error_code failed;
  std::vector<std::string> others;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string path = entry->path().string();
    if (path != path_ && entry->path().extension() == ".plog" &&
        entry->path().filename().string().starts_with(host + "."))
      others.push_back(path);
  }
  for (const std::string& path : others) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(file);
  }
}

// Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which ends the program.
Error NodeFile::within_size_limit(std::uint64_t end) const {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur)
    return {};
  return Error::make(EFBIG, "the file size limit of %llu bytes (ulimit -f) is too small for it",
                     static_cast<unsigned long long>(limit.rlim_cur));
}

Error NodeFile::take(std::uint64_t count, std::uint64_t index, char* address) {
  std::uint64_t first;
  do {
    first = std::atomic_ref(header_->chunks).fetch_add(count, std::memory_order_relaxed);
  } while (table_offset(first) != table_offset(first + count - 1));  // a table lies in between
  if (first + count > kMaxChunks) return Error::make(EFBIG, "log %.200s: full", path_.c_str());
  const std::uint64_t offset = chunk_offset(first);
  const std::uint64_t bytes = count * kChunkBytes;
  ChunkOwner owners[kMostAtOnce];
  for (std::uint64_t i = 0; i < count; ++i) owners[i] = {process_, static_cast<std::uint32_t>(index + i)};
  Error error = within_size_limit(offset + bytes);
  if (!error) error = take_space(file_, offset, bytes);
  if (!error) error = write_at(file_, owner_offset(first), owners, count);
  if (!error) error = map_shared(file_, offset, bytes, address);
  if (error) return about(path_, error);
  return {};
}

bool NodeFile::is_mapped() const { return header_ && opened_by_ == ::getpid(); }

void NodeFile::close() {
  if (is_mapped()) raw_system_call(SYS_munmap, arguments_of(header_, kChunkBytes));
  if (file_ >= 0) ::close(file_);
  header_ = nullptr;
  file_ = -1;
  opened_by_ = 0;
  process_ = 0;
}

}  // namespace pinion::runlog
