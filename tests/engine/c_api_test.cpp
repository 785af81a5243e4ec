// The public C API, from the outside: the promises to a library that links libpinion.
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/call_kind.h"
#include "device/kernel/pin.h"
#include "engine/engine.h"
#include "monitor/memory_events.h"
#include "pinion/pinion.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/eventually.h"
#include "support/kept_registrations.h"
#include "support/resident_memory.h"
#include "support/sanitizers.h"

namespace {

using pinion::kSanitized;
using pinion::test::eventually;

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
constexpr unsigned kBoth = PINION_ACCESS_READ | PINION_ACCESS_WRITE;

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
std::uint64_t pinned_by_kernel() {
  std::ifstream status("/proc/self/status");
  std::uint64_t sum = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmPin:", 0) == 0 || line.rfind("VmLck:", 0) == 0)
      sum += std::stoull(line.substr(6)) * 1024;
  }
  return sum;
}

std::size_t open_descriptors() {
  const auto list = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

std::string last_error() { return pinion_last_error(); }

void read_only_log(const std::string& directory, pinion::runlog::Log& log) {
  std::vector<pinion::runlog::Log> logs;
  const pinion::Error error = pinion::runlog::read_logs({directory}, logs);
  ASSERT_FALSE(error) << error.message;
  ASSERT_EQ(logs.size(), 1u);
  log = std::move(logs[0]);
}

/// A directory of this process, for one test.
std::string log_directory() { return testing::TempDir() + "pinion-c-api-" + std::to_string(::getpid()); }

/// The last error is one line that names `parts`.
void expect_last_error(std::initializer_list<const char*> parts) {
  const std::string text = last_error();
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

/// Runs `body` in a forked child, which must return 0.
void in_child(const std::function<int()>& body) {
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

// ---- the library ----

TEST_F(ApiTest, VersionIsThatOfTheHeader) {
  const std::string header = std::to_string(PINION_VERSION_MAJOR) + "." +
                             std::to_string(PINION_VERSION_MINOR) + "." +
                             std::to_string(PINION_VERSION_PATCH);
  EXPECT_EQ(pinion_version(), header);
}

TEST_F(ApiTest, BadOptionsAreErrorsThatSayTheValidOnes) {
  EXPECT_EQ(pinion_start("retain=lru"), EINVAL);
  expect_last_error({"unknown option 'retain'", "retention"});
  EXPECT_EQ(pinion_start("retention=always"), EINVAL);
  expect_last_error({"leave-pinned"});
  EXPECT_EQ(pinion_start("device=emulated,nic=/no/such/file"), EINVAL) << last_error();
  expect_last_error({"/no/such/file"});
  EXPECT_EQ(pinion_stop(), EINVAL);
  expect_last_error({"not started"});
}

TEST_F(ApiTest, SwitchedOffByTheUser) {
  EXPECT_EQ(pinion_start("off"), ECANCELED);
  ::setenv("PINION", "off", 1);
  EXPECT_EQ(pinion_start(nullptr), ECANCELED);
  EXPECT_EQ(pinion_start("retention=lru"), ECANCELED);
  expect_last_error({"PINION=off"});
}

TEST_F(ApiTest, EnvironmentOverridesTheCallersOptions) {
  ::setenv("PINION", "limit=1M", 1);
  start("limit=64M,retention=leave-pinned");
  struct pinion_limits limits {};
  limits.size = sizeof limits;
  ASSERT_EQ(pinion_limits(&limits), 0);
  EXPECT_EQ(limits.bytes, 1u << 20);
  Memory memory(1);
  use(memory.begin(), kPage);
  if (pinion::test::kKept) {
    EXPECT_EQ(statistics().regions, 1u) << "retention=leave-pinned holds as well";
  }
}

TEST_F(ApiTest, TwoUsersShareWhatRuns) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(1);
  use(memory.begin(), kPage);

  EXPECT_EQ(pinion_start("retention=lru,limit=2G"), EBUSY);
  expect_last_error({"retention=leave-pinned", "retention=lru", "NULL"});
  ASSERT_EQ(pinion_start("retention=leave-pinned"), 0) << last_error();
  ASSERT_EQ(pinion_start(nullptr), 0) << last_error();
  pinion_domain* second = open();
  EXPECT_EQ(statistics(second).acquires, 0u);

  EXPECT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinion_stop(), 0);
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().hits, 1u) << "one user is left, so all goes on";
  EXPECT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinion_stop(), EINVAL);
}

TEST_F(ApiTest, NothingRunsBeforeTheStartAndAfterTheStop) {
  pinion_domain* domain = nullptr;
  EXPECT_EQ(pinion_domain_open(nullptr, nullptr, &domain), ESHUTDOWN);
  EXPECT_EQ(domain, nullptr);
  expect_last_error({"pinion_start"});
  struct pinion_limits limits {};
  limits.size = sizeof limits;
  EXPECT_EQ(pinion_limits(&limits), ESHUTDOWN);

  start("retention=leave-pinned");
  ASSERT_EQ(pinion_stop(), 0);
  Memory memory(1);
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), ESHUTDOWN);
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &lease), ESHUTDOWN);
  struct pinion_statistics s {};
  s.size = sizeof s;
  EXPECT_EQ(pinion_statistics(domain_, &s), ESHUTDOWN);
  close(domain_);  // the handle must go all the same
}

TEST_F(ApiTest, LastErrorIsOfTheThread) {
  EXPECT_EQ(pinion_stop(), EINVAL);
  const std::string mine = last_error();
  std::thread([] { EXPECT_EQ(last_error(), ""); }).join();
  EXPECT_EQ(last_error(), mine);
}

TEST_F(ApiTest, StartAndStopTwentyTimes) {
  Memory memory(64);
  std::uint64_t pinned = 0;
  std::size_t descriptors = 0;
  for (int i = 0; i < 20; ++i) {
    const bool lru = i % 2;
    start(lru ? "retention=lru" : "retention=helper,device=emulated,nic=none");
    for (std::size_t p = 0; p < 64; p += 8) use(memory.page(p), 8 * kPage);
    EXPECT_GE(statistics().registered_peak_bytes, 8 * kPage);
    if (i % 3 == 0) {
      close(domain_);
      ASSERT_EQ(pinion_stop(), 0);
    } else {
      ASSERT_EQ(pinion_stop(), 0);
      close(domain_);
    }
    if (i == 1) {
      pinned = pinned_by_kernel();
      descriptors = open_descriptors();
    }
  }
  EXPECT_EQ(pinned_by_kernel(), pinned);
  EXPECT_EQ(open_descriptors(), descriptors);
}

