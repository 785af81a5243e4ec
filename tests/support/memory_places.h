// The kinds of memory that a process has, as places of the model (memory_model.h): each changes in the ways
// that its kind can.
#pragma once

#include <dlfcn.h>
#include <malloc.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "memory_model.h"

namespace pinion::test {

/// Maps where nothing is: another's mapping may have come there.
inline bool map_into_gap(Range range) {
  return ::mmap(pointer(range.begin), range.bytes(), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == pointer(range.begin);
}

/// A piece of address space among others of its kind, of mappings and gaps.
class MappedPlace : public Place {
 public:
  /// `others`: those whose memory may be moved here and there. The address space is the place's from now on.
  MappedPlace(Range where, const std::vector<MappedPlace*>& others) : others_(others) {
    begin = where.begin;
    pages.resize(where.pages());
    if (map_into_gap(where)) mapped(0, pages.size());
  }
  ~MappedPlace() override {
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (pages[i].mapping) ::munmap(pointer(address(i)), page_size());
    }
  }

  const char* kind() const override { return "mapping"; }
  std::size_t change(Chance& chance) override {
    const std::size_t from = chance.below(pages.size());
    const std::size_t most = from + 1 + chance.below(pages.size() - from);
    if (!pages[from].mapping) return map(from, most);
    const std::size_t to = mapped_until(from, most);
    const Range range = this->range(from, to);
    switch (chance.below(7)) {
      case 0:
        must(::munmap(pointer(range.begin), range.bytes()) == 0);
        unmapped(from, to);
        return 1;
      case 1:
        must(::syscall(SYS_munmap, range.begin, range.bytes()) == 0);
        unmapped(from, to);
        return 1;
      case 2:
        map_over(from, to);
        return 1;
      case 3:
        must(::madvise(pointer(range.begin), range.bytes(), MADV_DONTNEED) == 0);
        emptied(from, to);
        return 1;
      case 4:
        // The kernel may have dropped it or not, until it is written.
        must(::madvise(pointer(range.begin), range.bytes(), MADV_FREE) == 0);
        emptied(from, to, Page::kAnything);
        return 1;
      case 5:
        return shrink(from, to, chance);
      default:
        return move(from, to, chance);
    }
  }

  std::size_t refused_moves = 0;
  /// Maps all of it, over any memory there.
  void map_over() { map_over(0, pages.size()); }

 private:
  std::size_t map(std::size_t from, std::size_t to) {
    std::size_t end = from;
    while (end < to && !pages[end].mapping) ++end;
    if (map_into_gap(range(from, end))) mapped(from, end);
    return 0;
  }

  std::size_t shrink(std::size_t from, std::size_t to, Chance& chance) {
    to = same_mapping_until(from, to);  // the kernel remaps no others in one call
    const std::size_t keep = 1 + chance.below(to - from);
    const Range old = range(from, to);
    must(::mremap(pointer(old.begin), old.bytes(), keep * page_size(), 0) == pointer(old.begin));
    unmapped(from + keep, to);
    return 1;
  }

  /// To another place, over the memory there.
  std::size_t move(std::size_t from, std::size_t to, Chance& chance) {
    MappedPlace& target = *others_[chance.below(others_.size())];
    if (&target == this) return 0;
    const std::unique_lock lock(target.mutex, std::try_to_lock);
    to = same_mapping_until(from, to);
    const std::size_t moved = to - from;
    const std::size_t at = chance.below(pages.size() - moved + 1);
    // Others may have mapped there if nothing of ours is mapped.
    if (!lock || target.mapped_until(at, at + moved) != at + moved) return 0;
    const bool keep = chance.one_in(2);
    const Range source = range(from, to);
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0);
    void* const destination = pointer(target.address(at));
    if (::mremap(pointer(source.begin), source.bytes(), source.bytes(), flags, destination) != destination) {
      // A part of it is watched by userfaultfd, and the kernel moves no mapping that is split.
      must(errno == EFAULT);
      ++refused_moves;
      target.map_over(at, at + moved);  // the memory there may be gone, and part of this may have come
      map_over(from, to);
      return 1;
    }
    keep ? emptied(from, to) : unmapped(from, to);
    target.mapped(at, at + moved, Page::kAnything);  // samples depend on the address
    return 1;
  }

  void map_over(std::size_t from, std::size_t to) {
    const Range all = range(from, to);
    must(::mmap(pointer(all.begin), all.bytes(), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pointer(all.begin));
    mapped(from, to);
  }

  const std::vector<MappedPlace*>& others_;
};

/// A block of malloc's; the pages are those that lie wholly inside.
class HeapPlace : public Place {
 public:
  HeapPlace(std::size_t least, std::size_t most) : least_(least), most_(most) {}
  ~HeapPlace() override { std::free(block_); }

  const char* kind() const override { return "block"; }
  std::size_t change(Chance& chance) override {
    // Each power of two is as likely as the next.
    std::size_t bytes = least_;
    while (bytes < most_ && !chance.one_in(4)) bytes *= 2;
    bytes += chance.below(bytes);
    bytes = std::min(bytes, most_);
    if (block_ && chance.one_in(3)) {
      hold(std::realloc(block_, bytes), bytes, Page::kAnything);
      return 1;
    }
    if (block_) {
      std::free(block_);
      block_ = nullptr;
      pages.clear();
      if (chance.one_in(16)) ::malloc_trim(0);
      return 1;
    }
    switch (chance.below(4)) {
      case 0:
        hold(std::calloc(bytes, 1), bytes, Page::kZero);
        break;
      case 1:
        bytes = page_ceil(bytes);
        hold(std::aligned_alloc(page_size() << chance.below(4), bytes), bytes, Page::kAnything);
        break;
      default:
        hold(std::malloc(bytes), bytes, Page::kAnything);
    }
    return 1;
  }

