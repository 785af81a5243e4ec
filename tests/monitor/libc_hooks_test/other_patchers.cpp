// Other libraries that patch the same functions, before and after the hooks.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "fixture.h"
#include "monitor/patch_exposure.h"
#include "monitor/system_call.h"
#include "support/foreign_patcher.h"

namespace pinion::libc_hooks_test {
namespace {

// ---- Other libraries' patches ----

using test::absolute_jump;
using test::ForeignPatch;
using test::ForeignPatcher;

std::atomic<int> foreign_calls{0};
int (*foreign_original)(void*, std::size_t) = nullptr;
bool foreign_uses_syscall = false;  ///< as UCX does, whose calls are seen even where it lies on top of us

int foreign_munmap(void* address, std::size_t length) {
  ++foreign_calls;
  if (foreign_original != nullptr) return foreign_original(address, length);
  if (foreign_uses_syscall) return static_cast<int>(syscall(SYS_munmap, address, length));
  const long result = raw_system_call(SYS_munmap, arguments_of(address, length));
  if (is_error(result)) errno = static_cast<int>(-result);
  return is_error(result) ? -1 : 0;
}

class PatchedByOthers : public testing::Test {
 protected:
  void SetUp() override {
    foreign_calls = 0;
    foreign_original = nullptr;
    foreign_uses_syscall = false;
  }
  void TearDown() override { uninstall_libc_hooks(); }

  void install() { ASSERT_TRUE(install_libc_hooks({note_begin, note_end}).complete); }

  /// One munmap through libc; how often the callbacks and the other library saw it.
  void expect_one_munmap(std::size_t brackets, int foreign) {
    char* const p = map_pages(1);
    watch(Range::of(p, page_size()));
    foreign_calls = 0;
    EXPECT_EQ(munmap(p, page_size()), 0);
    EXPECT_EQ(seen_ranges(), Ranges(brackets, Range::of(p, page_size())));
    EXPECT_EQ(foreign_calls, foreign);
    EXPECT_EQ(munmap(p + 1, page_size()), -1);
    EXPECT_EQ(errno, EINVAL);
  }

  ForeignPatcher other_;
};

TEST_F(PatchedByOthers, BeforeUs) {
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  const HookReport report = install_libc_hooks({note_begin, note_end});
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.rows[0].state, HookState::chained);
  EXPECT_EQ(report.rows[1].state, HookState::good);
  expect_one_munmap(1, 1);
  uninstall_libc_hooks();
  EXPECT_EQ(jump_target(static_cast<std::byte*>(other_.entry())), reinterpret_cast<void*>(foreign_munmap));
  expect_one_munmap(0, 1);
}

TEST_F(PatchedByOthers, AfterUs) {
  install();
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  EXPECT_FALSE(hooks_intact());
  expect_one_munmap(0, 1);

  const HookReport report = reinstall_hooks();
  EXPECT_TRUE(report.complete) << report.error.message;
  EXPECT_EQ(report.rows[0].state, HookState::chained);
  EXPECT_TRUE(hooks_intact());
  expect_one_munmap(1, 1);
  EXPECT_TRUE(test_memory_events().rows[0].state == HookState::good);
}

TEST_F(PatchedByOthers, WhoThenUseSyscall) {
  foreign_uses_syscall = true;
  install();
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  expect_one_munmap(1, 1);  // theirs, then ours by number
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_one_munmap(1, 1);  // ours, theirs, and ours by number within the same bracket
}

TEST_F(PatchedByOthers, AfterUsAndKeepingUsAsTheOriginal) {
  install();
  foreign_original = reinterpret_cast<int (*)(void*, std::size_t)>(jump_target(other_.code()));
  ASSERT_NE(foreign_original, nullptr);
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  expect_one_munmap(1, 1);  // theirs, then ours
  EXPECT_FALSE(hooks_intact());
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_one_munmap(1, 1);  // ours, theirs, and ours again, which must not go round
}

// ---- Chains of several ----

/// A library that keeps what it displaces as "the original", by the jump that it finds there.
struct Keeper {
  std::atomic<int> calls{0};
  int (*original)(void*, std::size_t) = nullptr;