// glibc maps large blocks for themselves, and takes them from the heap once as large a one was freed:
// Pinion's own blocks must not decide where the program's buffers are.
TEST_F(ApiTest, TheProgramsBlocksAreMappedAsBefore) {
  if (kSanitized) GTEST_SKIP() << "not glibc's allocator";
  const auto is_mapped = [] {
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    const std::size_t before = ::mallinfo2().hblks;
    void* volatile block = std::malloc(kBytes);
    const bool mapped = ::mallinfo2().hblks > before;
    // Not freed, which would be the decision.
    std::memset(block, 0, kBytes);
    return mapped;
  };
  if (!is_mapped()) GTEST_SKIP() << "the tests before have freed as large a block";
  const std::string directory = log_directory();
  start("retention=helper,log=" + directory);
  Memory memory(64);
  use(memory.page(0), 64 * kPage);
  EXPECT_TRUE(is_mapped());
  close(domain_);
  ASSERT_EQ(pinion_stop(), 0);
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(is_mapped());
}

TEST_F(ApiTest, NoHelperThreadIsAnErrorAndLeavesNothingBehind) {
  pthread_attr_t before, huge;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(::pthread_attr_init(&huge), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);  // more than an address space has
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  EXPECT_EQ(pinion_start("retention=helper"), EAGAIN);
  expect_last_error({"helper thread", "ulimit -u"});
  ASSERT_EQ(::pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(pinion_stop(), EINVAL);
  EXPECT_EQ(pinion_start("retention=helper"), 0) << last_error();
}

// ---- domains ----

TEST_F(ApiTest, DomainErrors) {
  start("retention=lru");
  pinion_domain* domain = nullptr;
  EXPECT_EQ(pinion_domain_open("toaster", nullptr, &domain), EINVAL);
  expect_last_error({"toaster", "pin", "emulated"});
  EXPECT_EQ(pinion_domain_open("emulated", "abacus", &domain), EINVAL);
  expect_last_error({"abacus", "connectx"});
  EXPECT_EQ(pinion_domain_open(nullptr, nullptr, nullptr), EINVAL);
  EXPECT_EQ(pinion_domain_close(nullptr), EINVAL);
  EXPECT_EQ(domain, nullptr);
}

TEST_F(ApiTest, ClosingLetsEverythingIdleGo) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(32);
  const std::uint64_t before = pinned_by_kernel();
  use(memory.page(0), 16 * kPage);
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, memory.page(16), 16 * kPage, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(pinned_by_kernel() - before, 32 * kPage);

  EXPECT_EQ(pinion_domain_close(domain_), EBUSY);
  expect_last_error({"1 region", "release"});
  EXPECT_EQ(statistics().registered_bytes, 16 * kPage) << "what was idle is gone";
  EXPECT_EQ(pinned_by_kernel() - before, 16 * kPage);
  use(memory.page(16), kPage);
  EXPECT_EQ(statistics().hits, 1u) << "still open";

  ASSERT_EQ(pinion_release(&lease), 0);
  close(domain_);
  EXPECT_EQ(pinned_by_kernel(), before);
  EXPECT_EQ(statistics(nullptr).registered_bytes, 0u);
}

TEST_F(ApiTest, DomainsOpenAndCloseForEver) {
  start("retention=helper");
  Memory memory(4);
  for (int i = 0; i < 50; ++i) {
    pinion_domain* domain = open(i % 2 ? "pin" : "emulated", "none");
    EXPECT_EQ(statistics(domain).acquires, 0u) << "counted from the opening on";
    EXPECT_EQ(statistics(domain).registered_peak_bytes, 0u);
    pinion_lease lease;
    ASSERT_EQ(pinion_acquire(domain, memory.begin(), memory.bytes(), kBoth, &lease), 0) << last_error();
    ASSERT_EQ(pinion_release(&lease), 0);
    const auto s = statistics(domain);
    EXPECT_EQ(s.acquires, 1u);
    EXPECT_EQ(s.misses, 1u) << "nothing of an earlier domain is left";
    EXPECT_EQ(s.registered_peak_bytes, memory.bytes());
    close(domain);
  }
}

TEST_F(ApiTest, DomainsComeAndGoWhileOthersTransfer) {
  start("retention=helper,poll=100us");
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  for (unsigned t = 0; t < 2; ++t) {
    others.emplace_back([&, t] {
      Memory memory(32);
      std::minstd_rand random(t + 1);
      while (!done) {
        const std::size_t first = random() % 32, count = 1 + random() % (32 - first);
        pinion_lease lease;
        ASSERT_EQ(pinion_acquire(domain_, memory.page(first), count * kPage, kBoth, &lease), 0)
            << last_error();
        ASSERT_EQ(pinion_release(&lease), 0);
        if (random() % 16 == 0) ::madvise(memory.page(first), kPage, MADV_DONTNEED);
      }
    });
  }
  Memory memory(8);
  for (int i = 0; i < 200; ++i) {
    pinion_domain* domain = open(nullptr, i % 2 ? "none" : "connectx");
    pinion_lease lease;
    ASSERT_EQ(pinion_acquire(domain, memory.begin(), memory.bytes(), kBoth, &lease), 0) << last_error();
    EXPECT_EQ(pinion_domain_close(domain), EBUSY);
    ASSERT_EQ(pinion_release(&lease), 0);
    close(domain);
  }
  done = true;
  for (auto& thread : others) thread.join();
  EXPECT_GT(statistics().acquires, 0u);
  close(domain_);
  EXPECT_EQ(statistics(nullptr).registered_bytes, 0u);
}

TEST_F(ApiTest, MoreDomainsThanAProcessCanHave) {
  start("retention=lru");
  std::vector<pinion_domain*> domains;
  pinion_domain* domain = nullptr;
  while (domains.size() < 100 && pinion_domain_open(nullptr, nullptr, &domain) == 0)
    domains.push_back(domain);
  EXPECT_GE(domains.size(), 8u);
  EXPECT_LT(domains.size(), 100u);
  EXPECT_EQ(pinion_domain_open(nullptr, nullptr, &domain), ENOSPC);
  for (pinion_domain* open : domains) EXPECT_EQ(pinion_domain_close(open), 0) << last_error();
  open();
}

