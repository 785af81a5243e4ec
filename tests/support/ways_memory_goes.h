// The ways in which memory goes: unmapped, replaced, moved, dropped, by calls of the program or within libc.
// Each event prepares memory, takes it, and puts fresh memory in its place. For tests that a registration
// never outlives its memory. One thread at a time.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "support/apart.h"
#include "support/gate.h"
#include "support/memory_contents.h"

namespace pinion::test {

/// The size of each event's memory; a test may set it before the first.
inline std::size_t event_pages = 64;
inline std::size_t bytes_of(std::size_t pages) { return pages * page_size(); }
inline void* pointer(Address a) { return reinterpret_cast<void*>(a); }

inline constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

inline Range map(std::size_t bytes, int flags = kAnonymous, void* at = nullptr) {
  if (!at) return map_apart(bytes, flags);
  void* const start = ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return start == MAP_FAILED ? Range{} : Range::of(start, bytes);
}
/// Fresh memory where there is none.
inline void map_again(Range range) {
  ASSERT_EQ(map(range.bytes(), kAnonymous | MAP_FIXED_NOREPLACE, pointer(range.begin)), range)
      << "something is there still";
}

// ---- the ways memory goes ----

class Event {
 public:
  virtual ~Event() = default;
  /// Memory that the event will take; empty, with `why_not`, where this process cannot have such memory.
  virtual Range prepare() = 0;
  virtual void fire() = 0;
  /// After fire(): memory of this process at the same place, if there is none.
  virtual void renew() {}

  /// The part that fire() leaves as it was.
  virtual Range untouched() const { return {}; }
  /// The place to which fire() takes the contents.
  virtual Range moved_to() const { return {}; }
  /// Neighbours that are registered too; fire() takes them as well, or not.
  virtual std::vector<Range> taken_too() const { return {}; }
  virtual std::vector<Range> neighbours() const { return {}; }

  const char* why_not = "";

 protected:
  Range memory_;
};

class Anonymous : public Event {
 public:
  Range prepare() override { return memory_ = map(bytes_of(event_pages)); }
};

class UnmapWhole : public Anonymous {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0); }
  void renew() override { map_again(memory_); }
};

class UnmapBySyscall : public UnmapWhole {
 public:
  void fire() override { ASSERT_EQ(::syscall(SYS_munmap, memory_.begin, memory_.bytes()), 0); }
};

class UnmapPart : public Anonymous {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(part().begin), part().bytes()), 0); }
  void renew() override { map_again(part()); }
  Range untouched() const override { return {memory_.begin, part().begin}; }

 private:
  Range part() const {
    return {memory_.begin + bytes_of(event_pages / 2), memory_.end - bytes_of(event_pages / 4)};
  }
};

/// The memory lies between two others that are registered as well.
class Between : public Event {
 public:
  Range prepare() override {
    all_ = map(3 * bytes_of(event_pages));
    return memory_ = {all_.begin + bytes_of(event_pages), all_.end - bytes_of(event_pages)};
  }

 protected:
  std::vector<Range> others() const { return {{all_.begin, memory_.begin}, {memory_.end, all_.end}}; }
  Range all_;
};

class UnmapSeveral : public Between {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(all_.begin), all_.bytes()), 0); }
  void renew() override { map_again(all_); }
  std::vector<Range> taken_too() const override { return others(); }
};

class UnmapOneOfSeveral : public Between {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0); }
  void renew() override { map_again(memory_); }
  std::vector<Range> neighbours() const override { return others(); }
};

class MapOver : public Anonymous {
 public:
  void fire() override {
    ASSERT_EQ(map(memory_.bytes(), kAnonymous | MAP_FIXED, pointer(memory_.begin)), memory_);
  }
};

class RemapGrowInPlace : public Event {
 public:
  Range prepare() override {
    const Range all = map(2 * bytes_of(event_pages));
    return memory_ = {all.begin, all.begin + bytes_of(event_pages)};
  }
  void fire() override {
    ASSERT_EQ(::munmap(pointer(memory_.end), bytes_of(event_pages)), 0);  // room, kept until now
    ASSERT_EQ(::mremap(pointer(memory_.begin), memory_.bytes(), 2 * memory_.bytes(), 0),
              pointer(memory_.begin));
  }
  Range untouched() const override { return memory_; }
};

