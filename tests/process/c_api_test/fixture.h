// Shared by the tests of the public C API, from the outside.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "pinion/pinion.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/eventually.h"
#include "support/sanitizers.h"

namespace c_api_test {

using pinion::kSanitized;
using pinion::test::eventually;

inline const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
inline constexpr unsigned kBoth = PINION_ACCESS_READ | PINION_ACCESS_WRITE;

/// Touched anonymous memory in small pages, so that the pages pinned by the kernel can be counted.
class Memory {
 public:
  explicit Memory(std::size_t pages, void* at = nullptr) : bytes_(pages * kPage) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0);
    base_ = static_cast<char*>(::mmap(at, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    ::madvise(base_, bytes_, MADV_NOHUGEPAGE);
    for (std::size_t i = 0; i < bytes_; i += kPage) base_[i] = 1;
  }
  ~Memory() {
    if (base_) ::munmap(base_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* page(std::size_t i) const { return base_ + i * kPage; }
  char* begin() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  void unmap() {
    ASSERT_EQ(::munmap(base_, bytes_), 0);
    base_ = nullptr;
  }
  /// The memory goes by another way than unmap().
  void forget() { base_ = nullptr; }

 private:
  char* base_;
  std::size_t bytes_;
};

/// VmPin + VmLck.
inline std::uint64_t pinned_by_kernel() {
  std::ifstream status("/proc/self/status");
  std::uint64_t sum = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmPin:", 0) == 0 || line.rfind("VmLck:", 0) == 0)
      sum += std::stoull(line.substr(6)) * 1024;
  }
  return sum;
}

inline std::size_t open_descriptors() {
  const auto list = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

inline std::string last_error() { return pinion_last_error(); }

inline void read_only_log(const std::string& directory, pinion::runlog::Log& log) {
  std::vector<pinion::runlog::Log> logs;
  const pinion::Error error = pinion::runlog::read_logs({directory}, logs);
  ASSERT_FALSE(error) << error.message;
  ASSERT_EQ(logs.size(), 1u);
  log = std::move(logs[0]);
}

/// A directory of this process, for one test.
inline std::string log_directory() {
  return testing::TempDir() + "pinion-c-api-" + std::to_string(::getpid());
}

/// The last error is one line that names `parts`.
inline void expect_last_error(std::initializer_list<const char*> parts) {
  const std::string text = last_error();
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

/// Runs `body` in a forked child, which must return 0.
inline void in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(body());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

struct ApiTest : testing::Test {
  void SetUp() override {
    ::unsetenv("PINION");
    ::unsetenv("PINION_CONFIG");
  }
  void TearDown() override {
    while (pinion_stop() == 0) {
    }
    while (!open_.empty()) close(open_.back());
  }

  /// Starts with `options` and opens one domain.
  void start(const std::string& options) {
    ASSERT_EQ(pinion_start(options.c_str()), 0) << last_error();
    domain_ = open();
  }
  pinion_domain* open(const char* device = nullptr, const char* nic = nullptr) {
    pinion_domain* domain = nullptr;
    EXPECT_EQ(pinion_domain_open(device, nic, &domain), 0) << last_error();
    open_.push_back(domain);
    return domain;
  }
  void close(pinion_domain* domain) {
    EXPECT_EQ(pinion_domain_close(domain), 0) << last_error();
    std::erase(open_, domain);
  }

  struct pinion_statistics statistics(const pinion_domain* domain) {
    struct pinion_statistics s {};
    s.size = sizeof s;
    EXPECT_EQ(::pinion_statistics(domain, &s), 0) << last_error();
    EXPECT_EQ(s.size, sizeof s);
    EXPECT_EQ(s.hits + s.waits + s.misses + s.bounced + s.observed, s.acquires);
    return s;
  }
  struct pinion_statistics statistics() {
    return statistics(domain_);
  }

  struct pinion_keys keys(const pinion_lease& lease) {
    struct pinion_keys k {};
    k.size = sizeof k;
    EXPECT_EQ(pinion_lease_keys(&lease, &k), 0) << last_error();
    return k;
  }

  /// Acquires and releases.
  void use(const void* address, std::size_t bytes, unsigned access = kBoth) {
    pinion_lease lease;
    ASSERT_EQ(pinion_acquire(domain_, address, bytes, access, &lease), 0) << last_error();
    ASSERT_EQ(pinion_release(&lease), 0) << last_error();
  }

  pinion_domain* domain_ = nullptr;

 private:
  std::vector<pinion_domain*> open_;
};
/// A NIC file for one test.
struct NicFile {
  explicit NicFile(const char* settings) { std::ofstream(path) << settings; }
  ~NicFile() { std::filesystem::remove(path); }
  const std::string path = testing::TempDir() + "pinion-c-api-" + std::to_string(::getpid()) + ".nic";
};

}  // namespace c_api_test
