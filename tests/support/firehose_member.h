// A process of a test's firehose job, by the C API.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "pinion/firehose.h"
#include "processes.h"

namespace pinion::test {

/// Private anonymous memory.
inline char* map_memory(std::size_t bytes, void* at = nullptr) {
  void* const memory =
      ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return static_cast<char*>(memory);
}

class FirehoseMember {
 public:
  FirehoseMember(const std::string& provider, const std::string& directory, unsigned process,
                 unsigned processes, pinion_firehose_options options = {}, const char* settings = nullptr) {
    settings ? ::setenv("PINION", settings, 1) : ::unsetenv("PINION");
    options.size = sizeof options;
    options.process = process;
    options.processes = processes;
    options.directory = directory.c_str();
    options.provider = provider.c_str();
    const int code = pinion_firehose_open(&options, &firehose);
    if (code == ENODEV || code == ENOENT || code == ENOSYS) ::_exit(Processes::kSkipped);
    EXPECT_EQ(code, 0) << pinion_last_error();
    if (code != 0) ::_exit(1);
  }
  ~FirehoseMember() { EXPECT_EQ(pinion_firehose_close(firehose), 0) << pinion_last_error(); }
  FirehoseMember(const FirehoseMember&) = delete;
  FirehoseMember& operator=(const FirehoseMember&) = delete;

  unsigned process() const { return pinion_firehose_process(firehose); }
  unsigned processes() const { return pinion_firehose_processes(firehose); }
  void barrier() const { ASSERT_EQ(pinion_firehose_barrier(firehose), 0) << pinion_last_error(); }
  /// Gets the address `own` of each process.
  std::vector<std::uint64_t> exchange(const void* own) const {
    const auto address = reinterpret_cast<std::uintptr_t>(own);
    std::vector<std::uint64_t> all(processes());
    EXPECT_EQ(pinion_firehose_exchange(firehose, &address, sizeof address, all.data()), 0)
        << pinion_last_error();
    return all;
  }
  struct pinion_firehose_statistics statistics() const {
    struct pinion_firehose_statistics statistics {};
    statistics.size = sizeof statistics;
    EXPECT_EQ(pinion_firehose_statistics(firehose, &statistics), 0) << pinion_last_error();
    return statistics;
  }

  pinion_firehose* firehose = nullptr;
};

/// Waits for a condition that other processes bring about, for a minute at most.
inline bool eventually(FirehoseMember& member, const std::function<bool()>& holds) {
  const Time end = monotonic_now() + 60 * kSecond;
  while (!holds()) {
    if (monotonic_now() > end) return false;
    pinion_firehose_progress(member.firehose);
    std::this_thread::yield();
  }
  return true;
}

}  // namespace pinion::test
