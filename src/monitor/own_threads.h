// Starts Pinion's threads, all in one way: whichever thread of the program asks for them, and whatever it has
// made of itself, they are ordinary threads of the process.
//
// | property | of a thread of Pinion's |
// | CPUs | those of the process when libpinion was loaded; of a rank those of its launcher too, as it binds
// ranks | | priority | that of the process then; never a real-time one | | signals | all are blocked: a
// handler of the program's never runs there | | rounding, floating-point traps | as in a new process |
//
// A thread inherits all of these from its creator, and lowering a nice value takes a privilege. So one
// thread, the keeper, makes all the others. The first start makes it, or a front that expects one. Owns the
// keeper; a forked child makes its own. Any thread, outside of hooks; allocates and
// waits for the keeper, which takes no lock of the caller's but the allocator's.
#pragma once

#include <array>
#include <functional>
#include <thread>

namespace pinion {

/// CPUs as the kernel numbers them.
struct KernelCpus {
  static constexpr std::size_t kMost = 1024;
  static constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMost / kWordBits> words{};

  bool has(std::size_t cpu) const { return (words[cpu / kWordBits] >> (cpu % kWordBits) & 1) != 0; }
};

/// The CPUs of Pinion's threads. None: the system refuses the answer.
const KernelCpus& own_cpus();

/// Starts a thread that runs `work` under a name of 15 characters at most. Throws std::system_error where no
/// thread can be made.
std::thread start_own_thread(const char* name, std::function<void()> work);

/// Makes the keeper, and waits until it is ready, so that it has the present thread's privileges and
/// priority. Where that fails, the next start tries again.
void prepare_own_threads();

/// Threads that start_own_thread() needs for itself: 0 or 1.
int keeper_threads();

}  // namespace pinion