TEST_F(ApiTest, DomainsHaveRegistrationsOfTheirOwn) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  pinion_domain* other = open("emulated", "none");
  Memory memory(4);
  use(memory.begin(), memory.bytes());
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(other, memory.begin(), kPage, kBoth, &lease), EAGAIN);
  ASSERT_EQ(pinion_acquire(other, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(statistics(other).misses, 1u);
  EXPECT_EQ(statistics(other).registered_bytes, kPage);
  EXPECT_EQ(statistics().registered_bytes, 4 * kPage);
  EXPECT_EQ(statistics(nullptr).misses, 2u);
  EXPECT_EQ(statistics(nullptr).registered_bytes, 5 * kPage);
  EXPECT_EQ(pinion_release(&lease), 0);
}

// One buffer in five domains is pinned five times: in the counters, and in the report of the log.
TEST_F(ApiTest, FiguresAreSumsOverDomains) {
  NEEDS_KEPT_REGISTRATIONS();
  constexpr std::size_t kDomains = 5;
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  Memory memory(16);
  std::vector<pinion_lease> leases(kDomains);
  for (std::size_t i = 0; i < kDomains; ++i) {
    pinion_domain* const domain = i == 0 ? domain_ : open();
    ASSERT_EQ(pinion_acquire(domain, memory.begin(), memory.bytes(), kBoth, &leases[i]), 0) << last_error();
  }
  EXPECT_EQ(statistics(nullptr).registered_bytes, kDomains * memory.bytes());
  for (pinion_lease& lease : leases) EXPECT_EQ(pinion_release(&lease), 0);
  ASSERT_EQ(pinion_stop(), 0);

  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  EXPECT_EQ(log.live.counters.registered_peak_bytes, kDomains * memory.bytes());
  EXPECT_EQ(log.live.counters.leave_pinned_bytes, kDomains * memory.bytes());
  const pinion::runlog::RegisteredBytes bytes = pinion::runlog::analyse({log}).registered();
  EXPECT_EQ(bytes.peak, kDomains * memory.bytes());
  EXPECT_EQ(bytes.oracle_peak, kDomains * memory.bytes());
  EXPECT_EQ(bytes.leave_pinned_peak, kDomains * memory.bytes());
  std::filesystem::remove_all(directory);
}

/// A NIC file for one test.
struct NicFile {
  explicit NicFile(const char* settings) { std::ofstream(path) << settings; }
  ~NicFile() { std::filesystem::remove(path); }
  const std::string path = testing::TempDir() + "pinion-c-api-" + std::to_string(::getpid()) + ".nic";
};

// UCX registers a pool in a thread of its own, and deregisters it in the one that ends the program.
TEST_F(ApiTest, ALeaseThatAnotherThreadReturnsIsInTheLedgerOnce) {
  NEEDS_KEPT_REGISTRATIONS();
  const NicFile nic("register_ns_base=20000000\n");
  const std::string directory = log_directory();
  start("retention=helper,device=emulated,nic=" + nic.path + ",log=" + directory);
  Memory memory(8);
  use(memory.page(0), kPage);
  use(memory.page(2), kPage);
  pinion_lease pool = PINION_LEASE_INIT;
  std::thread([&] {
    ASSERT_EQ(pinion_acquire(domain_, memory.page(4), kPage, kBoth, &pool), 0) << last_error();
  }).join();
  EXPECT_EQ(pinion_release(&pool), 0);
  close(domain_);
  ASSERT_EQ(pinion_stop(), 0);
  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  EXPECT_GT(log.live.counters.registration_ns, 50'000'000u);
  EXPECT_GT(log.live.counters.budget_spent_ns, -10'000'000) << "leave-pinned waited, and so did this";
  std::filesystem::remove_all(directory);
}

// The first domain's device is small, the second's is large.
TEST_F(ApiTest, CapsOfADeviceBoundItsDomainOnly) {
  NEEDS_KEPT_REGISTRATIONS();
  const NicFile nic("max_regions=2\nmax_bytes=1M\nmax_region_bytes=64K\n");
  const std::string directory = log_directory();
  start("retention=leave-pinned,device=emulated,nic=" + nic.path + ",log=" + directory);
  struct pinion_limits limits {};
  limits.size = sizeof limits;
  ASSERT_EQ(pinion_limits(&limits), 0);
  EXPECT_GT(limits.bytes, std::uint64_t{1} << 20);
  EXPECT_EQ(limits.regions, UINT64_MAX);

  pinion_domain* const small = domain_;
  pinion_domain* const large = open("pin");
  Memory memory(4096);
  for (int i = 0; i < 6; ++i) {
    domain_ = small;
    use(memory.page(16u * i), kPage);
    domain_ = large;
    use(memory.page(16u * i), kPage);
  }
  use(memory.begin(), memory.bytes());
  EXPECT_EQ(statistics(small).regions, 2u);
  EXPECT_EQ(statistics(small).bounced, 0u);
  EXPECT_EQ(statistics(large).registered_bytes, memory.bytes());
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(small, memory.begin(), 64 * 1024 + kPage, kBoth, &lease), EFBIG) << last_error();
  ASSERT_EQ(pinion_stop(), 0);

  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  ASSERT_EQ(log.domains.size(), 3u) << "with the engine's own";
  EXPECT_STREQ(log.domains[1].device, "emulated");
  EXPECT_EQ(log.domains[1].nic, nic.path.substr(0, sizeof log.domains[1].nic - 1));
  EXPECT_EQ(log.domains[1].max_regions, 2u);
  EXPECT_EQ(log.domains[1].max_bytes, 1u << 20);
  EXPECT_STREQ(log.domains[2].device, "pin");
  EXPECT_STREQ(log.domains[2].nic, "");
  EXPECT_NE(log.domains[2].description[0], '\0');
  const pinion::runlog::DomainState &first = log.live.domains[1], &second = log.live.domains[2];
  EXPECT_EQ(first.registered_peak_bytes, 2 * kPage);
  EXPECT_EQ(first.acquires, 7u);
  EXPECT_EQ(first.bounced, 1u);
  EXPECT_EQ(second.acquires, 7u);
  EXPECT_EQ(second.registered_peak_bytes, memory.bytes());
  EXPECT_EQ(second.registered_now_bytes, 0u) << "all was let go at the end";
  // The parts make the whole.
  const pinion::runlog::Counters& all = log.live.counters;
  EXPECT_EQ(first.registrations + second.registrations, all.registrations);
  EXPECT_GT(first.registered_byte_ns, 0);
  EXPECT_NEAR(first.registered_byte_ns + second.registered_byte_ns, all.registered_byte_ns,
              1e-3 * all.registered_byte_ns);
  EXPECT_EQ(pinion::runlog::analyse({log}).domains.size(), 3u);
  std::filesystem::remove_all(directory);
}

// The limit is the process's: a domain that holds all of it idle makes room for another.
TEST_F(ApiTest, DomainsMakeRoomForEachOther) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned,limit=1M,limit-regions=4");
  pinion_domain *const first = domain_, *const second = open();
  Memory memory(512);
  const std::size_t quarter = (1u << 20) / 4;
  for (int i = 0; i < 4; ++i) use(memory.begin() + 2 * i * quarter, quarter);
  EXPECT_EQ(statistics(first).registered_bytes, 1u << 20);

  pinion_lease leases[3];
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(pinion_acquire(second, memory.begin() + 2 * i * quarter, quarter, kBoth, &leases[i]), 0)
        << last_error();
  EXPECT_EQ(statistics(second).registered_bytes, 3 * quarter);
  EXPECT_EQ(statistics(first).registered_bytes, quarter);
  EXPECT_EQ(statistics(nullptr).registered_peak_bytes, 1u << 20);

  // A request too large to fit beside the leases evicts nothing.
  pinion_lease more;
  EXPECT_EQ(pinion_acquire(second, memory.begin() + 6 * quarter, 2 * quarter, kBoth, &more), ENOMEM);
  expect_last_error({"limited to 1 MiB", "--limit"});
  EXPECT_EQ(statistics(first).registered_bytes, quarter);
  for (pinion_lease& lease : leases) EXPECT_EQ(pinion_release(&lease), 0);
}

