// Limits below libraries: Pinion's kept regions stay within them, and the program's excess is counted. And
// the keys of peers that outlive their registration. Over a made-up libibverbs, which counts its
// registrations.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "made_up_verbs.h"
#include "process/engine.h"
#include "runlog/analysis.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

constexpr std::size_t kKilo = 1024, kMega = kKilo * kKilo;
constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
constexpr int kForPeers = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

/// A program with one protection domain, and buffers that never overlap.
class Program {
 public:
  Program() {
    int count = 0;
    context_ = ibv_open_device(ibv_get_device_list(&count)[0]);
    pd_ = ibv_alloc_pd(context_);
  }
  char* buffer(std::size_t bytes) const {
    void* const memory =
        ::mmap(nullptr, bytes + page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return static_cast<char*>(memory);
  }
  std::vector<char*> buffers(std::size_t n, std::size_t bytes) const {
    std::vector<char*> all;
    for (std::size_t i = 0; i < n; ++i) all.push_back(buffer(bytes));
    return all;
  }
  ibv_mr* add(char* memory, std::size_t bytes, int access = kLocal) const {
    ibv_mr* const mr = (ibv_reg_mr)(pd_, memory, bytes, access);
    EXPECT_NE(mr, nullptr);
    return mr;
  }
  void drop(ibv_mr* mr) const { EXPECT_EQ(ibv_dereg_mr(mr), 0); }
  void use(char* memory, std::size_t bytes, int access = kLocal) const { drop(add(memory, bytes, access)); }
  int free_domain() const { return ibv_dealloc_pd(pd_); }

 private:
  ibv_context* context_;
  ibv_pd* pd_;
};

/// Runs `f(const Program&)` in a process of its own, whose engine has these options, and returns its report.
/// Keys outlive their registration, unless the options say otherwise.
template <class F>
runlog::Report run(const std::string& options, F&& f) {
  const TemporaryDirectory directory;
  const std::string log = directory.path();
  ::setenv("PINION", ("front=verbs,remote-keys=shared,log=" + log + "," + options).c_str(), 1);
  test::in_child([&] {
    f(Program());
    Engine::stop();
  });
  runlog::Report report;
  const Error error = runlog::analyse({log}, report);
  EXPECT_FALSE(error) << error.message;
  return report;
}

constexpr std::size_t kBuffer = 128 * kKilo;

void use_in_turn(const Program& program) {
  const auto buffers = program.buffers(8, kBuffer);
  for (int i = 0; i < 400; ++i) {
    program.use(buffers[static_cast<std::size_t>(i) % buffers.size()], kBuffer);
    if (i % 8 == 0) ::usleep(200);
  }
}

TEST(VerbsLimits, WhatIsKeptStaysWithinThem) {
  for (const char* const retention : {"leave-pinned", "lru", "helper"}) {
    for (const char* const limit : {"limit=512K", "node-limit=512K", "limit-regions=4"}) {
      const runlog::Report report =
          run(std::string("retention=") + retention + "," + limit, [](const Program& program) {
            use_in_turn(program);
            EXPECT_LE(made_up_verbs::take_peak().bytes, 4 * kBuffer);
          });
      ASSERT_FALSE(HasFailure()) << retention << ' '
                                 << limit;  // of which each further child would have a copy
      EXPECT_EQ(report.beyond.bytes, 0u) << retention << ' ' << limit;
      EXPECT_EQ(report.beyond.regions, 0u) << retention << ' ' << limit;
      EXPECT_EQ(report.acquires.bounced, 0u) << retention << ' ' << limit;
    }
  }
}

TEST(VerbsLimits, TheProgramExceedsThemAndTheReportSaysSo) {
  const runlog::Report report = run("retention=leave-pinned,limit=512K", [](const Program& program) {
    std::vector<ibv_mr*> held;
    for (char* const buffer : program.buffers(6, kBuffer)) held.push_back(program.add(buffer, kBuffer));
    EXPECT_EQ(made_up_verbs::take_peak().bytes, 6 * kBuffer);
    ::usleep(5000);
    for (ibv_mr* const mr : held) program.drop(mr);
    EXPECT_LE(made_up_verbs::held().bytes, 4 * kBuffer);
  });
  EXPECT_EQ(report.beyond.bytes, 2 * kBuffer);
  EXPECT_EQ(report.beyond.regions, 0u);
  EXPECT_GE(report.beyond.seconds, .004);

  const runlog::Report regions = run("retention=leave-pinned,limit-regions=4", [](const Program& program) {
    std::vector<ibv_mr*> held;
    for (char* const buffer : program.buffers(6, kBuffer)) held.push_back(program.add(buffer, kBuffer));
    for (ibv_mr* const mr : held) program.drop(mr);
  });
  EXPECT_EQ(regions.beyond.regions, 2u);
  EXPECT_EQ(regions.beyond.bytes, 0u);
}

TEST(VerbsLimits, WhatPassesByCounts) {
  const runlog::Report report = run("retention=leave-pinned,limit=512K", [](const Program& program) {
    for (char* const buffer : program.buffers(4, kBuffer)) program.use(buffer, kBuffer);
    EXPECT_EQ(made_up_verbs::take_peak().bytes, 4 * kBuffer) << "they are kept";
    // Kinds that Pinion always leaves to the library.
    constexpr int kWindow = kLocal | IBV_ACCESS_MW_BIND;
    ibv_mr* const window = program.add(program.buffer(kBuffer), kBuffer, kWindow);
    ibv_mr* const larger = program.add(program.buffer(2 * kBuffer), 2 * kBuffer, kWindow);
    EXPECT_EQ(made_up_verbs::take_peak().bytes, 4 * kBuffer) << "what is idle has made way before";
    for (char* const buffer : program.buffers(4, kBuffer)) program.use(buffer, kBuffer);
    EXPECT_EQ(made_up_verbs::take_peak().bytes, 4 * kBuffer) << "what passed by counts";
    program.drop(window);
    program.drop(larger);
    for (char* const buffer : program.buffers(4, kBuffer)) program.use(buffer, kBuffer);
    EXPECT_EQ(made_up_verbs::take_peak().bytes, 4 * kBuffer);
    EXPECT_EQ(made_up_verbs::held().bytes, 4 * kBuffer) << "it counts no longer";
  });
  EXPECT_EQ(report.beyond.bytes, 0u);
}

/// While another thread deregisters the one region that there may be.
void use_while_another_leaves(const Program& program) {
  static std::atomic<bool> slow{false}, began{false};
  made_up_verbs::at_calls([](const char* function) {
    if (!slow || std::string_view(function) != "ibv_dereg_mr") return;
    began = true;
    ::usleep(20'000);
  });
  char* const first = program.buffer(kBuffer);
  char* const second = program.buffer(kBuffer);
  for (int i = 0; i < 3; ++i) {
    ibv_mr* const mr = program.add(first, kBuffer);
    slow = true;
    std::thread other([&] { program.drop(mr); });
    while (!began) std::this_thread::yield();
    slow = began = false;
    program.use(second, kBuffer);
    other.join();
  }
  EXPECT_EQ(made_up_verbs::take_peak().regions, 1u);
}

TEST(VerbsLimits, ARegistrationWaitsForRoomThatIsComing) {
  const runlog::Report report = run("retention=on-demand,limit-regions=1", use_while_another_leaves);
  EXPECT_EQ(report.beyond.regions, 0u);
  EXPECT_EQ(report.acquires.bounced, 0u);
}

TEST(VerbsLimits, ARegistrationWaitsForRoomThatTheSystemGetsBack) {
  run("retention=on-demand", [](const Program& program) {
    made_up_verbs::limit_regions(1);
    use_while_another_leaves(program);
  });
}

// The thread of another protection domain lets an idle region of this one go, as the limit has no room for
// both: a program that frees this one meanwhile is unaffected.
TEST(VerbsLimits, AProtectionDomainIsFreedWhileAnotherThreadEvictsItsRegion) {
  run("retention=leave-pinned,limit-regions=1", [](const Program& program) {
    static std::atomic<bool> slow{false}, began{false};
    made_up_verbs::at_calls([](const char* function) {
      if (std::string_view(function) != "ibv_dereg_mr" || !slow.exchange(false)) return;
      began = true;
      ::usleep(100'000);
    });
    const Program other;
    char* const first = program.buffer(kBuffer);
    char* const second = other.buffer(kBuffer);
    program.use(first, kBuffer);
    slow = true;
    std::thread evicts([&] { other.use(second, kBuffer); });
    while (!began) std::this_thread::yield();
    EXPECT_EQ(program.free_domain(), 0);
    evicts.join();
  });
}

/// Half of the time the program has it registered.
void use_for_peers(const Program& program) {
  char* const memory = program.buffer(kMega);
  for (int i = 0; i < 3; ++i) {
    ibv_mr* const mr = program.add(memory, kMega, kForPeers);
    ::usleep(5000);
    program.drop(mr);
    ::usleep(5000);
  }
}

TEST(VerbsLimits, RegistrationsThatArePassedOnAreCountedByTheirReasons) {
  const auto passed = [](const runlog::Report& report, runlog::PassedFor why) {
    return report.passed.by[static_cast<int>(why)];
  };
  const runlog::Report strict = run("retention=leave-pinned,remote-keys=strict", use_for_peers);
  EXPECT_EQ(passed(strict, runlog::PassedFor::keys).count, 3u);
  EXPECT_EQ(passed(strict, runlog::PassedFor::keys).bytes, 3 * kMega);
  EXPECT_EQ(strict.passed.all().count, 3u);

  const runlog::Report windows = run("retention=leave-pinned,remote-keys=shared", [](const Program& program) {
    char* const memory = program.buffer(kMega);
    program.use(memory, kMega);
    program.drop(program.add(memory, kMega, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
  });
  EXPECT_EQ(passed(windows, runlog::PassedFor::kind).count, 1u);
  EXPECT_EQ(windows.passed.all().count, 1u) << "the other one was answered";

  const runlog::Report full = run("retention=leave-pinned,limit-regions=1", [](const Program& program) {
    ibv_mr* const first = program.add(program.buffer(kMega), kMega);
    ibv_mr* const second = program.add(program.buffer(kBuffer), kBuffer);
    program.drop(second);
    program.drop(first);
  });
  EXPECT_EQ(passed(full, runlog::PassedFor::room).count, 1u);
  EXPECT_EQ(passed(full, runlog::PassedFor::room).bytes, kBuffer);
}

TEST(VerbsLimits, KeysThatOutliveTheirRegistrationAreCounted) {
  const runlog::Report shared = run("retention=leave-pinned,remote-keys=shared", use_for_peers);
  EXPECT_GE(shared.keys.exposed_byte_seconds, static_cast<double>(kMega) * .01);
  EXPECT_LE(shared.keys.exposed_byte_seconds, static_cast<double>(kMega) * (shared.wall_seconds - .014))
      << "the program had it registered";
  EXPECT_GT(shared.keys.strict_seconds, 0) << "what strict keys would take";

  const runlog::Report strict = run("retention=leave-pinned,remote-keys=strict", use_for_peers);
  EXPECT_EQ(strict.keys.exposed_byte_seconds, 0);
  EXPECT_GT(strict.keys.strict_seconds, 0) << "what they took";

  const runlog::Report ends = run("retention=on-demand,remote-keys=shared", use_for_peers);
  EXPECT_EQ(ends.keys.exposed_byte_seconds, 0) << "each key ends with its registration";

  const runlog::Report local = run("retention=leave-pinned,remote-keys=shared", use_in_turn);
  EXPECT_EQ(local.keys.exposed_byte_seconds, 0) << "no key is of use to peers";
  EXPECT_EQ(local.keys.strict_seconds, 0);
}

}  // namespace
}  // namespace pinion
