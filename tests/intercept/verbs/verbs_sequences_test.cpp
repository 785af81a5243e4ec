// Random sequences of right and wrong calls to libibverbs, with the verbs front between them and a made-up
// library. A model has each call's expected result, and the expected registration behind each handle.
// PINION_TEST_SCALE multiplies the seeds.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/range.h"
#include "made_up_verbs.h"
#include "process/engine.h"
#include "support/deterministic_scheduler.h"
#include "support/in_child.h"
#include "support/sanitizers.h"

namespace pinion {
namespace {

constexpr int kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr std::size_t kPages = 64;

struct Registration {
  ibv_mr* mr = nullptr;
  ibv_pd* pd = nullptr;
  char* address = nullptr;
  std::size_t bytes = 0;
  int access = 0;
};

ibv_context* open_device() {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  ibv_context* const context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  return context;
}

/// One thread's objects: memory, protection domains, registrations.
class Program {
 public:
  explicit Program(unsigned seed) : random_(seed) {
    context_ = open_device();
    memory_ = static_cast<char*>(
        ::mmap(nullptr, kPages * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    domains_.push_back(ibv_alloc_pd(context_));
  }

  /// Makes one of the calls that concern this thread's own objects alone.
  void step() {
    switch (below(16)) {
      case 0:
        return alloc_domain();
      case 1:
        return dealloc_domain();
      case 2:
        return memory_changes();
      case 3:
        return wrong_arguments();
      case 4:
      case 5:
        return reregister();
      case 6:
      case 7:
      case 8:
      case 9:
        return deregister();
      default:
        return register_memory();
    }
  }
  /// Makes one of the calls that no other thread's may come between.
  void hostile_step() {
    switch (below(200)) {
      case 0:
        if (!kSanitized) forks();
        return;
      case 1:
      case 2:
        return close_device();
      case 3:
      case 4:
      case 5:
        return deregister_by_two();
      case 6:
      case 7:
        return storm();
      case 8:
      case 9:
        return reregister_by_two();
      case 10:
      case 11:
        return deregister_under_reregistration();
      default:
        if (below(8) == 0) return deregister_twice();
        return step();
    }
  }

  void forks() {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      for (const Registration& r : held_) ibv_dereg_mr(r.mr);
      const Registration r = choose();
      ibv_mr* const mr = (ibv_reg_mr)(r.pd, r.address, r.bytes, r.access);
      good = mr != nullptr && ibv_dereg_mr(mr) == 0;
      ::_exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  /// Behind each handle is the requested registration.
  void check() const {
    for (const Registration& r : held_) check(r);
  }

  void end() {
    while (!held_.empty()) deregister();
    for (ibv_pd* const pd : domains_) EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    ::munmap(memory_, kPages * page_size());
  }

  std::size_t reregistered() const { return reregistered_; }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  void check(const Registration& r) const {
    EXPECT_EQ(r.mr->addr, r.address);
    EXPECT_EQ(r.mr->length, r.bytes);
    EXPECT_EQ(r.mr->pd, r.pd);
    EXPECT_EQ(r.mr->context, r.pd->context);
    EXPECT_EQ(r.mr->lkey, r.mr->rkey);
    const auto region = made_up_verbs::find(r.mr->lkey);
    ASSERT_TRUE(region.has_value()) << "the key is dead";
    const auto begin = reinterpret_cast<std::uintptr_t>(r.address);
    EXPECT_EQ(region->pd, r.pd);
    EXPECT_LE(region->begin, begin);
    EXPECT_GE(region->begin + region->bytes, begin + r.bytes);
    EXPECT_EQ(region->access & kRemote, r.access & kRemote) << "peers have other rights";
    EXPECT_EQ(r.access & ~region->access, 0) << "rights are missing";
  }

  /// The key is of a registration that was made after each change of its memory.
  void check_fresh(const Registration& r) const {
    const auto region = made_up_verbs::find(r.mr->lkey);
    ASSERT_TRUE(region.has_value());
    for (const auto& [page, number] : changed_) {
      const bool meets = r.address < page + page_size() && page < r.address + r.bytes;
      EXPECT_TRUE(!meets || region->number > number) << "the registration is of memory that is gone";
    }
  }

  Registration choose() {
    Registration r;
    r.pd = domains_[below(domains_.size())];
    r.address = memory_ + below(kPages * page_size() - 1);
    const std::size_t most = static_cast<std::size_t>(memory_ + kPages * page_size() - r.address);
    r.bytes = 1 + below(std::min(most, page_size() << below(6)));
    constexpr int kinds[] = {0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ,
                             IBV_ACCESS_LOCAL_WRITE | kRemote, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND};
    r.access = kinds[below(std::size(kinds))];
    return r;
  }

  void keep(Registration r) {
    ASSERT_NE(r.mr, nullptr) << "errno " << errno;
    check(r);
    check_fresh(r);
    held_.push_back(r);
  }

  void register_memory() {
    if (held_.size() >= 24) return deregister();
    Registration r = choose();
    const auto address = reinterpret_cast<std::uintptr_t>(r.address);
    switch (below(4)) {
      case 0:
        r.mr = (ibv_reg_mr_iova)(r.pd, r.address, r.bytes, address, r.access);
        break;
      case 1:
        r.mr = ibv_reg_mr_iova2(r.pd, r.address, r.bytes, address, static_cast<unsigned>(r.access));
        break;
      case 2:  // another address for peers: the library's own affair
        r.mr = ibv_reg_mr_iova2(r.pd, r.address, r.bytes, 4096, static_cast<unsigned>(r.access));
        break;
      default:
        r.mr = (ibv_reg_mr)(r.pd, r.address, r.bytes, r.access);
    }
    keep(r);
  }

  Registration take_any() {
    const std::size_t i = below(held_.size());
    const Registration r = held_[i];
    held_[i] = held_.back();
    held_.pop_back();
    return r;
  }

  void deregister() {
    if (held_.empty()) return;
    EXPECT_EQ(ibv_dereg_mr(take_any().mr), 0);
  }

  void deregister_twice() {
    if (held_.empty()) return;
    const Registration r = take_any();
    EXPECT_EQ(ibv_dereg_mr(r.mr), 0);
    EXPECT_EQ(ibv_dereg_mr(r.mr), EINVAL);
    EXPECT_NE(ibv_rereg_mr(r.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  }

  void deregister_by_two() {
    if (held_.empty()) return;
    const Registration r = take_any();
    int results[2];
    std::thread other([&] { results[0] = ibv_dereg_mr(r.mr); });
    results[1] = ibv_dereg_mr(r.mr);
    other.join();
    EXPECT_EQ(results[0] + results[1], EINVAL) << results[0] << ' ' << results[1];
  }

  /// Both ask for the same: one may come too early, while the other has the handle.
  void reregister_by_two() {
    if (held_.empty()) return;
    Registration& r = held_[below(held_.size())];
    const Registration next = elsewhere(r);
    int results[2];
    std::thread other([&] { results[0] = reregister(next); });
    results[1] = reregister(next);
    other.join();
    if (results[0] != 0 && results[1] != 0) return check(r);
    r = next;
    check(r);
    check_fresh(r);
  }

  void deregister_under_reregistration() {
    if (held_.empty()) return;
    const Registration r = take_any();
    const Registration next = elsewhere(r);
    std::thread other([&] {
      for (int i = 0; i < 50; ++i) reregister(next);
    });
    const int meanwhile = ibv_dereg_mr(r.mr);
    other.join();
    EXPECT_EQ(meanwhile + ibv_dereg_mr(r.mr), EINVAL) << "ended " << (meanwhile == 0 ? "twice" : "never");
  }

  /// Registers other memory with other rights under the same handle.
  Registration elsewhere(const Registration& r) {
    Registration next = choose();
    next.mr = r.mr;
    next.pd = r.pd;
    return next;
  }
  static int reregister(const Registration& next) {
    return ibv_rereg_mr(next.mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, nullptr,
                        next.address, next.bytes, next.access);
  }

  void wrong_arguments() {
    errno = 0;
    const Registration r = choose();
    EXPECT_EQ((ibv_reg_mr)(r.pd, r.address, r.bytes, IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ((ibv_reg_mr)(r.pd, r.address, 0, IBV_ACCESS_LOCAL_WRITE), nullptr);
    // Made-up handles: the library's to judge.
    ibv_mr own{};
    EXPECT_EQ(ibv_dereg_mr(&own), EINVAL);
    if (!held_.empty()) {
      const auto within = reinterpret_cast<char*>(held_[below(held_.size())].mr) + 8;
      EXPECT_EQ(ibv_dereg_mr(reinterpret_cast<ibv_mr*>(within)), EINVAL);
    }
    EXPECT_EQ(ibv_dereg_mr(reinterpret_cast<ibv_mr*>(memory_)), EINVAL);
  }

  void reregister() {
    if (held_.empty()) return;
    Registration& r = held_[below(held_.size())];
    Registration next = choose();
    const int changes = static_cast<int>(1 + below(7));
    if ((changes & IBV_REREG_MR_CHANGE_PD) == 0 || next.pd->context != r.pd->context) next.pd = r.pd;
    if ((changes & IBV_REREG_MR_CHANGE_ACCESS) == 0) next.access = r.access;
    if ((changes & IBV_REREG_MR_CHANGE_TRANSLATION) == 0) {
      next.address = r.address;
      next.bytes = r.bytes;
    }
    next.mr = r.mr;
    const int access = (changes & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? next.access : 0;
    if (ibv_rereg_mr(r.mr, changes, next.pd, next.address, next.bytes, access) != 0) return check(r);
    ++reregistered_;
    r = next;
    check(r);
    check_fresh(r);
  }

  /// Registers anew and anew, and moves the registration in between.
  void storm() {
    Registration r = choose();
    for (int i = 0; i < 200; ++i) {
      r.mr = (ibv_reg_mr)(r.pd, r.address, r.bytes, r.access);
      ASSERT_NE(r.mr, nullptr);
      for (int moves = i % 4; moves > 0; --moves) {
        const Registration next = elsewhere(r);
        if (reregister(next) != 0) continue;
        r = next;
        check(r);
      }
      EXPECT_EQ(ibv_dereg_mr(r.mr), 0);
    }
  }

  void memory_changes() {
    char* const begin = memory_ + below(kPages) * page_size();
    const auto most = static_cast<std::size_t>(memory_ + kPages * page_size() - begin) / page_size();
    const std::size_t bytes = (1 + below(std::min<std::size_t>(most, 8))) * page_size();
    const std::uint64_t number = made_up_verbs::last_number();
    // At once: another thread's mapping could come between an unmapping and this.
    ASSERT_EQ(::mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              begin);
    for (char* page = begin; page < begin + bytes; page += page_size()) changed_[page] = number;
  }

  void alloc_domain() {
    if (domains_.size() < 3) domains_.push_back(ibv_alloc_pd(context_));
  }

  void dealloc_domain() {
    if (domains_.size() < 2) return;
    const std::size_t i = below(domains_.size());
    ibv_pd* const pd = domains_[i];
    bool used = false;
    for (const Registration& r : held_) used |= r.pd == pd;
    EXPECT_EQ(ibv_dealloc_pd(pd), used ? EBUSY : 0);
    if (!used) domains_.erase(domains_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void close_device() {
    EXPECT_EQ(ibv_close_device(context_), 0);
    for (const Registration& r : held_) EXPECT_EQ(ibv_dereg_mr(r.mr), EINVAL) << "it went with its device";
    held_.clear();
    context_ = open_device();
    domains_.assign(1, ibv_alloc_pd(context_));
  }

  std::mt19937 random_;
  ibv_context* context_ = nullptr;
  std::vector<ibv_pd*> domains_;
  char* memory_ = nullptr;
  std::vector<Registration> held_;
  std::map<char*, std::uint64_t> changed_;  ///< by page: the last registration before it changed
  std::size_t reregistered_ = 0;
};

/// Registrations and their counts are zero.
void expect_nothing_left() {
  EXPECT_EQ(made_up_verbs::held().regions, 0u) << "registrations are left over";
  const Engine* const engine = Engine::running();
  if (engine == nullptr) return;
  EXPECT_EQ(engine->budget().bytes(), 0u);
  EXPECT_EQ(engine->budget().regions(), 0u);
  EXPECT_EQ(engine->budget().leaving_bytes(), 0u);
  EXPECT_EQ(engine->budget().leaving_regions(), 0u);
}

/// In a process of its own: the engine starts with these options.
template <class F>
void with_options(const std::string& options, F&& f) {
  ::setenv("PINION", ("front=verbs," + options).c_str(), 1);
  test::in_child(f);
}

void play(const std::string& options) {
  const unsigned seeds = static_cast<unsigned>((kSanitized ? 1 : 2) * std::max(1., test::test_scale()));
  with_options(options, [&] {
    for (unsigned seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(options + ", seed " + std::to_string(seed));
      Program program(seed);
      for (int i = 0; i < (kSanitized ? 1000 : 3000) && !testing::Test::HasFailure(); ++i) {
        program.hostile_step();
        program.check();
      }
      EXPECT_GT(program.reregistered(), 0u);
      program.end();
      expect_nothing_left();
    }
  });
}

TEST(VerbsSequences, LeavePinned) { play("retention=leave-pinned,remote-keys=shared"); }
TEST(VerbsSequences, Helper) { play("retention=helper,minimum-gain=0,remote-keys=shared"); }
TEST(VerbsSequences, HelperUnderLimits) {
  play("retention=helper,minimum-gain=0,remote-keys=shared,limit=64K,limit-regions=8");
}
TEST(VerbsSequences, Lru) { play("retention=lru,remote-keys=shared,limit=128K"); }
TEST(VerbsSequences, OnDemand) { play("retention=on-demand,remote-keys=shared"); }
TEST(VerbsSequences, StrictKeys) { play("retention=helper,minimum-gain=0,remote-keys=strict"); }
TEST(VerbsSequences, Observe) { play("retention=observe,remote-keys=shared"); }

TEST(VerbsSequences, OfThreads) {
  with_options("retention=helper,minimum-gain=0,remote-keys=shared,limit=256K", [] {
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 3; ++seed) {
      threads.emplace_back([seed] {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Program program(seed);
        for (int i = 0; i < (kSanitized ? 500 : 2000) * test::test_scale(); ++i) {
          program.step();
          program.check();
        }
        program.end();
      });
    }
    for (std::thread& thread : threads) thread.join();
    expect_nothing_left();
  });
}

/// Children of a program whose threads register meanwhile have a libibverbs of their own, and end.
TEST(VerbsSequences, ForksBesideThreads) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's locks may be held in the child";
  with_options("retention=helper,minimum-gain=0,remote-keys=shared,limit=256K", [] {
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      threads.emplace_back([seed, &done] {
        Program program(seed);
        while (!done.load()) {
          program.step();
          program.check();
        }
        program.end();
      });
    }
    Program program(3);
    for (int i = 0; i < 20 * test::test_scale(); ++i) {
      for (int step = 0; step < 20; ++step) program.step();
      program.forks();
      program.check();
    }
    done = true;
    for (std::thread& thread : threads) thread.join();
    program.end();
    expect_nothing_left();
  });
}

TEST(VerbsSequences, ManyRegistrationsAtATime) {
  with_options("retention=helper,minimum-gain=0,remote-keys=shared", [] {
    // More than the table has places for.
    constexpr std::size_t kMany = kSanitized ? 10'000 : 100'000;
    // Every other page: each stays by itself.
    char* const memory = static_cast<char*>(::mmap(nullptr, 2 * kMany * page_size(), PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ibv_context* const context = open_device();
    ibv_pd* const pd = ibv_alloc_pd(context);
    std::vector<ibv_mr*> all;
    for (std::size_t i = 0; i < kMany; ++i) {
      all.push_back((ibv_reg_mr)(pd, memory + 2 * i * page_size(), 100, IBV_ACCESS_LOCAL_WRITE));
      ASSERT_NE(all.back(), nullptr) << i;
    }
    EXPECT_EQ(made_up_verbs::held().regions, kMany);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    for (ibv_mr* const mr : all) ASSERT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    expect_nothing_left();
    EXPECT_EQ(ibv_close_device(context), 0);
  });
}

}  // namespace
}  // namespace pinion