namespace {

std::size_t thread_contexts() {
  std::size_t count = 0;
  for (const pinion::ThreadContext* thread = pinion::all_threads(); thread; thread = thread->next) ++count;
  return count;
}

}  // namespace

TEST_F(ApiTest, ThreadsThatComeAndGoHaveTheirContextsInTurn) {
  start("retention=leave-pinned,device=pin");
  Memory memory(1);
  use(memory.begin(), kPage);
  const std::size_t before = thread_contexts();
  for (int i = 0; i < 1000; ++i) std::thread([&] { use(memory.begin(), kPage); }).join();
  EXPECT_LE(thread_contexts(), before + 1);
  EXPECT_EQ(statistics().acquires, 1001u);
}

TEST_F(ApiTest, RunsLeaveNoMemoryBehind) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep freed memory for a while";
  Memory memory(4);
  const auto runs = [&](int count) {
    for (int run = 0; run < count; ++run) {
      start("retention=helper,device=pin");
      for (int i = 0; i < 20; ++i) use(memory.page(i % 3), 2 * kPage);
      TearDown();
    }
  };
  runs(20);
  // malloc may begin an arena for a new helper thread at any time; a leak shows in every series.
  constexpr int kSeries = 4, kRuns = 50;
  double least = 1e9;
  for (int series = 0; series < kSeries; ++series) {
    const std::size_t before = pinion::test::resident_bytes();
    runs(kRuns);
    least = std::min(least, double(pinion::test::resident_bytes()) - double(before));
  }
  std::printf("%.1f KiB a run\n", least / 1024 / kRuns);
  // The engine itself, 2 KiB, stays: threads and hooks may be inside it.
  EXPECT_LT(least, kRuns * 2 * double(kPage));
}

// ---- leases ----

TEST_F(ApiTest, RequestsThatMakeNoSense) {
  start("retention=leave-pinned");
  Memory memory(1);
  using Acquire = int (*)(pinion_domain*, const void*, std::size_t, unsigned, pinion_lease*);
  for (const Acquire acquire : {Acquire{pinion_acquire}, Acquire{pinion_try_acquire}}) {
    pinion_lease lease = PINION_LEASE_INIT;
    EXPECT_EQ(acquire(nullptr, memory.begin(), kPage, kBoth, &lease), EINVAL);
    expect_last_error({"domain is NULL"});
    EXPECT_EQ(acquire(domain_, nullptr, kPage, kBoth, &lease), EINVAL);
    expect_last_error({"empty"});
    EXPECT_EQ(acquire(domain_, memory.begin(), 0, kBoth, &lease), EINVAL);
    expect_last_error({"0 bytes"});
    for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - reinterpret_cast<std::uintptr_t>(memory.begin())}) {
      EXPECT_EQ(acquire(domain_, memory.begin(), bytes, kBoth, &lease), EINVAL);
      expect_last_error({"end of the address space"});
    }
    EXPECT_EQ(acquire(domain_, memory.begin(), kPage, 0x18, &lease), EINVAL);
    expect_last_error({"0x18", "PINION_ACCESS_REMOTE_WRITE"});
    EXPECT_EQ(acquire(domain_, memory.begin(), kPage, kBoth, nullptr), EINVAL);
    EXPECT_EQ(pinion_release(&lease), EINVAL) << "a refused acquire leaves no lease";
  }
  EXPECT_EQ(statistics().acquires, 0u);
}

TEST_F(ApiTest, ImpossibleRequestsEnterNoSum) {
  Memory memory(1), unreadable(64);
  ASSERT_EQ(::mprotect(unreadable.begin(), unreadable.bytes(), PROT_NONE), 0);
  const std::string directory = log_directory();
  for (const char* retention : {"leave-pinned", "observe"}) {
    SCOPED_TRACE(retention);
    start(std::string("device=pin,retention=") + retention + ",log=" + directory);
    const auto refused = [&](std::uintptr_t address, std::size_t bytes) {
      pinion_lease lease = PINION_LEASE_INIT;
      return pinion_acquire(domain_, reinterpret_cast<void*>(address), bytes, kBoth, &lease);
    };
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.begin());
    for (const std::uintptr_t nowhere :
         {~std::uintptr_t{0}, ~std::uintptr_t{0} - 1, std::uintptr_t{1} << 57, std::uintptr_t{1} << 58}) {
      EXPECT_EQ(refused(nowhere, 1), EINVAL) << nowhere;
      EXPECT_EQ(pinion_memory_begin(reinterpret_cast<void*>(nowhere), 1), EINVAL) << nowhere;
    }
    for (const std::size_t bytes : {std::size_t{1} << 63, std::size_t{1} << 57}) {
      EXPECT_EQ(refused(begin, bytes), EINVAL);
    }
    EXPECT_EQ(refused(begin, std::size_t{1} << 46), EFAULT) << "64 TiB";
    if (std::string_view(retention) != "observe") {
      EXPECT_EQ(refused(reinterpret_cast<std::uintptr_t>(unreadable.begin()), unreadable.bytes()), EFAULT);
    }
    use(memory.begin(), kPage);
    pinion::memory_events::lose_sight();  // an event of all memory
    EXPECT_LE(statistics().acquired_bytes, kPage + unreadable.bytes());
    EXPECT_LE(statistics().bounced_bytes, unreadable.bytes());
    TearDown();
    pinion::runlog::Log log;
    ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
    EXPECT_EQ(pinion::runlog::oracle_timeline(log).peak(), kPage);
    EXPECT_EQ(pinion::runlog::leave_pinned_timeline(log).peak(), kPage);
    EXPECT_LE(log.live.counters.leave_pinned_bytes, kPage);
    std::filesystem::remove_all(directory);
  }
}

TEST_F(ApiTest, ReleasedOnce) {
  start("retention=leave-pinned");
  Memory memory(1);
  pinion_lease lease = PINION_LEASE_INIT;
  EXPECT_EQ(pinion_release(&lease), EINVAL);
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(pinion_release(&lease), EINVAL);
  expect_last_error({"released already"});
  EXPECT_EQ(pinion_release(nullptr), EINVAL);
  struct pinion_keys k {};
  k.size = sizeof k;
  EXPECT_EQ(pinion_lease_keys(&lease, &k), EINVAL);
}

