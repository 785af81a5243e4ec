#include "runlog/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/plain_file.h"
#include "base/range.h"
#include "monitor/system_call.h"

namespace pinion::runlog {

namespace {

// Mappings of logs come and go while the program runs. Only Pinion uses their memory: no memory events.
Error map(int flags, int file, std::uint64_t offset, std::uint64_t bytes, char*& address) {
  if (address) flags |= MAP_FIXED;
  const long mapped = raw_system_call(
      SYS_mmap, arguments_of(address, bytes, PROT_READ | PROT_WRITE, flags, file, static_cast<long>(offset)));
  if (is_error(mapped)) return Error::make(static_cast<int>(-mapped), "mapping: %s", std::strerror(-mapped));
  address = reinterpret_cast<char*>(mapped);
  raw_system_call(SYS_madvise, arguments_of(address, bytes, MADV_DONTFORK));
  return {};
}

}  // namespace

Error map_shared(int file, std::uint64_t offset, std::uint64_t bytes, char*& address) {
  return map(MAP_SHARED, file, offset, bytes, address);
}

Error map_private(std::uint64_t bytes, char*& address) {
  return map(MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, bytes, address);
}

void unmap(char* address, std::uint64_t bytes) { raw_system_call(SYS_munmap, arguments_of(address, bytes)); }

bool mappings_are_shared(int file, const std::string& path, std::uint64_t offset) {
  const std::uint64_t page = page_floor(offset);
  char* mapped = nullptr;
  if (map_shared(file, page, page_size(), mapped)) return false;
  auto* const words = reinterpret_cast<std::uint64_t*>(mapped + (offset - page));
  const int other = open_plain_file(path, O_RDWR);
  constexpr std::uint64_t kThere = 0x50494e494f4e3031, kBack = ~kThere;
  std::uint64_t seen = 0;
  std::atomic_ref(words[0]).store(kThere);
  bool shared = other >= 0 && ::pread(other, &seen, 8, static_cast<off_t>(offset)) == 8 && seen == kThere;
  shared = shared && ::pwrite(other, &kBack, 8, static_cast<off_t>(offset + 8)) == 8 &&
           std::atomic_ref(words[1]).load() == kBack;
  words[0] = words[1] = 0;
  if (other >= 0) ::close(other);
  unmap(mapped, page_size());
  return shared;
}

}  // namespace pinion::runlog
