#include "monitor/own_calls.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/loaded_objects.h"
#include "base/plain_file.h"
#include "base/process_mutex.h"
#include "base/range.h"
#include "monitor/known_code.h"
#include "monitor/loader.h"
#include "monitor/mapping_reader.h"
#include "monitor/own_process.h"
#include "monitor/system_call.h"

namespace pinion {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers that this library was instrumented for. The memory of others' programs goes by their
// allocators unseen.
constexpr std::string_view kOwnLibraries[] = {"libpinion.so", "libpinion-", "libasan.", "libtsan.",
                                              "libubsan."};
#else
constexpr std::string_view kOwnLibraries[] = {"libpinion.so", "libpinion-"};
#endif

struct CodeMapping {
  Range range;
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  bool is_private = false;
  std::string path;
  std::size_t read = 0;
  std::uint64_t fingerprint = 0;  ///< known_code.h

  /// The preloads too: their system calls change only memory that programs cannot register.
  bool is_pinions() const {
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    for (const std::string_view own : kOwnLibraries)
      if (name.starts_with(own)) return true;
    return false;
  }
  /// Both are of one loading of one object.
  bool is_with(const CodeMapping& other) const {
    return inode == other.inode && path == other.path &&
           range.begin - offset == other.range.begin - other.offset;
  }
  bool is(const CodeMapping& other) const { return range == other.range && is_with(other); }
};

/// Lists executable mappings of files, in order of address. False: some may be missing.
bool list_code_mappings(std::vector<CodeMapping>& mappings) {
  MappingReader maps;
  std::string path;
  for (Mapping mapping; maps.next(mapping, &path);)
    if ((mapping.protection & PROT_EXEC) != 0 && path.starts_with('/'))
      mappings.push_back({mapping.range, mapping.offset, mapping.inode, mapping.is_private, path});
  return !maps.failed();
}

const CodeMapping* mapping_of(const std::vector<CodeMapping>& mappings, const void* address) {
  const auto found = std::find_if(mappings.begin(), mappings.end(), [&](const CodeMapping& mapping) {
    return address != nullptr && mapping.range.contains(Range::of(address, 1));
  });
  return found == mappings.end() ? nullptr : &*found;
}

/// Asked once, at the start of the first run: a thread that holds the dynamic linker's lock may wait for the
/// mutex under which this is called.
const void* libc_code() {
  static const void* const code = c_library_function("munmap");
  return code;
}

/// The mappings whose calls are seen, or are this library's own.
std::vector<CodeMapping> known_mappings(const std::vector<CodeMapping>& mappings) {
  const void* const addresses[] = {libc_code(), loader_code(), reinterpret_cast<const void*>(&find_own_call)};
  std::vector<CodeMapping> known;
  for (const void* address : addresses)
    if (const CodeMapping* mapping = mapping_of(mappings, address)) known.push_back(*mapping);
  return known;
}

/// Reads code of a mapping. The mapping may go at any time, as another thread may unload the library.
class CodeReader {
 public:
  explicit CodeReader(const CodeMapping& mapping) : mapping_(mapping), file_(open_file()) {}
  ~CodeReader() {
    if (file_ >= 0) ::close(file_);
  }
  CodeReader(const CodeReader&) = delete;
  CodeReader& operator=(const CodeReader&) = delete;

  /// Fills `room`. What is gone, or lies behind the end of a file that was cut, runs no more: it reads as
  /// zeros. An error: the kernel refuses to show the code.
  Error read(std::size_t at, std::span<std::byte> room) const {
    const auto from = static_cast<off_t>(mapping_.offset + at);
    if (file_ >= 0 && ::pread(file_, room.data(), room.size(), from) == static_cast<ssize_t>(room.size()))
      return {};
    for (std::size_t done = 0; done < room.size();) {
      const std::size_t page = std::min(room.size() - done, page_size() - (at + done) % page_size());
      const long bytes = read_page(mapping_.range.begin + at + done, room.subspan(done, page));
      if (bytes == -EFAULT) std::fill_n(room.begin() + static_cast<std::ptrdiff_t>(done), page, std::byte{0});
      if (is_error(bytes) && bytes != -EFAULT)
        return Error::make(static_cast<int>(-bytes), "the code of %s cannot be read (%s)",
                           mapping_.path.c_str(), std::strerror(static_cast<int>(-bytes)));
      done += page;
    }
    return {};
  }

  /// 0: there is none.
  std::uint64_t fingerprint(std::uint64_t reader) const {
    // The file's times show no writes of those who share a mapping of code.
    if (file_ < 0 || reader == 0 || !mapping_.is_private) return 0;
    return fingerprint_of_code(file_, status_, mapping_.offset, mapping_.range.bytes(), reader);
  }

 private:
  /// Reading the file saves page tables. Another file may have the name by now.
  int open_file() {
    const int file = open_named_file(mapping_.path, status_);
    if (file < 0 || status_.st_ino == mapping_.inode) return file;
    ::close(file);
    return -1;
  }

  static long read_page(Address from, std::span<std::byte> room) {
    const long bytes = read_memory(from, room.data(), room.size());
    // Code may be there to be run alone; a sandbox may refuse the call.
    return is_error(bytes) ? read_memory_without_rights(from, room.data(), room.size()) : bytes;
  }