TEST_F(ApiTest, PartsOfARegistrationAreHits) {
  NEEDS_KEPT_REGISTRATIONS();  // sharing needs kept registrations
  start("retention=leave-pinned");
  Memory memory(16);
  pinion_lease whole, part;
  ASSERT_EQ(pinion_acquire(domain_, memory.begin() + 100, 15 * kPage, PINION_ACCESS_WRITE, &whole), 0)
      << last_error();
  const auto k = keys(whole);
  EXPECT_EQ(k.address, reinterpret_cast<std::uintptr_t>(memory.begin()));
  EXPECT_EQ(k.bytes, 16 * kPage) << "whole pages";
  EXPECT_TRUE(k.access & PINION_ACCESS_WRITE);
  EXPECT_NE(k.handle, 0u);

  ASSERT_EQ(pinion_acquire(domain_, memory.page(3) + 17, 5000, PINION_ACCESS_READ, &part), 0) << last_error();
  EXPECT_EQ(keys(part).handle, k.handle);
  EXPECT_EQ(keys(part).rkey, k.rkey);
  const auto s = statistics();
  EXPECT_EQ(s.misses, 1u);
  EXPECT_EQ(s.hits, 1u);
  EXPECT_EQ(s.registrations, 1u);
  EXPECT_EQ(s.registered_bytes, 16 * kPage);
  EXPECT_EQ(s.regions, 1u);
  EXPECT_EQ(s.acquired_bytes, 15 * kPage + 5000);
  EXPECT_GT(s.registration_ns, 0u);
  EXPECT_EQ(pinion_release(&part), 0);
  EXPECT_EQ(pinion_release(&whole), 0);
}

TEST_F(ApiTest, TryAcquireNeverRegisters) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(2);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &lease), EAGAIN);
  expect_last_error({"not registered"});
  EXPECT_EQ(statistics().acquires, 0u);
  EXPECT_EQ(statistics().registrations, 0u);
  use(memory.begin(), kPage);
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), 2 * kPage, kBoth, &lease), EAGAIN) << "half of it";
  ASSERT_EQ(pinion_try_acquire(domain_, memory.begin() + 10, 20, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(keys(lease).bytes, kPage);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(statistics().hits, 1u);
}

TEST_F(ApiTest, LeasesMoveBetweenThreadsAndPlaces) {
  start("retention=on-demand");
  Memory memory(4);
  auto lease = std::make_unique<pinion_lease>();
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, lease.get()), 0) << last_error();
  pinion_lease moved = *lease;
  lease.reset();
  std::thread([&] { EXPECT_EQ(pinion_release(&moved), 0) << last_error(); }).join();
  EXPECT_EQ(statistics().registered_bytes, 0u) << "on-demand: let go at the last release";
  EXPECT_EQ(statistics().deregistrations, 1u);
}

TEST_F(ApiTest, ThreadsShareRegistrations) {
  start("retention=leave-pinned");
  constexpr int kThreads = 4, kUses = 5000;
  constexpr std::size_t kPages = 64;
  Memory memory(kPages);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      for (int i = 0; i < kUses; ++i) {
        const std::size_t first = random() % kPages, count = 1 + random() % (kPages - first);
        pinion_lease lease;
        ASSERT_EQ(pinion_acquire(domain_, memory.page(first), count * kPage, kBoth, &lease), 0)
            << last_error();
        struct pinion_keys k {};
        k.size = sizeof k;
        ASSERT_EQ(pinion_lease_keys(&lease, &k), 0);
        const auto begin = reinterpret_cast<std::uintptr_t>(memory.page(first));
        ASSERT_LE(k.address, begin);
        ASSERT_GE(k.address + k.bytes, begin + count * kPage);
        ASSERT_EQ(pinion_release(&lease), 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto s = statistics();
  EXPECT_EQ(s.acquires, static_cast<std::uint64_t>(kThreads * kUses));
  EXPECT_EQ(s.bounced, 0u);
  EXPECT_LE(s.registered_bytes, memory.bytes());
  if (pinion::test::kKept) {
    EXPECT_EQ(s.registered_peak_bytes, s.registered_bytes) << "leave-pinned only grows";
    EXPECT_GT(s.hits, s.misses);
  }
}

TEST_F(ApiTest, ReadOnlyMemoryIsForReading) {
  start("retention=leave-pinned");
  Memory memory(2);
  ASSERT_EQ(::mprotect(memory.begin(), memory.bytes(), PROT_READ), 0);
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), kPage, PINION_ACCESS_WRITE, &lease), EFAULT)
      << last_error();
  EXPECT_FALSE(last_error().empty());
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, PINION_ACCESS_READ, &lease), 0) << last_error();
  EXPECT_FALSE(keys(lease).access & PINION_ACCESS_WRITE);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(statistics().bounced, 1u);
}

TEST_F(ApiTest, MemoryWithoutAnyRights) {
  start("retention=leave-pinned");
  Memory memory(4);
  ASSERT_EQ(::mprotect(memory.page(2), kPage, PROT_NONE), 0);
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), memory.bytes(), PINION_ACCESS_READ, &lease), EFAULT)
      << last_error();
  EXPECT_EQ(statistics().registered_bytes, 0u);
  EXPECT_GT(statistics().registration_failures, 0u);
  EXPECT_EQ(statistics().registered_peak_bytes, 0u) << "nothing was registered";
  EXPECT_EQ(statistics(nullptr).registered_peak_bytes, 0u);
  use(memory.begin(), 2 * kPage);
  EXPECT_EQ(statistics(nullptr).registered_peak_bytes, 2 * kPage);
}

// The kernel counts pages that neighbours share twice; both counts are in the log.
TEST_F(ApiTest, TheKernelsCountIsInTheLog) {
  NEEDS_KEPT_REGISTRATIONS();
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  constexpr std::size_t kBuffers = 256;
  Memory memory(kBuffers + 1);
  const std::uint64_t before = pinned_by_kernel();
  for (std::size_t i = 0; i < kBuffers; ++i) use(memory.page(i) + kPage / 2, kPage);
  const std::uint64_t kernel = pinned_by_kernel() - before;
  EXPECT_EQ(statistics().registered_peak_bytes, (kBuffers + 1) * kPage);
  ASSERT_EQ(pinion_stop(), 0);
  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  EXPECT_EQ(log.live.counters.registered_peak_bytes, (kBuffers + 1) * kPage);
  EXPECT_EQ(log.live.counters.kernel_pinned_peak_bytes, kernel);
  EXPECT_GE(kernel, (kBuffers + 1) * kPage);
  std::filesystem::remove_all(directory);
}

// An ordinary user, whose other processes have taken most of RLIMIT_MEMLOCK, which all of them share.
TEST_F(ApiTest, AnOrdinaryUserFailsSeldom) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized || ::geteuid() != 0) GTEST_SKIP() << "only root can become a user with a limit";
  in_child([] {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    const rlimit limit{8 * kMiB, 8 * kMiB};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
    const std::size_t pages = kMiB / kPage;
    Memory other(3 * pages), memory(16 * pages);
    // A device of the same kind outside of the engine's budget stands for another process.
    const auto others = pinion::make_pin_device();
    if (others
            ->register_range(pinion::Range::of(other.begin(), other.bytes()), pinion::Access::all,
                             pinion::Actor::application)
            .error)
      return 2;
    if (pinion_start("retention=leave-pinned") != 0) return 3;
    pinion_domain* domain = nullptr;
    if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 4;
    constexpr int kUses = 3000;
    for (int i = 0; i < kUses; ++i) {
      pinion_lease lease;
      if (pinion_acquire(domain, memory.begin() + static_cast<std::size_t>(i % 16) * kMiB, kMiB, kBoth,
                         &lease) == 0)
        pinion_release(&lease);
    }
    struct pinion_statistics s {};
    s.size = sizeof s;
    if (pinion_statistics(domain, &s) != 0 || s.acquires != kUses) return 5;
    // More is tried at intervals: by and by once a second.
    if (s.registration_failures > kUses / 10) return 6;
    return s.misses > kUses / 2 ? 0 : 7;
  });
}

