// Calls by number, return values, and names of the same code.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "fixture.h"
#include "monitor/system_call.h"

namespace pinion::libc_hooks_test {
namespace {

// ---- By number ----

TEST_F(LibcHooks, SyscallIsSeenLikeTheFunctions) {
  char* const p = map_pages(6);
  const Range all = Range::of(p, 6 * page_);
  const auto once = [&](const char* what, Range expected, long number, auto... arguments) {
    watch(all);
    EXPECT_NE(syscall(number, arguments...), -1) << what << ": " << std::strerror(errno);
    EXPECT_EQ(seen_ranges(), expected.empty() ? Ranges{} : Ranges{expected}) << what;
  };
  once("madvise", Range::of(p, page_), SYS_madvise, p, page_, MADV_DONTNEED);
  once("madvise that drops nothing", {}, SYS_madvise, p, page_, MADV_NORMAL);
  once("mprotect", Range::of(p, page_), SYS_mprotect, p, page_, PROT_READ);
  once("mprotect that adds", {}, SYS_mprotect, p, page_, PROT_READ | PROT_WRITE);
  once("pkey_mprotect", Range::of(p, page_), SYS_pkey_mprotect, p, page_, PROT_NONE, -1);
  once("mmap over", Range::of(p, page_), SYS_mmap, p, page_, PROT_READ,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  once("mmap elsewhere", {}, SYS_mmap, nullptr, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  once("mremap that shrinks", Range::of(p + 4 * page_, 2 * page_), SYS_mremap, p + 3 * page_, 3 * page_,
       page_, 0);
  once("mremap that moves", Range::of(p + 3 * page_, page_), SYS_mremap, p + 3 * page_, page_, 64 * page_,
       MREMAP_MAYMOVE);
  once("munmap", Range::of(p, page_), SYS_munmap, p, page_);
  munmap(p, 3 * page_);
  EXPECT_EQ(begins.load(), ends.load());
}

TEST_F(LibcHooks, SyscallSixthArgumentAndAnswer) {
  int words[2] = {5, 0};
  // Compares the first word with the sixth argument.
  errno = EXFULL;
  EXPECT_EQ(syscall(SYS_futex, &words[0], FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, &words[1], 5), 0);
  EXPECT_EQ(errno, EXFULL);
  EXPECT_EQ(syscall(SYS_futex, &words[0], FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, &words[1], 6), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  EXPECT_EQ(syscall(100000), -1);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(syscall(-1), -1);
  EXPECT_EQ(errno, ENOSYS);
  // The kernel looks at the lower half of the number.
  char* const p = map_pages(1);
  watch(Range::of(p, page_));
  EXPECT_EQ(syscall(SYS_munmap | long{1} << 32, p, page_), 0);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, page_)}));
}

TEST_F(LibcHooks, SyscallThatMovesTheBreak) {
  const auto bytes = static_cast<std::intptr_t>(2 * page_);
  char* const old_break = static_cast<char*>(sbrk(bytes));
  const auto begin = reinterpret_cast<Address>(old_break);
  watch({begin, begin + 2 * page_});
  EXPECT_EQ(syscall(SYS_brk, 0), to_argument(old_break + bytes));
  EXPECT_EQ(syscall(SYS_brk, old_break), to_argument(old_break));
  EXPECT_EQ(brk(old_break), 0);  // libc's own record
  EXPECT_EQ(seen_ranges(), (Ranges{{page_ceil(begin), page_ceil(begin + 2 * page_)}}));
}

TEST_F(LibcHooks, ForkThroughSyscall) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer does not see this fork";
#endif
  const pid_t child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    char* const p = static_cast<char*>(mmap(nullptr, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    _exit(munmap(p, page_) == 0 && begins.load() == ends.load() ? 7 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

#if defined(__x86_64__)
/// The child below comes out here: it has a stack of one word.
[[noreturn]] void exit_of_child() {
  for (;;) raw_system_call(SYS_exit, {9});
}

TEST_F(LibcHooks, ChildOfSyscallOnAStackOfItsOwn) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "an instrumented function needs more of its stack";
#endif
  // Returning from syscall() takes one word, the return address. A frame of the hook's would take more.
  alignas(16) void* stack[64] = {};
  stack[32] = reinterpret_cast<void*>(exit_of_child);
  const long child = syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, &stack[32], 0, 0, 0);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(static_cast<pid_t>(child), &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}
#endif

// ---- Return values ----

TEST_F(LibcHooks, RefusalsAreTheKernels) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer's munmap takes its arguments for good";
#endif
  char* const p = map_pages(2);
  const long bad = -1;
  const long at = reinterpret_cast<long>(p), page = static_cast<long>(page_);
  const long anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  struct Case {
    const char* what;
    long number;
    std::array<long, 6> a;
  };
  const Case cases[] = {
      {"munmap misaligned", SYS_munmap, {at + 1, page}},
      {"munmap of nothing", SYS_munmap, {at, 0}},
      {"munmap beyond the end", SYS_munmap, {at, bad}},
      {"munmap wrapping to zero", SYS_munmap, {at, -at}},
      {"mmap of nothing", SYS_mmap, {0, 0, PROT_READ, anonymous, -1, 0}},
      {"mmap misaligned offset", SYS_mmap, {0, page, PROT_READ, anonymous, -1, 1}},
      {"mmap fixed misaligned", SYS_mmap, {at + 1, page, PROT_READ, anonymous | MAP_FIXED, -1, 0}},
      {"mmap fixed, bad descriptor", SYS_mmap, {at, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0}},
      {"mmap fixed, too long", SYS_mmap, {at, bad, PROT_READ, anonymous | MAP_FIXED, -1, 0}},
      {"mmap without a kind", SYS_mmap, {0, page, PROT_READ, MAP_ANONYMOUS, -1, 0}},
      {"mremap misaligned", SYS_mremap, {at + 1, page, page, 0}},
      {"mremap to nothing", SYS_mremap, {at, page, 0, 0}},
      {"mremap unknown flag", SYS_mremap, {at, page, page, 64}},
      {"mremap fixed that may not move", SYS_mremap, {at, page, page, MREMAP_FIXED, at + page}},
      {"mremap fixed misaligned", SYS_mremap, {at, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, at + page + 1}},
      {"mremap fixed onto itself", SYS_mremap, {at, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, at}},
      {"mremap that cannot grow", SYS_mremap, {at, page, long{1} << 46, 0}},
      {"mremap of unmapped memory", SYS_mremap, {page, page, 2 * page, MREMAP_MAYMOVE}},
      {"madvise misaligned", SYS_madvise, {at + 1, page, MADV_DONTNEED}},
      {"madvise unknown", SYS_madvise, {at, page, 9999}},
      {"madvise of unmapped memory", SYS_madvise, {page, page, MADV_DONTNEED}},
      {"madvise of nothing", SYS_madvise, {at, 0, MADV_DONTNEED}},
      {"madvise remove of private memory", SYS_madvise, {at, page, MADV_REMOVE}},
      {"shmat of no segment", SYS_shmat, {-1, 0, 0}},
      {"shmat over, of no segment", SYS_shmat, {-1, at, SHM_REMAP}},
      {"shmdt of no segment", SYS_shmdt, {at}},
      {"shmdt misaligned", SYS_shmdt, {at + 1}},
      {"mprotect misaligned", SYS_mprotect, {at + 1, page, PROT_READ}},
      {"mprotect of unmapped memory", SYS_mprotect, {page, page, PROT_READ}},
      {"mprotect of nothing", SYS_mprotect, {at, 0, PROT_NONE}},
      {"pkey_mprotect with no such key", SYS_pkey_mprotect, {at, page, PROT_READ, 77}},
      {"remap_file_pages of private memory", SYS_remap_file_pages, {at, page, 0, 0, 0}},
  };
  const auto by_libc = [](const Case& c) -> long {
    void* const address = reinterpret_cast<void*>(c.a[0]);
    const auto size = [&c](std::size_t i) { return static_cast<std::size_t>(c.a[i]); };
    const auto number = [&c](std::size_t i) { return static_cast<int>(c.a[i]); };
    switch (c.number) {
      case SYS_munmap:
        return munmap(address, size(1));
      case SYS_mmap:
        return reinterpret_cast<long>(mmap(address, size(1), number(2), number(3), number(4), c.a[5]));
      case SYS_mremap:
        return reinterpret_cast<long>(
            mremap(address, size(1), size(2), number(3), reinterpret_cast<void*>(c.a[4])));
      case SYS_madvise:
        return madvise(address, size(1), number(2));
      case SYS_mprotect:
        return mprotect(address, size(1), number(2));
      case SYS_pkey_mprotect:
        return pkey_mprotect(address, size(1), number(2), number(3));
      case SYS_remap_file_pages:
        return remap_file_pages(address, size(1), number(2), size(3), number(4));
      case SYS_shmat:
        return reinterpret_cast<long>(shmat(number(0), reinterpret_cast<void*>(c.a[1]), number(2)));
      default:
        return shmdt(address);
    }
  };
  for (const Case& c : cases) {
    const long kernels = raw_system_call(c.number, c.a);
    const long by_name_or_number[] = {
        (errno = 0, by_libc(c)), errno,
        (errno = 0, syscall(c.number, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5])), errno};
    for (const int i : {0, 2}) {
      EXPECT_EQ(by_name_or_number[i], is_error(kernels) ? -1 : kernels) << c.what;
      EXPECT_EQ(by_name_or_number[i + 1], is_error(kernels) ? -kernels : 0) << c.what;
    }
    EXPECT_EQ(begins.load(), ends.load()) << c.what;
  }
  EXPECT_EQ(p[0], kContents);
  munmap(p, 2 * page_);
}

TEST_F(LibcHooks, SuccessLeavesErrnoAlone) {
  char* const p = map_pages(2);
  errno = EXFULL;
  EXPECT_EQ(madvise(p, page_, MADV_DONTNEED), 0);
  EXPECT_EQ(munmap(p, 2 * page_), 0);
  EXPECT_EQ(errno, EXFULL);
}

TEST_F(LibcHooks, TheSameCodeIsCalledByBothNames) {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  for (const std::string name : {"mmap", "ftruncate", "truncate", "fallocate"})
    EXPECT_EQ(dlsym(libc, (name + "64").c_str()), dlsym(libc, name.c_str())) << name;
}

}  // namespace
}  // namespace pinion::libc_hooks_test
