#include "runlog/node_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
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

#include "base/own_files.h"
#include "base/plain_file.h"
#include "runlog/shared_mapping.h"

namespace pinion::runlog {

namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".plog";

NodeHeader new_header() {
  NodeHeader h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.chunk_bytes = kChunkBytes;
  h.process_bytes = sizeof(ProcessHeader);
  h.live_bytes = sizeof(LiveState);
  h.site_bytes = sizeof(SiteEntry);
  h.event_bytes = sizeof(Event);
  h.domain_bytes = sizeof(DomainEntry);
  h.module_bytes = sizeof(ModuleEntry);
  return h;
}

Error take_space(int file, std::uint64_t offset, std::uint64_t bytes) {
  const int code = take_file_space(file, offset, bytes);
  if (code == 0) return {};
  return Error::make(code, "taking %" PRIu64 " bytes: %s", bytes, std::strerror(code));
}

Error extend(int file, std::uint64_t end) {
  if (::ftruncate(file, static_cast<off_t>(end)) == 0) return {};
  const int code = errno;
  return Error::make(code, "making it larger: %s", std::strerror(code));
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

// A reader takes the lock for itself for an instant, to see whether a process writes here (reader.cpp). File
// systems that lack locks keep old files.
void say_that_we_write(int file) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Error from_errno(const std::string& path) {
  const int code = errno;
  return Error::make(code, "log %.200s: %s", path.c_str(), open_failure(code));
}

bool begins_as_log(int file) {
  char mark[sizeof kMagic] = {};
  return ::pread(file, mark, sizeof mark, 0) == sizeof mark && std::memcmp(mark, kMagic, sizeof mark) == 0;
}

}  // namespace

bool is_log(const std::string& path) {
  const int file = open_plain_file(path, O_RDONLY);
  if (file < 0) return false;
  const bool is = begins_as_log(file);
  ::close(file);
  return is;
}

bool is_written_to(const std::string& path) {
  const int file = open_plain_file(path, O_RDONLY);
  if (file < 0) return false;
  const bool is = begins_as_log(file) && ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return is;
}

Error NodeFile::open(const std::string& directory, std::uint64_t job, bool replaces, Mapping mapping) {
  close();
  mapping_ = mapping;
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed)
    return Error::make(failed.value(), "log directory %s: %s", directory.c_str(), failed.message().c_str());
  char host[sizeof ProcessHeader::host] = {};
  ::gethostname(host, sizeof host - 1);
  char name[sizeof host + 32];
  std::snprintf(name, sizeof name, "%s.%016" PRIx64 "%s", host, job, kExtension);
  path_ = directory + "/" + name;

  Error error;
  bool created = false;
  while (!error && !file_.is_open() && !alone_) {
    file_ = KeptFile(open_plain_file(path_, O_RDWR));
    if (file_.is_open()) break;
    if (errno != ENOENT) return from_errno(path_);
    error = create(directory, name);
    created = file_.is_open();
  }
  if (!error && file_.is_open()) error = join();
  if (!error && !header_) error = open_own(directory, name);
  if (error) {
    close();
    return error;
  }
  // Locks may be private where mappings are.
  if (created && replaces && !needs_write_back()) move_finished(directory, host);
  return {};
}

// The file gets its name when its header is whole. No error and no file: another process was faster.
Error NodeFile::create(const std::string& directory, const std::string& name) {
  const std::string unnamed = directory + "/." + name + "." + std::to_string(::getpid());
  const int file = replace_plain_file(unnamed);
  if (file < 0) return from_errno(unnamed);
  NodeHeader header = new_header();
  // Locked before others see it: a file that nobody holds is taken for one of an earlier job.
  ::flock(file, LOCK_SH | LOCK_NB);
  Error error = within_size_limit(kChunkBytes);
  if (!error) error = take_space(file, 0, kChunkBytes);
  if (!error) {
    constexpr std::uint64_t kUnused = kChunkBytes - 16;
    header.one_each = mapping_ == Mapping::none || !mappings_are_shared(file, unnamed, kUnused);
  }
  if (!error) error = write_at(file, 0, &header, 1);
  if (error) {
    error = about(path_, error);
  } else if (::link(unnamed.c_str(), path_.c_str()) == 0) {
    file_ = KeptFile(file);
  } else if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) {
    alone_ = true;  // no links there
  } else if (errno != EEXIST) {
    error = from_errno(path_);
  }
  ::unlink(unnamed.c_str());
  if (!file_.is_open()) ::close(file);
  return error;
}

Error NodeFile::with_file(const std::function<Error(const std::function<int()>&)>& use) {
  const KeptFile& kept = own_header_ ? own_file_ : file_;
  Error error = Error::make(EBADF, "the program has closed it");
  // The number is checked for each call: the program may take it at any time.
  if (kept.get() >= 0) error = use([&] { return kept.get(); });
  if (!error || kept.get() >= 0) return error;
  with_own_files([&] {
    const int again = open_plain_file(path_, O_RDWR);
    if (kept.is_file(again)) error = use([&] { return again; });
  });
  return error;
}