  int pass_on(void* address, std::size_t length) {
    ++calls;
    if (original != nullptr) return original(address, length);
    return static_cast<int>(raw_system_call(SYS_munmap, arguments_of(address, length)));
  }
  void patch(const ForeignPatcher& munmap, int (*code)(void*, std::size_t)) {
    original = reinterpret_cast<int (*)(void*, std::size_t)>(jump_target(munmap.code()));
    munmap.write(absolute_jump(reinterpret_cast<void*>(code)));
  }
};
Keeper first_keeper, second_keeper, third_keeper;
int first_munmap(void* address, std::size_t length) { return first_keeper.pass_on(address, length); }
int second_munmap(void* address, std::size_t length) { return second_keeper.pass_on(address, length); }
int third_munmap(void* address, std::size_t length) { return third_keeper.pass_on(address, length); }

TEST_F(PatchedByOthers, EachOfSeveralHearsOnce) {
  first_keeper.patch(other_, first_munmap);
  install();
  const auto expect_each = [](int second, int third) {
    first_keeper.calls = second_keeper.calls = third_keeper.calls = 0;
    char* const p = map_pages(1);
    watch(Range::of(p, page_size()));
    EXPECT_EQ(munmap(p, page_size()), 0);
    EXPECT_EQ(seen_ranges(), Ranges(1, Range::of(p, page_size())));
    EXPECT_FALSE(is_resident(reinterpret_cast<Address>(p)));
    EXPECT_EQ(first_keeper.calls, 1);
    EXPECT_EQ(second_keeper.calls, second);
    EXPECT_EQ(third_keeper.calls, third);
  };
  expect_each(0, 0);
  second_keeper.patch(other_, second_munmap);
  expect_each(1, 0);
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_each(1, 0);
  third_keeper.patch(other_, third_munmap);
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_each(1, 1);
}

// A library that leaves puts back what it had displaced: our branch. Its code may be unloaded next.
TEST_F(PatchedByOthers, AfterUsAndRemovedOnceOursIsOnTop) {
  install();
  for (int i = 0; i < 10; ++i) {
    const ForeignPatch displaced = other_.read();
    other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
    ASSERT_TRUE(reinstall_hooks().complete);
    expect_one_munmap(1, 1);
    other_.write(displaced);
    expect_one_munmap(1, 0);
    EXPECT_TRUE(hooks_intact());
  }
}

TEST_F(PatchedByOthers, TheLatestIsRemovedAndTheEarlierStays) {
  first_keeper.patch(other_, first_munmap);
  install();
  const ForeignPatch displaced = other_.read();
  second_keeper.patch(other_, second_munmap);
  ASSERT_TRUE(reinstall_hooks().complete);
  other_.write(displaced);
  first_keeper.calls = second_keeper.calls = 0;
  char* const p = map_pages(1);
  EXPECT_EQ(munmap(p, page_size()), 0);
  EXPECT_EQ(first_keeper.calls, 1);
  EXPECT_EQ(second_keeper.calls, 0);
  uninstall_libc_hooks();
  EXPECT_EQ(jump_target(other_.code()), reinterpret_cast<void*>(first_munmap));
}

// ---- Who hooks brk alone, as Open MPI's patcher and libfabric do ----

std::atomic<int> foreign_breaks{0};

int foreign_brk(void* address) {
  ++foreign_breaks;
  sbrk(0);  // Open MPI's asks where it was
  auto* const now = reinterpret_cast<void*>(syscall(SYS_brk, address));
  *static_cast<void**>(dlsym(RTLD_DEFAULT, "__curbrk")) = now;
  if (now >= address) return 0;
  errno = ENOMEM;
  return -1;
}

class BrkPatchedByOthers : public testing::Test {
 protected:
  void SetUp() override {
    if (kForeignAllocator) GTEST_SKIP() << "the sanitizers' runtimes have threads";
  }
  void TearDown() override { uninstall_libc_hooks(); }
  void patch() { brk_.write(absolute_jump(reinterpret_cast<void*>(foreign_brk))); }

  /// The heap grows and shrinks by sbrk: each is heard, and bracketed as often.
  static void expect_heard(std::size_t brackets) {
    const auto pages = static_cast<std::intptr_t>(4 * page_size());
    foreign_breaks = 0;
    void* const grown = sbrk(pages);
    ASSERT_NE(reinterpret_cast<std::intptr_t>(grown), -1);
    EXPECT_EQ(foreign_breaks, 1);
    const auto begin = reinterpret_cast<Address>(grown);
    const Range lost{page_ceil(begin), page_ceil(begin + 4 * page_size())};
    watch(lost);
    EXPECT_EQ(sbrk(-pages), reinterpret_cast<void*>(begin + 4 * page_size()));
    EXPECT_EQ(seen_ranges(), Ranges(brackets, lost));
    EXPECT_EQ(foreign_breaks, 2);
    EXPECT_EQ(sbrk(0), grown);
    EXPECT_EQ(foreign_breaks, 2) << "a question moves nothing";
    EXPECT_EQ(reinterpret_cast<std::intptr_t>(sbrk(INTPTR_MAX)), -1);
    EXPECT_EQ(errno, ENOMEM);
  }