class RemapShrink : public Anonymous {
 public:
  void fire() override {
    ASSERT_EQ(::mremap(pointer(memory_.begin), memory_.bytes(), untouched().bytes(), 0),
              pointer(memory_.begin));
  }
  void renew() override { map_again({untouched().end, memory_.end}); }
  Range untouched() const override { return {memory_.begin, memory_.begin + bytes_of(event_pages / 2)}; }
};

class RemapMove : public Event {
 public:
  Range prepare() override {
    // With more of the mapping behind it, it cannot grow where it is.
    const Range all = map(2 * bytes_of(event_pages));
    return memory_ = {all.begin, all.begin + bytes_of(event_pages)};
  }
  void fire() override {
    to_ = Range::of(::mremap(pointer(memory_.begin), memory_.bytes(), 2 * memory_.bytes(), MREMAP_MAYMOVE),
                    memory_.bytes());
    ASSERT_NE(pointer(to_.begin), MAP_FAILED);
  }
  void renew() override { map_again(memory_); }
  Range moved_to() const override { return to_; }

 private:
  Range to_;
};

class RemapOnto : public Anonymous {
 public:
  void fire() override {
    const Range from = map(memory_.bytes());
    fill(from, 77);
    ASSERT_EQ(::mremap(pointer(from.begin), from.bytes(), memory_.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                       pointer(memory_.begin)),
              pointer(memory_.begin));
  }
};

class RemapDontUnmap : public Anonymous {
 public:
  void fire() override {
    to_ = Range::of(::mremap(pointer(memory_.begin), memory_.bytes(), memory_.bytes(),
                             MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr),
                    memory_.bytes());
    ASSERT_NE(pointer(to_.begin), MAP_FAILED);
  }
  Range moved_to() const override { return to_; }

 private:
  Range to_;
};

template <int advice>
class Advise : public Anonymous {
 public:
  void fire() override { ASSERT_EQ(::madvise(pointer(memory_.begin), memory_.bytes(), advice), 0); }
};

class AdviseRemove : public Advise<MADV_REMOVE> {
 public:
  Range prepare() override { return memory_ = map(bytes_of(event_pages), MAP_SHARED | MAP_ANONYMOUS); }
};

/// Shared memory of a file that only this process has.
class OfFile : public Event {
 public:
  ~OfFile() override {
    if (file_ >= 0) ::close(file_);
  }
  Range prepare() override {
    why_not = "no memfd_create here";
    file_ = ::memfd_create("pinion_test", MFD_CLOEXEC);
    const std::size_t bytes = bytes_of(event_pages);
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes)) != 0) return {};
    void* const start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    return memory_ = start == MAP_FAILED ? Range{} : Range::of(start, bytes);
  }
  Range untouched() const override { return {memory_.begin, memory_.begin + memory_.bytes() / 2}; }

 protected:
  off_t half() const { return static_cast<off_t>(memory_.bytes() / 2); }
  int file_ = -1;
};

class CutFile : public OfFile {
 public:
  void fire() override { ASSERT_EQ(::ftruncate(file_, half()), 0); }
  void renew() override { ASSERT_EQ(::ftruncate(file_, 2 * half()), 0); }
};

class CutFileByPath : public CutFile {
 public:
  void fire() override {
    ASSERT_EQ(::truncate(("/proc/self/fd/" + std::to_string(file_)).c_str(), half()), 0);
  }
};

class CutFileBySyscall : public CutFile {
 public:
  void fire() override { ASSERT_EQ(::syscall(SYS_ftruncate, file_, half()), 0); }
};

class PunchFile : public OfFile {
 public:
  void fire() override {
    ASSERT_EQ(::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, half(), half()), 0);
  }
};

/// The file's other mapping loses its pages.
class RemoveInOtherMapping : public OfFile {
 public:
  void fire() override {
    void* const other = ::mmap(nullptr, memory_.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    ASSERT_NE(other, MAP_FAILED);
    ASSERT_EQ(::madvise(static_cast<char*>(other) + half(), memory_.bytes() / 2, MADV_REMOVE), 0);
    ASSERT_EQ(::munmap(other, memory_.bytes()), 0);
  }
};

inline constexpr std::size_t kMappedBlock = std::size_t{24} << 20;

/// Makes malloc map blocks of kMappedBlock and take others from a heap that has room enough for a test and
/// keeps it.
inline void settle_malloc() {
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_MMAP_THRESHOLD, 16 << 20);
  void* const volatile room = ::malloc(8 << 20);  // volatile: the pair would be optimised away
  ::free(room);
}