TEST_F(ApiTest, ALeaseMayOutliveTheRun) {
  start("retention=leave-pinned");
  Memory memory(16);
  const std::uint64_t before = pinned_by_kernel();
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), memory.bytes(), kBoth, &lease), 0) << last_error();
  ASSERT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinned_by_kernel() - before, memory.bytes()) << "a transfer may be going on";
  EXPECT_EQ(keys(lease).bytes, memory.bytes());

  start("retention=leave-pinned");
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().misses, 1u) << "the new run knows nothing of the old lease";
  EXPECT_EQ(pinion_release(&lease), 0) << last_error();
  ASSERT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinned_by_kernel(), before);
}

// ---- memory events ----

TEST_F(ApiTest, UnmappedAndMappedAnew) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(8);
  char* const address = memory.begin();
  use(address, 8 * kPage);
  memory.unmap();
  Memory again(8, address);
  ASSERT_EQ(again.begin(), address);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, address, kPage, kBoth, &lease), EAGAIN);
  use(address, 8 * kPage);
  const auto s = statistics();
  EXPECT_EQ(s.misses, 2u);
  EXPECT_EQ(s.hits, 0u);
  EXPECT_EQ(s.registrations, 2u);
  EXPECT_EQ(s.registered_bytes, 8 * kPage);
}

TEST_F(ApiTest, UnmappedUnderALease) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(8);
  char* const address = memory.begin();
  pinion_lease lease, fresh;
  ASSERT_EQ(pinion_acquire(domain_, address, 8 * kPage, kBoth, &lease), 0) << last_error();
  const auto old_handle = keys(lease).handle;
  memory.unmap();
  Memory again(8, address);
  ASSERT_EQ(pinion_acquire(domain_, address, 8 * kPage, kBoth, &fresh), 0) << last_error();
  EXPECT_NE(keys(fresh).handle, old_handle);
  EXPECT_EQ(keys(lease).handle, old_handle) << "the transfer under the old lease goes on with its own pages";
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(pinion_release(&fresh), 0);
  EXPECT_TRUE(eventually([&] { return statistics().regions == 1; })) << "the old registration is let go";
}

TEST_F(ApiTest, FreedAndAllocatedAnew) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized) GTEST_SKIP() << "another allocator";
  start("retention=leave-pinned");
  constexpr std::size_t kBytes = std::size_t{64} << 20;  // beyond malloc's reserve
  // Another thread may take the place in between: the helper, for the arena of its first allocation.
  for (int attempt = 0; attempt < 10; ++attempt) {
    auto* first = static_cast<char*>(std::malloc(kBytes));
    ASSERT_NE(first, nullptr);
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    use(first, 1 << 20);
    std::free(first);
    auto* second = static_cast<char*>(std::malloc(kBytes));
    const bool same_place = reinterpret_cast<std::uintptr_t>(second) == address;
    const auto before = statistics();
    if (same_place) {
      use(second, 1 << 20);
      EXPECT_EQ(statistics().misses, before.misses + 1);
      EXPECT_EQ(statistics().hits, before.hits);
    }
    std::free(second);
    if (same_place) return;
  }
  FAIL() << "the test needs the same place twice";
}

TEST_F(ApiTest, BracketsForWhatLibcDoesNotShow) {
  start("retention=leave-pinned");
  Memory memory(8);
  char* const address = memory.begin();
  use(address, 8 * kPage);

  EXPECT_EQ(pinion_memory_begin(address, 8 * kPage), 0);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, address, kPage, kBoth, &lease), EAGAIN);
  EXPECT_EQ(pinion_acquire(domain_, address, kPage, kBoth, &lease), EAGAIN);
  expect_last_error({"being unmapped"});
  ASSERT_EQ(::syscall(SYS_munmap, address, memory.bytes()), 0);
  memory.forget();
  Memory again(8, address);
  EXPECT_EQ(pinion_memory_end(address, 8 * kPage), 0);

  use(address, 8 * kPage);
  const auto s = statistics();
  EXPECT_EQ(s.misses, 2u);
  EXPECT_EQ(s.bounced, 1u);
  EXPECT_EQ(s.registrations, 2u);
}

TEST_F(ApiTest, BracketsMayBeginBeforePinionRuns) {
  Memory memory(8);
  ASSERT_EQ(pinion_memory_begin(memory.begin(), memory.bytes()), 0);
  start("retention=leave-pinned");
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.page(2), kPage, kBoth, &lease), EAGAIN);
  ASSERT_EQ(pinion_memory_end(memory.begin(), memory.bytes()), 0);
  use(memory.page(2), kPage);
  EXPECT_EQ(statistics().misses, 1u);
}

TEST_F(ApiTest, AnEndWithoutABeginDoesNoHarm) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(2);
  EXPECT_EQ(pinion_memory_end(memory.begin(), kPage), 0);
  use(memory.begin(), kPage);
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().hits, 1u);
  EXPECT_EQ(pinion_memory_begin(nullptr, kPage), EINVAL);
  EXPECT_EQ(pinion_memory_begin(memory.begin(), 0), EINVAL);
  EXPECT_EQ(pinion_memory_end(memory.begin(), SIZE_MAX), EINVAL);
}

// ---- limits ----

TEST_F(ApiTest, BeyondTheLimitIsAnErrorAndNoLease) {
  start("retention=leave-pinned,limit=1M");
  const std::size_t quarter = (std::size_t{256} << 10) / kPage;
  Memory memory(8 * quarter);
  const std::uint64_t before = pinned_by_kernel();
  pinion_lease lease, held[4];
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), memory.bytes(), kBoth, &lease), ENOMEM);
  expect_last_error({"1 MiB", "--limit", "2 MiB more", "raise the limit"});
  EXPECT_EQ(pinion_release(&lease), EINVAL);

  for (std::size_t i = 0; i < 4; ++i) use(memory.page(i * quarter), quarter * kPage);
  for (std::size_t i = 0; i < 4; ++i)
    ASSERT_EQ(pinion_acquire(domain_, memory.page((4 + i) * quarter), quarter * kPage, kBoth, &held[i]), 0)
        << "idle memory makes room: " << last_error();
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), ENOMEM) << "all is in use";

  struct pinion_limits limits {};
  limits.size = sizeof limits;
  ASSERT_EQ(pinion_limits(&limits), 0);
  EXPECT_EQ(limits.bytes, 1u << 20);
  EXPECT_EQ(limits.bytes_in_use, 1u << 20);
  EXPECT_EQ(limits.regions_in_use, 4u);
  EXPECT_STREQ(limits.bytes_from, "--limit");
  EXPECT_EQ(pinned_by_kernel() - before, 1u << 20);

  const auto s = statistics();
  EXPECT_EQ(s.bounced, 2u);
  EXPECT_EQ(s.bounced_bytes, memory.bytes() + kPage);
  EXPECT_EQ(s.registered_peak_bytes, 1u << 20);
  for (pinion_lease& each : held) EXPECT_EQ(pinion_release(&each), 0);
}