 private:
  void hold(void* block, std::size_t bytes, std::uint64_t stamp) {
    must(block != nullptr);
    block_ = block;
    begin = page_ceil(reinterpret_cast<Address>(block));
    pages.resize((page_floor(reinterpret_cast<Address>(block) + bytes) - begin) / page_size());
    mapped(0, pages.size(), stamp);
  }

  const std::size_t least_, most_;
  void* block_ = nullptr;
};

/// A System V segment, attached or not.
class SegmentPlace : public Place {
 public:
  /// The address space is the place's from now on.
  explicit SegmentPlace(Range where) {
    begin = where.begin;
    pages.resize(where.pages());
    attach(0);
  }
  ~SegmentPlace() override {
    if (pages[0].mapping) ::shmdt(pointer(begin));
  }
  const char* kind() const override { return "segment"; }
  bool is_copied_at_fork() const override { return false; }

  std::size_t change(Chance& chance) override {
    if (!pages[0].mapping) {
      attach(0);
      return 0;
    }
    if (chance.one_in(2)) {
      attach(SHM_REMAP);
    } else {
      must(::shmdt(pointer(begin)) == 0);
      unmapped(0, pages.size());
    }
    return 1;
  }

 private:
  /// A new segment, which goes with its last attachment. Without segments on this system, it has no effect.
  void attach(int flags) {
    const int id = ::shmget(IPC_PRIVATE, pages.size() * page_size(), 0600);
    if (id < 0) return;
    if (::shmat(id, pointer(begin), flags) == pointer(begin)) mapped(0, pages.size());
    ::shmctl(id, IPC_RMID, nullptr);
  }
};

/// The end of the heap, as the program moves it. There is one break, so one such place at a time.
class BreakPlace : public Place {
 public:
  explicit BreakPlace(std::size_t most) {
    // A page below stays, so that malloc finds the break moved away for good, and takes none of this memory.
    const auto start = reinterpret_cast<Address>(::sbrk(0));
    begin = page_ceil(start) + page_size();
    end_ = static_cast<std::byte*>(pointer(begin + most * page_size()));
    if (::sbrk(static_cast<std::intptr_t>(reinterpret_cast<Address>(end_) - start)) != pointer(start)) return;
    pages.resize(most);
    mapped(0, most);
  }
  ~BreakPlace() override {
    if (pages.empty() || ::sbrk(0) != end_) return;
    ::sbrk(static_cast<std::byte*>(pointer(begin)) - end_);
  }

  const char* kind() const override { return "break"; }
  std::size_t change(Chance& chance) override {
    // This part of the heap stays as it is if malloc has taken of the heap beyond.
    if (pages.empty() || ::sbrk(0) != end_) return 0;
    const std::size_t now = mapped_until(0, pages.size());
    const std::size_t then = chance.below(pages.size() + 1);
    const auto change = (static_cast<std::intptr_t>(then) - static_cast<std::intptr_t>(now)) *
                        static_cast<std::intptr_t>(page_size());
    if (::sbrk(change) != end_) return 0;
    end_ += change;
    then < now ? unmapped(then, now) : mapped(now, then);
    return then < now;
  }

 private:
  std::byte* end_ = nullptr;
};

/// A buffer of a library that comes and goes; in between other memory is where it was.
class LibraryPlace : public Place {
 public:
  explicit LibraryPlace(const char* path) : path_(path) { load(); }
  ~LibraryPlace() override {
    if (library_) ::dlclose(library_);
    if (instead_) ::munmap(pointer(begin), pages.size() * page_size());
  }

  const char* kind() const override { return "library's buffer"; }
  std::size_t change(Chance& chance) override {
    // During dlclose all memory counts as changing: seldom, or there would be little else.
    if (!chance.one_in(kSeldom)) return 0;
    const Range all = range(0, pages.size());
    if (library_) {
      must(::dlclose(library_) == 0);
      library_ = nullptr;
      unmapped(0, pages.size());
      instead_ = map_into_gap(all);
      if (instead_) mapped(0, pages.size());
    } else {
      if (instead_) must(::munmap(pointer(all.begin), all.bytes()) == 0);
      instead_ = false;
      load();
    }
    return 1;
  }

 private:
  static constexpr std::size_t kSeldom = 16;

  void load() {
    library_ = ::dlopen(path_, RTLD_NOW | RTLD_LOCAL);
    must(library_ != nullptr);
    const auto* const buffer = static_cast<std::byte*>(::dlsym(library_, "plugin_buffer"));
    const auto* const bytes = static_cast<std::size_t*>(::dlsym(library_, "plugin_buffer_bytes"));
    must(buffer && bytes);
    begin = page_ceil(reinterpret_cast<Address>(buffer));
    pages.resize((page_floor(reinterpret_cast<Address>(buffer) + *bytes) - begin) / page_size());
    mapped(0, pages.size(), Page::kAnything);
  }

  const char* const path_;
  void* library_ = nullptr;
  bool instead_ = false;
};

/// A buffer on the stack of the thread that makes it.
class StackPlace : public Place {
 public:
  explicit StackPlace(Range where) {
    begin = where.begin;
    pages.resize(where.pages());
    mapped(0, pages.size(), Page::kAnything);
  }
  const char* kind() const override { return "stack"; }
  std::size_t change(Chance&) override { return 0; }
};

}  // namespace pinion::test