/// The break shrinks below the memory. malloc has no use for the break meanwhile.
class SbrkShrink : public Event {
 public:
  Range prepare() override {
    why_not = "the heap cannot grow";
    settle_malloc();
    const auto start =
        reinterpret_cast<Address>(::sbrk(static_cast<std::intptr_t>(bytes_of(event_pages + 1))));
    if (start == ~Address{0}) return {};
    return memory_ = {page_ceil(start), page_ceil(start) + bytes_of(event_pages)};
  }
  void fire() override {
    ASSERT_NE(::sbrk(-static_cast<std::intptr_t>(bytes_of(event_pages))), pointer(~Address{0}));
  }
  void renew() override {
    ASSERT_NE(::sbrk(static_cast<std::intptr_t>(bytes_of(event_pages))), pointer(~Address{0}));
  }
};

class BrkShrink : public SbrkShrink {
 public:
  void fire() override { ASSERT_EQ(::brk(pointer(memory_.begin)), 0); }
  void renew() override { ASSERT_EQ(::brk(pointer(memory_.end)), 0); }
};

/// A System V segment that vanishes with its last attachment.
class Segment {
 public:
  explicit Segment(std::size_t bytes) : id_(::shmget(IPC_PRIVATE, bytes, 0600)) {}
  ~Segment() {
    if (id_ >= 0) ::shmctl(id_, IPC_RMID, nullptr);
  }
  void* attach(void* at, int flags) const { return ::shmat(id_, at, flags); }

 private:
  int id_;
};

class DetachSegment : public Event {
 public:
  Range prepare() override {
    why_not = "no System V shared memory here";
    void* const start = segment_.attach(nullptr, 0);
    return memory_ = start == MAP_FAILED ? Range{} : Range::of(start, bytes_of(event_pages));
  }
  void fire() override { ASSERT_EQ(::shmdt(pointer(memory_.begin)), 0); }
  void renew() override { map_again(memory_); }

 private:
  Segment segment_{bytes_of(event_pages)};
};

class AttachOver : public Event {
 public:
  Range prepare() override {
    const Range all = map(bytes_of(event_pages) + SHMLBA);
    const Address aligned = (all.begin + SHMLBA - 1) / SHMLBA * SHMLBA;
    return memory_ = {aligned, aligned + bytes_of(event_pages)};
  }
  void fire() override {
    ASSERT_EQ(segment_.attach(pointer(memory_.begin), SHM_REMAP), pointer(memory_.begin));
  }

 private:
  Segment segment_{bytes_of(event_pages)};
};

// ---- ... within libc ----

/// The whole pages inside a block of malloc's.
inline Range inside(void* block, std::size_t bytes) {
  return {page_ceil(reinterpret_cast<Address>(block)), page_floor(reinterpret_cast<Address>(block) + bytes)};
}

class FreeLarge : public Event {
 public:
  Range prepare() override {
    settle_malloc();
    block_ = ::malloc(kMappedBlock);
    return memory_ = inside(block_, bytes_of(event_pages));
  }
  void fire() override { ::free(block_); }
  void renew() override { map_again(memory_); }

 private:
  void* block_ = nullptr;
};

class ReallocMove : public Event {
 public:
  Range prepare() override {
    settle_malloc();
    block_ = ::malloc(kMappedBlock);
    // In the way of the block's growing where it is.
    const Address end = page_ceil(reinterpret_cast<Address>(block_) + kMappedBlock);
    map(page_size(), kAnonymous | MAP_FIXED_NOREPLACE, pointer(end));
    return memory_ = inside(block_, bytes_of(event_pages));
  }
  void fire() override {
    const std::size_t offset = memory_.begin - reinterpret_cast<Address>(block_);
    block_ = ::realloc(block_, 2 * kMappedBlock);
    to_ = {reinterpret_cast<Address>(block_) + offset,
           reinterpret_cast<Address>(block_) + offset + memory_.bytes()};
    ASSERT_FALSE(to_.overlaps(memory_));
  }
  void renew() override { map_again(memory_); }
  Range moved_to() const override { return to_; }

 private:
  void* block_ = nullptr;
  Range to_;
};

