#include "monitor/file_cuts.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "monitor/mapping_reader.h"

namespace pinion {
namespace {

constexpr std::uint64_t kNoEnd = UINT64_MAX;

/// Bytes of a file, in whole pages.
struct FilePart {
  std::uint64_t inode = 0, begin = 0, end = 0;
  bool empty() const { return end <= begin; }
};

FilePart behind(const struct stat& file, long length) {
  if (!S_ISREG(file.st_mode) || length < 0 || length >= file.st_size) return {};
  return {file.st_ino, page_ceil(static_cast<std::uint64_t>(length)), kNoEnd};
}

FilePart cut_by_ftruncate(long fd, long length) {
  struct stat file;
  return is_error(raw_system_call(SYS_fstat, arguments_of(fd, &file))) ? FilePart{} : behind(file, length);
}

FilePart cut_by_truncate(long path, long length) {
  struct stat file;
  const long error = raw_system_call(SYS_newfstatat, arguments_of(AT_FDCWD, path, &file, 0));
  return is_error(error) ? FilePart{} : behind(file, length);
}

/// Holes, zeros in place of pages, and pages that move within the file.
FilePart cut_by_fallocate(long fd, int mode, long offset, long length) {
  constexpr int kKeepsPages = FALLOC_FL_KEEP_SIZE | FALLOC_FL_UNSHARE_RANGE;
  struct stat file;
  if ((mode & ~kKeepsPages) == 0 || offset < 0 || length <= 0 ||
      is_error(raw_system_call(SYS_fstat, arguments_of(fd, &file))) || !S_ISREG(file.st_mode))
    return {};
  const auto begin = static_cast<std::uint64_t>(offset);
  const bool moves_rest = (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) != 0;
  const std::uint64_t end = begin + static_cast<std::uint64_t>(length);
  return {file.st_ino, page_floor(begin), moves_rest ? kNoEnd : page_ceil(end)};
}

/// The part that MADV_REMOVE drops from the file mapped there, and so from all of its mappings. Nothing:
/// several files may be concerned.
std::optional<FilePart> removed_part(Range range) {
  if (range.begin % page_size() != 0 || range.empty()) return FilePart{};
  FilePart part;
  int met = 0;
  const bool known = for_each_mapping(range, [&](const Mapping& mapping) {
    if (++met > 1 || mapping.inode == 0 || !mapping.range.contains(range)) return;
    const std::uint64_t at = mapping.offset + (range.begin - mapping.range.begin);
    part = {mapping.inode, at, at + range.bytes()};
  });
  if (!known || met > 1) return std::nullopt;
  return part;
}

std::optional<FilePart> cut_part(long number, const SystemCallArguments& a) {
  switch (number) {
    case SYS_ftruncate:
      return cut_by_ftruncate(static_cast<int>(a[0]), a[1]);
    case SYS_truncate:
      return cut_by_truncate(a[0], a[1]);
    case SYS_madvise:
      return removed_part({static_cast<Address>(a[0]), page_ceil(static_cast<Address>(a[0] + a[1]))});
    default:
      return cut_by_fallocate(static_cast<int>(a[0]), static_cast<int>(a[1]), a[2], a[3]);
  }
}

/// The addresses at which the mapping has the part; empty: it has none of it.
Range mapped_at(const Mapping& mapping, const FilePart& part) {
  if (mapping.inode != part.inode) return {};
  const std::uint64_t begin = std::max(part.begin, mapping.offset),
                      end = std::min(part.end, mapping.offset + mapping.range.bytes());
  if (end <= begin) return {};
  const Address first = mapping.range.begin + (begin - mapping.offset);
  return {first, first + (end - begin)};
}

}  // namespace

ConcernedMemory cut_memory(long number, const SystemCallArguments& arguments) {
  const std::optional<FilePart> cut = cut_part(number, arguments);
  if (!cut) return {all_addresses(), {}};
  const FilePart part = *cut;
  if (part.empty()) return {};
  MappingReader reader;
  ConcernedMemory memory;
  for (Mapping mapping; reader.next(mapping);) {
    const Range range = mapped_at(mapping, part);
    if (range.empty()) continue;
    Range& last = memory.second.empty() ? memory.first : memory.second;
    if (!last.empty() && last.end == range.begin)
      last.end = range.end;
    else if (memory.first.empty())
      memory.first = range;
    else if (memory.second.empty())
      memory.second = range;
    else
      return {all_addresses(), {}};
  }
  return reader.failed() ? ConcernedMemory{all_addresses(), {}} : memory;
}

}  // namespace pinion