  ForeignPatcher brk_{"brk"};
};

TEST_F(BrkPatchedByOthers, HearOfSbrkWithoutUs) {
  patch();
  expect_heard(0);
}

TEST_F(BrkPatchedByOthers, HearOfSbrkBeforeUs) {
  patch();
  ASSERT_TRUE(install_libc_hooks({note_begin, note_end}).complete);
  expect_heard(1);
}

TEST_F(BrkPatchedByOthers, HearOfSbrkAfterUs) {
  ASSERT_TRUE(install_libc_hooks({note_begin, note_end}).complete);
  patch();
  expect_heard(1);  // sbrk is ours still
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_heard(1);
}

// An unmapping that was held back is made later: whoever has come since hears of it as well.
TEST_F(PatchedByOthers, HearOfAnUnmappingThatWasHeldBack) {
  install();
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  char* const p = map_pages(1);
  foreign_calls = 0;
  EXPECT_TRUE(unmap_held_back(Range::of(p, page_size())));
  EXPECT_EQ(foreign_calls, 1);
  EXPECT_FALSE(is_resident(reinterpret_cast<Address>(p)));
}

std::atomic<int> moves_elsewhere{0};

/// Behaves like UCX: the destination is lost, and the kernel takes another one.
void* foreign_mremap(void* address, std::size_t old_size, std::size_t new_size, int flags) {
  if ((flags & MREMAP_FIXED) != 0) {
    ++moves_elsewhere;
    return MAP_FAILED;
  }
  const long result = raw_system_call(SYS_mremap, arguments_of(address, old_size, new_size, flags));
  return is_error(result) ? MAP_FAILED : reinterpret_cast<void*>(result);
}

// The self-test's page would land on memory of the program's.
TEST_F(PatchedByOthers, TheSelfTestMovesNothingWhereDestinationsAreLost) {
  const auto outcome = [] {
    for (const HookStatus& row : test_memory_events().rows)
      if (std::string(row.name) == "mremap onto a mapping") return row.state;
    return HookState::failed;
  };
  for (const bool before : {true, false}) {
    ForeignPatcher patcher("mremap");
    if (before) patcher.write(absolute_jump(reinterpret_cast<void*>(foreign_mremap)));
    install();
    if (!before) {
      EXPECT_EQ(outcome(), HookState::good);
      patcher.write(absolute_jump(reinterpret_cast<void*>(foreign_mremap)));
      EXPECT_EQ(outcome(), HookState::skipped) << "theirs alone";
      ASSERT_TRUE(reinstall_hooks().complete);
    }
    EXPECT_EQ(outcome(), HookState::skipped) << "ours, and theirs next";
    uninstall_libc_hooks();
  }
  EXPECT_EQ(moves_elsewhere, 0);
}

long foreign_syscall(long number, long a0, long a1, long a2, long a3, long a4, long a5) {
  ++foreign_calls;
  const long result = raw_system_call(number, {a0, a1, a2, a3, a4, a5});
  if (!is_error(result)) return result;
  errno = static_cast<int>(-result);
  return -1;
}

TEST_F(PatchedByOthers, SyscallIsLeftToThem) {
  ForeignPatcher patcher("syscall");
  patcher.write(absolute_jump(reinterpret_cast<void*>(foreign_syscall)));
  const HookReport report = install_libc_hooks({note_begin, note_end});
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.error.code, EBUSY) << report.error.message;
  EXPECT_STREQ(report.rows.back().name, "syscall");
  EXPECT_EQ(report.rows.back().state, HookState::failed);
  foreign_calls = 0;
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  EXPECT_EQ(foreign_calls, 1);
  EXPECT_FALSE(test_memory_events().complete);
}

std::atomic<int> exposures{0};