Error NodeFile::join() {
  const int file = file_.get();
  say_that_we_write(file);  // file systems that lack locks keep old files
  NodeHeader found{};
  const NodeHeader ours = new_header();
  if (::pread(file, &found, sizeof found, 0) != sizeof found ||
      std::memcmp(&found, &ours, offsetof(NodeHeader, chunks)) != 0)
    return Error::make(EINVAL, "log %.200s: another version of Pinion writes there", path_.c_str());
  if (found.one_each) return {};
  char* mapped = nullptr;
  if (const Error error = map_shared(file, 0, kChunkBytes, mapped)) return about(path_, error);
  header_ = reinterpret_cast<NodeHeader*>(mapped);
  opened_by_ = ::getpid();
  process_ = 1 + std::atomic_ref(header_->processes).fetch_add(1, std::memory_order_relaxed);
  return {};
}

Error NodeFile::open_own(const std::string& directory, const std::string& name) {
  const std::string stem = directory + "/" + name.substr(0, name.size() - std::strlen(kExtension)) + "." +
                           std::to_string(::getpid());
  int file = -1;
  for (int run = 1; file < 0; ++run) {
    path_ = stem + (run == 1 ? "" : "." + std::to_string(run)) + kExtension;
    file = create_plain_file(path_);
    if (file < 0 && errno != EEXIST) return from_errno(path_);
  }
  say_that_we_write(file);
  own_file_ = KeptFile(file);
  own_header_ = std::make_unique<NodeHeader>(new_header());
  own_header_->processes = 1;
  header_ = own_header_.get();
  opened_by_ = ::getpid();
  process_ = 1;
  Error error = within_size_limit(kChunkBytes);
  if (!error) error = write_at(own_file_.get(), 0, header_, 1);
  if (!error) return {};
  ::unlink(path_.c_str());
  return about(path_, error);
}

// A log without lock holders is finished, also after a crash.
void NodeFile::move_finished(const std::string& directory, const std::string& host) const {
  std::error_code failed;
  std::vector<std::string> others;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string path = entry->path().string();
    if (path != path_ && entry->path().extension() == kExtension &&
        entry->path().filename().string().starts_with(host + "."))
      others.push_back(path);
  }
  for (const std::string& path : others) {
    const int file = open_plain_file(path, O_RDONLY);
    if (file < 0) continue;
    if (begins_as_log(file) && ::flock(file, LOCK_EX | LOCK_NB) == 0) {
      const std::string name = fs::path(path).filename();
      const std::string job = name.substr(host.size() + 1, name.find('.', host.size() + 1) - host.size() - 1);
      const fs::path folder = fs::path(directory) / ("run-" + job);
      fs::create_directory(folder, failed);
      fs::rename(path, folder / name, failed);  // without the folder, the file stays
    }
    ::close(file);
  }
}

Error NodeFile::within_size_limit(std::uint64_t end) const {
  const std::uint64_t limit = file_size_limit();
  if (end <= limit) return {};
  return Error::make(EFBIG, "the file size limit of %llu bytes (ulimit -f) is too small for it",
                     static_cast<unsigned long long>(limit));
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
  const Error error = with_file([&](const std::function<int()>& file) {
    Error failed = within_size_limit(offset + bytes);
    // A full disk makes write calls fail, while touching memory would not.
    if (!failed) failed = own_header_ ? extend(file(), offset + bytes) : take_space(file(), offset, bytes);
    if (!failed) failed = write_at(file(), owner_offset(first), owners, count);
    if (!failed && own_header_) failed = write_at(file(), 0, header_, 1);
    if (!failed)
      failed = own_header_ ? map_private(bytes, address) : map_shared(file(), offset, bytes, address);
    return failed;
  });
  if (error) return about(path_, error);
  if (own_header_) remember({address, bytes, offset});
  return {};
}

void NodeFile::remember(const Piece& piece) {
  std::erase_if(pieces_, [&](const Piece& old) { return old.address == piece.address; });
  pieces_.push_back(piece);
}

Error NodeFile::write_back(const void* begin, std::uint64_t bytes) {
  const auto* const from = static_cast<const char*>(begin);
  const Error error = with_file([&](const std::function<int()>& file) {
    for (const Piece& piece : pieces_) {
      const char* const first = std::max<const char*>(from, piece.address);
      const char* const last = std::min<const char*>(from + bytes, piece.address + piece.bytes);
      if (first >= last) continue;
      const auto offset = piece.offset + static_cast<std::uint64_t>(first - piece.address);
      if (Error failed = write_at(file(), offset, first, static_cast<std::uint64_t>(last - first)))
        return failed;
    }
    return Error{};
  });
  return error ? about(path_, error) : error;
}

bool NodeFile::is_mapped() const { return header_ && opened_by_ == ::getpid(); }

void NodeFile::close() {
  if (is_mapped() && !own_header_) unmap(reinterpret_cast<char*>(header_), kChunkBytes);
  file_.close();
  own_file_.close();
  header_ = nullptr;
  own_header_.reset();
  pieces_.clear();
  alone_ = false;
  opened_by_ = 0;
  process_ = 0;
}

}  // namespace pinion::runlog