class MallocTrim : public Event {
 public:
  Range prepare() override {
    settle_malloc();
    // Neighbours that stay, so that the freed block merges with none and malloc gives it again.
    before_ = ::malloc(bytes_of(event_pages));
    block_ = ::malloc(bytes_of(event_pages));
    behind_ = ::malloc(bytes_of(event_pages));
    // The chunk's own words, in its first and last page, stay.
    memory_ = inside(block_, bytes_of(event_pages));
    return memory_ = {memory_.begin + page_size(), memory_.end - page_size()};
  }
  void fire() override {
    ::free(block_);
    ASSERT_EQ(::malloc_trim(0), 1);
  }
  void renew() override { ASSERT_EQ(::malloc(bytes_of(event_pages)), block_); }

 private:
  void* before_ = nullptr;
  void* block_ = nullptr;
  void* behind_ = nullptr;
};

/// A thread that leaves its stack alone, except for the buffer that the test puts there.
class StackOwner {
 public:
  StackOwner() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{8} << 20);
    end_.arm();
    const auto body = [](void* self) -> void* {
      static_cast<StackOwner*>(self)->run();
      return nullptr;
    };
    EXPECT_EQ(pthread_create(&thread_, &attributes, body, this), 0);
    pthread_attr_destroy(&attributes);
    EXPECT_TRUE(end_.wait_reached()) << "the thread has not begun";
  }
  ~StackOwner() {
    end_.open();
    pthread_join(thread_, nullptr);
  }
  /// Far below its frames.
  Range memory() const { return memory_; }

 private:
  void run() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* lowest = nullptr;
    std::size_t size = 0;
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    const Address begin = page_ceil(reinterpret_cast<Address>(lowest) + size / 4);
    memory_ = {begin, begin + bytes_of(event_pages)};
    end_.pass();
  }

  pthread_t thread_;
  Range memory_;
  Gate end_;
};

class ThreadExit : public Event {
 public:
  Range prepare() override {
    owner_ = std::make_unique<StackOwner>();
    return memory_ = owner_->memory();
  }
  void fire() override { owner_.reset(); }
  void renew() override {
    // libc gives the stack to the next thread.
    owner_ = std::make_unique<StackOwner>();
    ASSERT_EQ(owner_->memory(), memory_);
  }

 private:
  std::unique_ptr<StackOwner> owner_;
};

struct EventKind {
  const char* name;
  std::unique_ptr<Event> (*make)();
  bool of_malloc = false;
  bool loses_pages = true;
};

template <class E>
std::unique_ptr<Event> make() {
  return std::make_unique<E>();
}

inline const EventKind kEvents[] = {
    {"UnmapWhole", make<UnmapWhole>},
    {"UnmapPart", make<UnmapPart>},
    {"UnmapSeveral", make<UnmapSeveral>},
    {"UnmapOneOfSeveral", make<UnmapOneOfSeveral>},
    {"UnmapBySyscall", make<UnmapBySyscall>},
    {"MapOver", make<MapOver>},
    {"RemapGrowInPlace", make<RemapGrowInPlace>, false, false},
    {"RemapShrink", make<RemapShrink>},
    {"RemapMove", make<RemapMove>},
    {"RemapOnto", make<RemapOnto>},
    {"RemapDontUnmap", make<RemapDontUnmap>},
    {"AdviseDontNeed", make<Advise<MADV_DONTNEED>>},
    {"AdviseFree", make<Advise<MADV_FREE>>, false, false},  // not while they are pinned
    {"AdviseRemove", make<AdviseRemove>},
    {"CutFile", make<CutFile>},
    {"CutFileByPath", make<CutFileByPath>},
    {"CutFileBySyscall", make<CutFileBySyscall>},
    {"PunchFile", make<PunchFile>},
    {"RemoveInOtherMapping", make<RemoveInOtherMapping>},
    {"SbrkShrink", make<SbrkShrink>},
    {"BrkShrink", make<BrkShrink>},
    {"AttachOver", make<AttachOver>},
    {"DetachSegment", make<DetachSegment>},
    {"FreeLarge", make<FreeLarge>, true},
    {"ReallocMove", make<ReallocMove>, true},
    {"MallocTrim", make<MallocTrim>, true},
    {"ThreadExit", make<ThreadExit>},
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEEDS_MALLOC_OF_LIBC(event) \
  if (event.of_malloc) GTEST_SKIP() << "the sanitizer's allocator keeps what is freed"
#else
#define NEEDS_MALLOC_OF_LIBC(event)
#endif

}  // namespace pinion::test