  const CodeMapping& mapping_;
  struct stat status_ {};  ///< as the file was opened
  const int file_;
};

/// The fingerprint of find_own_call()'s own code: another build may find more. 0: unknown.
std::uint64_t reader_in(const std::vector<CodeMapping>& mappings) {
  const CodeMapping* const own = mapping_of(mappings, reinterpret_cast<const void*>(&find_own_call));
  return own == nullptr ? 0 : CodeReader(*own).fingerprint(1);
}

/// The code that has been read, and the rest. Guarded by `looking`.
class LoadedCode {
 public:
  const Error& finding() const { return finding_; }
  CodeFinding look(std::size_t most_bytes) {
    if (!list()) return {};
    const std::size_t read_before = read_.size();
    while (!unread_.empty() && most_bytes > 0 && !finding_) {
      CodeMapping& mapping = unread_.back();
      most_bytes -= read_on(mapping, most_bytes);
      if (mapping.read < mapping.range.bytes()) continue;
      read_.push_back(mapping);
      unread_.pop_back();
    }
    note(read_before);
    return {finding_ || unread_.empty(), finding_};
  }

 private:
  /// False: the mappings are unknown.
  bool list() {
    // Read before the mappings, so that code loaded meanwhile is listed next time.
    const std::uint64_t loads = loads_announced();
    if (listed_ && loads == loads_) return true;
    std::vector<CodeMapping> mappings;
    if (!list_code_mappings(mappings)) return false;
    const std::vector<CodeMapping> known = known_mappings(mappings);
    std::vector<CodeMapping> still_there;
    unread_.clear();
    for (const CodeMapping& mapping : mappings) {
      const auto same = [&](const CodeMapping& other) { return mapping.is(other); };
      const auto with = [&](const CodeMapping& other) { return mapping.is_with(other); };
      if (mapping.is_pinions() || std::any_of(known.begin(), known.end(), with)) continue;
      const bool was_read = std::any_of(read_.begin(), read_.end(), same);
      (was_read ? still_there : unread_).push_back(mapping);
    }
    read_ = std::move(still_there);
    pass_known(reader_in(mappings));
    listed_ = true;
    loads_ = loads;
    return true;
  }

  /// Counts as read what a process of this user's has read before.
  void pass_known(std::uint64_t reader) {
    if (unread_.empty()) return;
    const KnownCode earlier;
    const auto is_known = [&](CodeMapping& mapping) {
      mapping.fingerprint = CodeReader(mapping).fingerprint(reader);
      return earlier.has(mapping.fingerprint);
    };
    const auto known = std::stable_partition(unread_.begin(), unread_.end(), std::not_fn(is_known));
    std::move(known, unread_.end(), std::back_inserter(read_));
    unread_.erase(known, unread_.end());
  }

  /// Tells later processes what has been read from read_[first] on.
  void note(std::size_t first) const {
    if (first == read_.size()) return;
    const KnownCode later;
    for (std::size_t i = first; i < read_.size(); ++i) later.add(read_[i].fingerprint);
  }

  /// Reads on, and returns the number of bytes read.
  std::size_t read_on(CodeMapping& mapping, std::size_t most_bytes) {
    constexpr std::size_t kPart = std::size_t{64} << 10;
    const CodeReader reader(mapping);
    std::size_t done = 0;
    while (mapping.read < mapping.range.bytes() && done < most_bytes) {
      // With the end of the part before, in which a call may have begun.
      const std::size_t begin = mapping.read - std::min(mapping.read, kMostOwnCallBytes);
      const std::size_t end = std::min(begin + kPart, mapping.range.bytes());
      buffer_.resize(end - begin);
      if (Error refused = reader.read(begin, buffer_)) {
        finding_ = refused;
        break;
      }
      if (const auto call = find_own_call(buffer_.data(), buffer_.size())) {
        finding_ = Error::make(ENOTSUP, "%s calls %s without libc (at offset %#zx)", mapping.path.c_str(),
                               call->name, static_cast<std::size_t>(mapping.offset) + begin + call->offset);
        break;
      }
      done += end - mapping.read;
      mapping.read = end;
    }
    return std::min(done, most_bytes);
  }

  bool listed_ = false;
  std::uint64_t loads_ = 0;  ///< as of the last list()
  std::vector<CodeMapping> read_, unread_;
  std::vector<std::byte> buffer_;
  Error finding_;
};

constinit ProcessMutex looking;

/// Never freed: threads may look while the process ends. A forked child begins anew, as another thread may
/// have been in the middle of it.
LoadedCode* the_code GUARDED_BY(looking) = nullptr;
LoadedCode& loaded_code() REQUIRES(looking) {
  if (the_code == nullptr) the_code = new LoadedCode;
  return *the_code;
}

}  // namespace

CodeFinding look_at_loaded_code(std::size_t most_bytes) {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      const ProcessLock lock(looking);
      the_code = nullptr;
    });
  });
  if (!looking.try_lock()) return {};
  const ProcessLock lock(looking, std::adopt_lock);
  return loaded_code().look(most_bytes);
}

Error own_calls_found() {
  const ProcessLock lock(looking);
  return loaded_code().finding();
}

}  // namespace pinion