TEST_F(PatchedByOthers, SeenBeforeTheyWrite) {
  exposures = 0;
  ASSERT_TRUE(install_libc_hooks({note_begin, note_end, [] { ++exposures; }}).complete);
  EXPECT_EQ(exposures, 0) << "our own patching is none";
  EXPECT_FALSE(hooks_exposed());
  other_.open();
  EXPECT_EQ(exposures, 1);
  EXPECT_TRUE(hooks_exposed());
  EXPECT_TRUE(hooks_intact());
  other_.close();
  EXPECT_FALSE(hooks_exposed());

  // This calls by number, with another page than any of ours.
  const Range code = Range::of(other_.entry(), 1).to_pages();
  void* const start = reinterpret_cast<void*>(code.begin);
  exposures = 0;
  ASSERT_EQ(syscall(SYS_mprotect, start, code.bytes(), PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  EXPECT_EQ(exposures, 1);
  EXPECT_TRUE(hooks_exposed());
  ASSERT_EQ(syscall(SYS_mprotect, start, code.bytes(), PROT_READ | PROT_EXEC), 0);
  EXPECT_FALSE(hooks_exposed());
  exposures = 0;
  char* const elsewhere = map_pages(1);
  ASSERT_EQ(mprotect(elsewhere, page_size(), PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  EXPECT_EQ(exposures, 0);
  munmap(elsewhere, page_size());

  // A refused call exposes nothing for long.
  EXPECT_EQ(mprotect(static_cast<char*>(start) + 1, 1, PROT_READ | PROT_WRITE), -1);
  EXPECT_FALSE(hooks_exposed());
}

TEST_F(PatchedByOthers, AfterUsAndRemovedAgain) {
  install();
  const ForeignPatch ours = other_.read();
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  EXPECT_FALSE(hooks_intact());
  other_.write(ours);
  EXPECT_TRUE(hooks_intact());
  expect_one_munmap(1, 0);
}

TEST_F(PatchedByOthers, RestoringTheOriginalCode) {
  const ForeignPatch original = other_.read();
  install();
  other_.write(original);
  EXPECT_FALSE(hooks_intact());
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_one_munmap(1, 0);
}

TEST_F(PatchedByOthers, UninstallLeavesTheirsOnTop) {
  install();
  const ForeignPatch theirs = absolute_jump(reinterpret_cast<void*>(foreign_munmap));
  other_.write(theirs);
  uninstall_libc_hooks();
  EXPECT_EQ(other_.read(), theirs);
  expect_one_munmap(0, 1);
}

#if defined(__x86_64__)

TEST_F(PatchedByOthers, InAFormThatIsNotKnown) {
  install();
  ForeignPatch unknown = other_.read();
  const unsigned char code[] = {0xb8, 0x0b, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xc3};  // mov eax, 11; syscall; ret
  std::memcpy(unknown.data(), code, sizeof code);
  other_.write(unknown);
  const HookReport report = reinstall_hooks();
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.rows[0].state, HookState::failed);
  EXPECT_EQ(report.error.code, ENOTSUP) << report.error.message;
  EXPECT_EQ(other_.read(), unknown);
  EXPECT_FALSE(hooks_intact());
}

TEST(JumpTarget, KnowsTheFormsThatPatchersWrite) {
  std::array<unsigned char, 24> code{};
  const auto target = [&code] { return jump_target(reinterpret_cast<const std::byte*>(code.data())); };
  const auto absolute = reinterpret_cast<void*>(0x123456789abcdef0);
  EXPECT_EQ(target(), nullptr);

  code = {0x49, 0xbb, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0x41, 0xff, 0xe3};  // mov r11; jmp r11
  EXPECT_EQ(target(), absolute);
  code[12] = 0xe2;  // jmp r10
  EXPECT_EQ(target(), nullptr);
  code = {0x48, 0xb8, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0xff, 0xe0};  // mov rax; jmp rax
  EXPECT_EQ(target(), absolute);
  code = {0xe9, 0xf0, 0xff, 0xff, 0xff};  // jmp -16
  EXPECT_EQ(reinterpret_cast<Address>(target()), reinterpret_cast<Address>(code.data()) + 5 - 16);
  code = {0xff, 0x25, 0x02, 0, 0, 0, 0, 0, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12};  // jmp [rip + 2]
  EXPECT_EQ(target(), absolute);
  code = {0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05};  // mov eax, 11; syscall
  EXPECT_EQ(target(), nullptr);
}

#endif

}  // namespace
}  // namespace pinion::libc_hooks_test