TEST_F(ApiTest, LimitOfRegions) {
  start("retention=leave-pinned,limit-regions=2");
  Memory memory(8);
  pinion_lease a, b, c;
  ASSERT_EQ(pinion_acquire(domain_, memory.page(0), kPage, kBoth, &a), 0) << last_error();
  ASSERT_EQ(pinion_acquire(domain_, memory.page(2), kPage, kBoth, &b), 0) << last_error();
  EXPECT_EQ(pinion_acquire(domain_, memory.page(4), kPage, kBoth, &c), ENOMEM);
  expect_last_error({"2 regions"});
  EXPECT_EQ(pinion_release(&a), 0);
  ASSERT_EQ(pinion_acquire(domain_, memory.page(4), kPage, kBoth, &c), 0) << last_error();
  EXPECT_EQ(pinion_release(&b), 0);
  EXPECT_EQ(pinion_release(&c), 0);
}

// ---- retention ----

TEST_F(ApiTest, ObserveRegistersNothing) {
  start("retention=observe");
  Memory memory(8);
  const std::uint64_t before = pinned_by_kernel();
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &lease), EAGAIN);
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  struct pinion_keys k {};
  k.size = sizeof k;
  EXPECT_EQ(pinion_lease_keys(&lease, &k), ENODATA);
  expect_last_error({"observe"});
  EXPECT_EQ(pinned_by_kernel(), before);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(statistics().observed, 1u);
  EXPECT_EQ(statistics().registrations, 0u);
}

TEST_F(ApiTest, OnDemandKeepsNothing) {
  start("retention=on-demand");
  Memory memory(8);
  const std::uint64_t before = pinned_by_kernel();
  for (int i = 0; i < 3; ++i) use(memory.begin(), memory.bytes());
  EXPECT_EQ(statistics().misses, 3u);
  EXPECT_EQ(statistics().deregistrations, 3u);
  EXPECT_EQ(statistics().registered_bytes, 0u);
  EXPECT_EQ(statistics().registered_peak_bytes, memory.bytes());
  EXPECT_EQ(pinned_by_kernel(), before);
}

TEST_F(ApiTest, LeavePinnedKeepsAll) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(64);
  const std::uint64_t before = pinned_by_kernel();
  for (int round = 0; round < 2; ++round)
    for (std::size_t p = 0; p < 64; p += 4) use(memory.page(p), 4 * kPage);
  EXPECT_EQ(statistics().misses, 16u);
  EXPECT_EQ(statistics().hits, 16u);
  EXPECT_EQ(statistics().registered_bytes, 64 * kPage);
  EXPECT_EQ(pinned_by_kernel() - before, 64 * kPage);
}

TEST_F(ApiTest, LruKeepsItsSize) {
  NEEDS_KEPT_REGISTRATIONS();
  const std::size_t keep = 8 * kPage;
  start("retention=lru,lru-size=" + std::to_string(keep));
  Memory memory(64);
  for (std::size_t p = 0; p < 64; p += 2) {
    use(memory.page(p), kPage);
    EXPECT_LE(statistics().registered_bytes, keep + kPage);
  }
  EXPECT_EQ(statistics().misses, 32u);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, memory.page(0), kPage, kBoth, &lease), EAGAIN) << "the oldest went";
  ASSERT_EQ(pinion_try_acquire(domain_, memory.page(62), kPage, kBoth, &lease), 0) << "the newest stayed";
  EXPECT_EQ(pinion_release(&lease), 0);
}

TEST_F(ApiTest, TheHelperRegistersAheadOfAPeriodicUser) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=helper,device=emulated,nic=none");
  Memory memory(64);
  // Never sooner: uses that made up for lost time would leave `shortest` with their interval for good. Far
  // longer than a helper on busy cores wakes late: between nearer uses nothing is let go there, and rightly.
  const auto one_use = [&] {
    use(memory.begin(), memory.bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return statistics().registrations_ahead >= 3 && statistics().hits >= 3;
  };
  ASSERT_TRUE(eventually(one_use)) << statistics().registrations_ahead << " ahead, " << statistics().hits
                                   << " hits";
  const auto s = statistics();
  EXPECT_GT(s.registrations, s.misses) << "not all by this thread";
  EXPECT_GE(s.deregistrations, s.registrations_ahead) << "and let go in between";
}

TEST_F(ApiTest, TheHelperLetsGoWhatIsNotExpectedBack) {
  start("retention=helper");
  Memory memory(16);
  const std::uint64_t before = pinned_by_kernel();
  use(memory.begin(), memory.bytes());
  EXPECT_TRUE(eventually([&] { return statistics().registered_bytes == 0; }));
  EXPECT_EQ(pinned_by_kernel(), before);
}

// A use that is seen ends in a record with its call site; the log distinguishes them.
[[gnu::noinline]] int acquire_here(pinion_domain* domain, const Memory& memory, pinion_lease& lease) {
  const int error = pinion_acquire(domain, memory.begin(), kPage, kBoth, &lease);
  asm volatile("");
  return error;
}
[[gnu::noinline]] int acquire_there(pinion_domain* domain, const Memory& memory, pinion_lease& lease) {
  const int error = pinion_acquire(domain, memory.begin(), kPage, kBoth, &lease);
  asm volatile("" : : : "memory");
  return error;
}

TEST_F(ApiTest, CallSitesAreTheCallers) {
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  Memory memory(1);
  for (int i = 0; i < 6; ++i) {
    pinion_lease lease;
    ASSERT_EQ((i % 3 ? acquire_here : acquire_there)(domain_, memory, lease), 0) << last_error();
    ASSERT_EQ(pinion_release(&lease), 0);
  }
  ASSERT_EQ(pinion_stop(), 0);

  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  std::map<std::uint64_t, int> uses;
  for (const auto& event : log.events) {
    if (event.kind != pinion::runlog::EventKind::lease) continue;
    EXPECT_EQ(event.call, static_cast<std::uint8_t>(pinion::CallKind::api));
    ++uses[event.site];
  }
  ASSERT_EQ(uses.size(), 2u);
  for (const auto& site : log.sites) {
    ASSERT_GT(site.frame_count, 1u);
    const auto function =
        reinterpret_cast<std::uint64_t>(uses[site.hash] == 4 ? acquire_here : acquire_there);
    EXPECT_GT(site.frames[0], function) << "the innermost frame is the caller's";
    EXPECT_LT(site.frames[0], function + 512);
  }
  EXPECT_EQ(log.sites.size(), 2u);
  EXPECT_EQ(log.live.pinned_at_exit_bytes, 0u);
  std::filesystem::remove_all(directory);
}

