// Counts the locked instructions of x86-64 that a function executes: exact where times vary. A child process
// runs it, and its parent steps through it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pinion::test {

using Code = std::array<unsigned char, 16>;

/// Whether the instruction has a lock prefix, exchanges with memory, or is a full fence.
inline bool is_locked(const Code& code) {
  std::size_t at = 0;
  for (; at < 4; ++at) {
    if (code[at] == 0xF0) return true;
    if (std::memchr("\x66\xF2\xF3\x2E\x36\x3E\x26\x64\x65", code[at], 9) == nullptr) break;
  }
  if ((code[at] & 0xF0) == 0x40) ++at;  // REX
  if (code[at] == 0x86 || code[at] == 0x87) return code[at + 1] < 0xC0;
  return code[at] == 0x0F && code[at + 1] == 0xAE && code[at + 2] == 0xF0;
}

inline Code code_of(pid_t process, std::uint64_t address) {
  Code code{};
  for (std::size_t i = 0; i < 2; ++i) {
    const long word = ::ptrace(PTRACE_PEEKTEXT, process, address + 8 * i, nullptr);
    std::memcpy(code.data() + 8 * i, &word, sizeof word);
  }
  return code;
}

/// Steps through a stopped process until it stops itself, or ends: the number of locked instructions.
inline long step_until_stop(pid_t process) {
  long locked = 0;
  for (int status = 0;;) {
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, process, nullptr, &registers) != 0) return -1;
    locked += is_locked(code_of(process, registers.rip));
    ::ptrace(PTRACE_SINGLESTEP, process, nullptr, nullptr);
    if (::waitpid(process, &status, 0) != process || !WIFSTOPPED(status)) return -1;
    if (WSTOPSIG(status) == SIGSTOP) return locked;
  }
}

/// Locked instructions of one call of `use`, in a child after `prepare`. -1: this system lets no process
/// step through another.
template <class Prepare, class Use>
long locked_instructions(Prepare&& prepare, Use&& use) {
  constexpr int kCalls = 8;
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    use();
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    ::raise(SIGSTOP);  // nothing in between: what stopping itself takes
    for (int i = 0; i < kCalls; ++i) use();
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return -1;
  const long stopping = step_until_stop(child);
  const long all = stopping < 0 ? -1 : step_until_stop(child);
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return all < 0 ? -1 : (all - stopping + kCalls - 1) / kCalls;
}

}  // namespace pinion::test