// Memory that is used once and unmapped at once is gone before the helper reads its record.
TEST_F(ApiTest, MemoryThatGoesAtOnceIsHeardOf) {
  NEEDS_KEPT_REGISTRATIONS();
  constexpr std::size_t kUses = 20, kFar = std::size_t{4} << 20;  // events are looked at by 2 MB
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  auto* const room = static_cast<char*>(::mmap(nullptr, kUses * kFar, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(room, MAP_FAILED);
  for (std::size_t i = 0; i < kUses; ++i) {
    use(room + i * kFar, kPage);
    ASSERT_EQ(::munmap(room + i * kFar, kPage), 0);
  }
  ASSERT_EQ(pinion_stop(), 0);
  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  std::size_t heard = 0;
  for (const auto& event : log.events) {
    const std::uint64_t place = event.address - reinterpret_cast<std::uintptr_t>(room);
    heard += event.kind == pinion::runlog::EventKind::memory_event && event.bytes == kPage &&
             place < kUses * kFar && place % kFar == 0;
  }
  EXPECT_EQ(heard, kUses);
  ::munmap(room, kUses * kFar);
  std::filesystem::remove_all(directory);
}

// ---- structures that may grow, fork ----

TEST_F(ApiTest, StructuresOfOtherVersions) {
  start("retention=leave-pinned");
  Memory memory(1);
  use(memory.begin(), kPage);
  struct pinion_statistics s {};
  EXPECT_EQ(pinion_statistics(domain_, &s), EINVAL) << "size not set";
  expect_last_error({"size"});
  EXPECT_EQ(pinion_statistics(domain_, nullptr), EINVAL);
  EXPECT_EQ(pinion_limits(nullptr), EINVAL);

  // A caller that was compiled when there were only three fields.
  s = {};
  s.hits = 77;
  s.size = offsetof(struct pinion_statistics, hits);
  ASSERT_EQ(pinion_statistics(domain_, &s), 0);
  EXPECT_EQ(s.acquires, 1u);
  EXPECT_EQ(s.hits, 77u) << "beyond what the caller has";

  // A caller with fields that are newer than this library.
  struct Newer {
    struct pinion_limits known;
    std::uint64_t more = 77;
  } newer{};
  newer.known.size = sizeof newer;
  ASSERT_EQ(pinion_limits(&newer.known), 0);
  EXPECT_EQ(newer.known.size, sizeof(struct pinion_limits));
  EXPECT_EQ(newer.more, 77u);
}

TEST_F(ApiTest, AForkedChildIsInert) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(16);
  use(memory.page(8), kPage);
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  const std::uint64_t pinned = pinned_by_kernel();

  in_child([&] {
    pinion_lease own;
    if (pinion_acquire(domain_, memory.begin(), kPage, kBoth, &own) != ESHUTDOWN) return 1;
    if (last_error().find("forked") == std::string::npos) return 2;
    if (pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &own) != ESHUTDOWN) return 3;
    struct pinion_keys k {};
    k.size = sizeof k;
    if (pinion_lease_keys(&lease, &k) != ESHUTDOWN) return 4;
    if (pinion_release(&lease) != 0) return 5;
    if (pinned_by_kernel() != 0) return 6;
    if (pinion_stop() != EINVAL) return 7;  // the child cannot stop the parent's engine
    if (pinion_memory_begin(memory.begin(), kPage) != 0 || pinion_memory_end(memory.begin(), kPage) != 0)
      return 8;
    if (pinion_domain_close(domain_) != 0) return 9;
    return 0;
  });
  EXPECT_EQ(pinned_by_kernel(), pinned) << "the child has let nothing of the parent's go";
  use(memory.page(8), kPage);
  EXPECT_EQ(statistics().hits, 1u);
  EXPECT_EQ(pinion_release(&lease), 0);
}

// The program takes every descriptor for files of its own: ours, the child's copies of ours, and at the stop.
TEST_F(ApiTest, FilesOfTheProgramStayOpen) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized) GTEST_SKIP() << "no threads after a fork";
  const std::string directory = log_directory();
  Memory memory(64);
  in_child([&] {
    if (pinion_start(("retention=leave-pinned,log=" + directory).c_str()) != 0) return 1;
    pinion_domain* domain = nullptr;
    if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 2;
    const auto use_page = [&](std::size_t i) {
      pinion_lease lease;
      return pinion_acquire(domain, memory.page(i), kPage, kBoth, &lease) == 0 && pinion_release(&lease) == 0;
    };
    for (std::size_t i = 0; i < 32; i += 2)
      if (!use_page(i)) return 3;
    ::syscall(SYS_close_range, 3u, ~0u, 0u);
    const int file = ::memfd_create("the program's", MFD_CLOEXEC);
    constexpr int kNumbers = 1500;
    std::vector<int> taken;
    for (int number = 3; number < kNumbers; ++number)
      if (::dup2(file, number) == number) taken.push_back(number);
    struct stat expected {};
    ::fstat(file, &expected);
    const auto untouched = [&] {
      return std::all_of(taken.begin(), taken.end(), [&](int number) {
        struct stat found {};
        return ::fstat(number, &found) == 0 && found.st_ino == expected.st_ino && found.st_size == 0;
      });
    };
    const pid_t child = ::fork();
    if (child == 0) ::_exit(untouched() ? 0 : 1);
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 4;
    // The descriptors are gone, and the table is full: the program's own files stay as they are.
    use_page(33);
    if (!untouched()) return 5;
    ::close(taken.back());
    taken.pop_back();
    for (std::size_t i = 32; i < 64; i += 2)
      if (!use_page(i)) return 6;
    if (pinned_by_kernel() < 32 * kPage) return 7;
    if (pinion_domain_close(domain) != 0 || pinion_stop() != 0) return 8;
    return untouched() ? 0 : 9;
  });
  std::filesystem::remove_all(directory);
}

TEST_F(ApiTest, AForkedChildMayStartItsOwn) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized) GTEST_SKIP() << "no threads after a fork";
  start("retention=leave-pinned");
  Memory memory(16);
  use(memory.begin(), kPage);
  in_child([&] {
    if (pinion_start("retention=lru") != 0) return 1;
    pinion_domain* domain = nullptr;
    if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 2;
    pinion_lease lease;
    if (pinion_try_acquire(domain, memory.begin(), kPage, kBoth, &lease) != EAGAIN) return 3;
    if (pinion_acquire(domain, memory.begin(), kPage, kBoth, &lease) != 0) return 4;
    if (pinned_by_kernel() != kPage) return 5;
    if (pinion_release(&lease) != 0 || pinion_domain_close(domain) != 0 || pinion_stop() != 0) return 6;
    return pinned_by_kernel() == 0 ? 0 : 7;
  });
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().hits, 1u);
}

}  // namespace
