// Call sites against the compiler's own unwinder: with any contents of the cache, capture() must name the
// stack that an unwinding of this moment finds.
#include "callsite/call_site.h"

#include <alloca.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace pinion {
namespace {

#if defined(__clang__)
#define WITH_FRAME_POINTER [[gnu::noinline]]
#define WITHOUT_FRAME_POINTER [[gnu::noinline]]
#else
#define WITH_FRAME_POINTER \
  [[gnu::noinline, gnu::optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")]]
#define WITHOUT_FRAME_POINTER \
  [[gnu::noinline, gnu::optimize("omit-frame-pointer", "no-optimize-sibling-calls")]]
#endif

/// Keeps a call from becoming a jump, and a value from being known.
template <class T>
T opaque(T value) {
  asm volatile("" : "+r"(value)::"memory");
  return value;
}

std::vector<Address> listed(const CallFrames& frames) {
  return {frames.return_addresses, frames.return_addresses + frames.depth};
}

/// A thread's cache, and every stack that it has named so far.
class Observer {
 public:
  /// Captures, and checks the name against a fresh unwinding and against all earlier names.
  CallSite observe(const EntryFrame& entry) {
    const CallSite site = cache_->capture(entry);
    record(site, unwind_with_runtime(entry));
    return site;
  }
  void record(CallSite site, const CallFrames& truth) {
    const auto [known, fresh] = sites_.try_emplace(listed(truth), site);
    if (site == 0 || known->second != site) ++errors_;
    if (fresh && !stacks_.insert(site).second) ++errors_;  // another stack has this name
  }
  CallSiteCache& cache() { return *cache_; }
  int errors() const { return errors_; }
  std::size_t distinct() const { return sites_.size(); }

  /// Counts the sites without frames; the others must show the right ones.
  std::size_t unnamed() {
    std::size_t count = 0;
    for (const auto& [truth, site] : sites_) {
      CallFrames frames;
      if (!call_site_frames(site, frames)) {
        ++count;
      } else if (listed(frames) != truth) {
        ++errors_;
      }
    }
    return count;
  }

 private:
  std::unique_ptr<CallSiteCache> cache_{new CallSiteCache()};
  std::map<std::vector<Address>, CallSite> sites_;
  std::set<CallSite> stacks_;
  int errors_ = 0;
};

thread_local Observer* observer;

/// The interposed function of these tests.
[[gnu::noinline]] CallSite transfer() { return opaque(observer->observe(EntryFrame::here())); }

WITHOUT_FRAME_POINTER CallSite omitted_1() { return opaque(transfer()); }
WITHOUT_FRAME_POINTER CallSite omitted_2() { return opaque(transfer()); }
WITH_FRAME_POINTER CallSite kept_1() { return opaque(transfer()); }
WITH_FRAME_POINTER CallSite kept_2() { return opaque(transfer()); }
WITHOUT_FRAME_POINTER CallSite nested_1(CallSite (*f)()) { return opaque(f()); }
WITH_FRAME_POINTER CallSite nested_2(CallSite (*f)()) { return opaque(nested_1(f)); }
WITHOUT_FRAME_POINTER CallSite nested_3(CallSite (*f)()) { return opaque(nested_2(f)); }

/// Large aligned locals make the compiler realign the stack; with alloca or stack arguments besides, the
/// frame's address is then kept in memory.
WITHOUT_FRAME_POINTER CallSite realigned(std::size_t bytes, CallSite (*f)(), int, int, int, int, int,
                                         int spilled) {
  alignas(128) char wide[128];
  std::memset(wide, spilled, sizeof wide);
  char* dynamic = static_cast<char*>(alloca(bytes + 1));
  dynamic[bytes] = 1;
  opaque(dynamic);
  opaque(+wide);
  return opaque(f());
}

WITHOUT_FRAME_POINTER CallSite with_alloca(std::size_t bytes, CallSite (*f)()) {
  char* dynamic = static_cast<char*>(alloca(bytes + 1));
  dynamic[bytes] = 1;
  opaque(dynamic);
  return opaque(f());
}

[[gnu::noinline]] CallSite through_alloca(std::size_t outer, std::size_t inner, CallSite (*f)()) {
  char* dynamic = static_cast<char*>(alloca(outer + 1));
  dynamic[outer] = 1;
  opaque(dynamic);
  return opaque(with_alloca(inner, f));
}

WITHOUT_FRAME_POINTER CallSite recurse(int depth) {
  return opaque(depth == 0 ? transfer() : recurse(depth - 1));
}

class CallSiteTest : public ::testing::Test {
 protected:
  void SetUp() override { observer = &observer_; }
  void TearDown() override {
    EXPECT_EQ(observer_.errors(), 0);
    observer = nullptr;
  }
  Observer observer_;
};

TEST_F(CallSiteTest, SameCallerSameSite) {
  std::set<CallSite> sites;
  for (int i = 0; i < 1000; ++i) sites.insert(omitted_1());
  EXPECT_EQ(sites.size(), 1u);
  if (kCallSiteTemplates) {
    EXPECT_EQ(observer_.cache().unwinds(), 1u);
  }
}

TEST_F(CallSiteTest, DistinctCallersDistinctSites) {
  std::set<CallSite> sites;
  for (int i = 0; i < 10; ++i) {
    for (CallSite (*f)() : {omitted_1, omitted_2, kept_1, kept_2}) {
      sites.insert(f());
      sites.insert(nested_1(f));
      sites.insert(nested_2(f));
      sites.insert(nested_3(f));
    }
  }
  EXPECT_EQ(sites.size(), 16u);
  if (kCallSiteTemplates) {
    EXPECT_EQ(observer_.cache().unwinds(), 16u);
  }
}

TEST_F(CallSiteTest, ThreadsAgreeOnNames) {
  // Same frames from the thread's start function on, so other frames than here: compare threads with each
  // other.
  constexpr int kThreads = 4;
  CallSite sites[kThreads] = {};
  int errors[kThreads] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&sites, &errors, t] {
      Observer own;
      observer = &own;
      for (int i = 0; i < 2000; ++i) {
        sites[t] = nested_3(kept_1);
        nested_2(omitted_1);
        if (i % 100 == 0) invalidate_call_sites();
        CallFrames frames;
        if (!call_site_frames(sites[t], frames)) ++errors[t];
      }
      errors[t] += own.errors();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(errors[t], 0);
    EXPECT_EQ(sites[t], sites[0]);
  }
}

TEST_F(CallSiteTest, VaryingAllocaKeepsTheName) {
  std::set<CallSite> sites;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t outer = 0; outer < 2000; outer += 48) {
      for (std::size_t inner = 0; inner < 2000; inner += 112)
        sites.insert(through_alloca(outer, inner, kept_1));
    }
  }
  EXPECT_EQ(sites.size(), 1u);
}

// Stale slots: two callers of the same function reach it with the same stack pointer, but leave their return
// addresses at different places. Memory that the second does not write still holds the first one's.

WITHOUT_FRAME_POINTER CallSite transfer_below_alloca(std::size_t bytes) {
  opaque(static_cast<char*>(alloca(bytes + 1)));
  return opaque(transfer());
}
template <int Which>
[[gnu::noinline]] CallSite shift_alloca(std::size_t outer, std::size_t inner) {
  opaque(static_cast<char*>(alloca(outer + 1)));
  const CallSite site = transfer_below_alloca(inner);
  opaque(Which);  // keeps the instances from being folded into one
  return site;
}
template <int Which>
[[gnu::noinline]] CallSite shift_realigned(std::size_t outer, std::size_t inner) {
  opaque(static_cast<char*>(alloca(outer + 1)));
  const CallSite site = realigned(inner, omitted_1, 1, 2, 3, 4, 5, 6);
  opaque(Which);
  return site;
}
using Shift = CallSite (*)(std::size_t, std::size_t);

/// Lets two callers take turns, the second always higher on the stack by `difference`; the rest of a total
/// after the outer alloca goes to the inner one if this is to `compensate`. One call expression serves both:
/// they differ in themselves only, not in the frames above them.
[[gnu::noinline]] std::set<CallSite> take_turns(const Shift (&callers)[2], std::size_t difference,
                                                bool compensate) {
  constexpr std::size_t kTotal = 1024;
  std::set<CallSite> sites;
  std::size_t outer = kTotal;
  for (std::size_t turn = 0; outer >= difference; turn = opaque(turn + 1)) {
    sites.insert(callers[turn % 2](outer, compensate ? kTotal - outer : 0));
    if (turn % 2 == 0) outer -= difference;
  }
  return sites;
}

TEST_F(CallSiteTest, StaleSlotsInAllocatedStack) {
  // Without a check of the frame-pointer register the second caller would be taken for the first.
  EXPECT_EQ(take_turns({shift_alloca<1>, shift_alloca<2>}, 64, true).size(), 2u);
}

TEST_F(CallSiteTest, StaleSlotsInRealignedFrames) {
  // The second caller is higher by less than the alignment: the realigned frame is where it was.
  EXPECT_EQ(take_turns({shift_realigned<1>, shift_realigned<2>}, 16, false).size(), 2u);
}

[[gnu::noinline]] CallSite realigned_transfer(int, int, int, int, int, int, int stacked, int) {
  alignas(128) char record[128];
  std::memset(record, stacked, sizeof record);
  opaque(+record);
  const EntryFrame entry = EntryFrame::here();
  // The runtime meets this entry frame on its way, so it is the right one.
  EXPECT_GT(unwind_with_runtime(entry).depth, 1u);
  return opaque(observer->observe(entry));
}

TEST_F(CallSiteTest, RealignedWrapper) {
  std::set<CallSite> sites;
  for (std::size_t shift = 0; shift < 512; shift += 16) {
    opaque(static_cast<char*>(alloca(shift + 1)));
    sites.insert(realigned_transfer(1, 2, 3, 4, 5, 6, 7, 8));
  }
  EXPECT_EQ(sites.size(), 1u);
}

TEST_F(CallSiteTest, RecursionIsToldApartUpToTheLimit) {
  std::set<CallSite> shallow;
  for (int depth = 0; depth < 10; ++depth) shallow.insert(recurse(depth));
  EXPECT_EQ(shallow.size(), 10u);
  // Deeper than the limit all frames kept are the recursion's own.
  EXPECT_EQ(recurse(40), recurse(60));
}

TEST_F(CallSiteTest, FramesOfASite) {
  const CallSite site = nested_3(kept_2);
  CallFrames frames;
  ASSERT_TRUE(call_site_frames(site, frames));
  EXPECT_GE(frames.depth, 4u);
  EXPECT_LE(frames.depth, kMaxCallFrames);
  // The innermost return address lies in the wrapper's caller.
  const Address kept = reinterpret_cast<Address>(&kept_2);
  EXPECT_GT(frames.return_addresses[0], kept);
  EXPECT_LT(frames.return_addresses[0], kept + 256);
  EXPECT_FALSE(call_site_frames(site ^ 1, frames));
}

TEST_F(CallSiteTest, InvalidationForgetsTemplatesAndKeepsNames) {
  const auto again = [&]() __attribute__((noinline)) { return opaque(nested_2(omitted_2)); };
  CallFrames frames;
  std::set<CallSite> sites;
  for (int i = 0; i < 6; ++i) {
    if (i % 2 == 0) invalidate_call_sites();
    sites.insert(again());
    EXPECT_TRUE(call_site_frames(*sites.begin(), frames));
  }
  EXPECT_EQ(sites.size(), 1u);
  if (kCallSiteTemplates) {
    EXPECT_EQ(observer_.cache().unwinds(), 3u);
  }
}

#if defined(__x86_64__)

// A caller that keeps data in rbp, as code without frame pointers does.
extern "C" CallSite pinion_test_rbp_data(CallSite (*f)(), Address data);
asm(R"(
.pushsection .text
.type pinion_test_rbp_data, @function
pinion_test_rbp_data:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsi, %rbp
  call *%rdi
  pop %rbp
  .cfi_def_cfa_offset 8
  .cfi_restore %rbp
  ret
  .cfi_endproc
.size pinion_test_rbp_data, .-pinion_test_rbp_data
.popsection
)");

TEST_F(CallSiteTest, DataInTheFramePointerRegisterDoesNotMatter) {
  std::set<CallSite> sites;
  for (Address data = 0; data < 50; ++data) sites.insert(pinion_test_rbp_data(transfer, data));
  EXPECT_EQ(sites.size(), 1u);
  EXPECT_EQ(observer_.cache().unwinds(), 1u);
}

// A frame whose address hangs on rbx: no rule here describes it. The stack ends there, and is still one site.
extern "C" CallSite pinion_test_rbx_frame(CallSite (*f)());
asm(R"(
.pushsection .text
.type pinion_test_rbx_frame, @function
pinion_test_rbx_frame:
  .cfi_startproc
  push %rbx
  .cfi_def_cfa_offset 16
  .cfi_offset %rbx, -16
  mov %rsp, %rbx
  .cfi_def_cfa_register %rbx
  call *%rdi
  pop %rbx
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
.size pinion_test_rbx_frame, .-pinion_test_rbx_frame
.popsection
)");

[[gnu::noinline]] CallSite unobserved_transfer() {
  return opaque(observer->cache().capture(EntryFrame::here()));
}
[[gnu::noinline]] CallSite above_rbx_frame() { return opaque(unobserved_transfer()); }

TEST_F(CallSiteTest, StackEndsAtAnUndescribableFrame) {
  const CallSite site = pinion_test_rbx_frame(above_rbx_frame);
  EXPECT_EQ(pinion_test_rbx_frame(above_rbx_frame), site);
  CallFrames frames;
  ASSERT_TRUE(call_site_frames(site, frames));
  EXPECT_EQ(frames.depth, 2u);
}

#endif

// Signal handlers. They record, and the tests check: the checks allocate.

#if defined(__SANITIZE_THREAD__)
constexpr bool kHandlersRunOnTheirOwn = false;  // but under frames of the sanitizer, whenever it sees fit
#else
constexpr bool kHandlersRunOnTheirOwn = true;
#endif

CallSite handler_site;
CallFrames handler_truth;
volatile sig_atomic_t handler_runs;

[[gnu::noinline]] void transfer_in_handler() {
  const EntryFrame entry = EntryFrame::here();
  handler_site = observer->cache().capture(entry);
  handler_truth = unwind_with_runtime(entry);
  handler_runs = handler_runs + 1;
}

WITHOUT_FRAME_POINTER void on_signal(int number) {
  transfer_in_handler();
  opaque(number);
}

class HandlerScope {
 public:
  HandlerScope(int number, int flags) : number_(number) {
    stack_t stack{};
    stack.ss_sp = memory_.data();
    stack.ss_size = memory_.size();
    EXPECT_EQ(sigaltstack(&stack, nullptr), 0);
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = flags;
    EXPECT_EQ(sigaction(number, &action, &before_), 0);
    handler_runs = 0;
  }
  ~HandlerScope() {
    EXPECT_EQ(sigaction(number_, &before_, nullptr), 0);
    stack_t stack{};
    stack.ss_flags = SS_DISABLE;
    EXPECT_EQ(sigaltstack(&stack, nullptr), 0);
  }

 private:
  int number_;
  std::vector<char> memory_ = std::vector<char>(256 * 1024);
  struct sigaction before_ {};
};

TEST_F(CallSiteTest, SignalHandlers) {
  for (int i = 0; i < 10; ++i) {
    for (const int flags : {0, SA_ONSTACK}) {
      HandlerScope scope(SIGUSR1, flags);
      raise(SIGUSR1);
      ASSERT_EQ(handler_runs, 1);
      observer_.record(handler_site, handler_truth);
      if (kHandlersRunOnTheirOwn) {
        EXPECT_EQ(handler_truth.depth,
                  2u);  // the handler and its trampoline, without the interrupted code
      }
    }
  }
}

TEST_F(CallSiteTest, HandlersThatInterruptCaptures) {
  HandlerScope scope(SIGALRM, 0);
  const itimerval every{{0, 100}, {0, 100}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &every, nullptr), 0);
  const auto capture = []() __attribute__((noinline)) { return opaque(nested_1(omitted_1)); };
  std::set<CallSite> sites;
  for (int i = 0; handler_runs < 1000; ++i) {
    if (i % 3 == 0) invalidate_call_sites();
    sites.insert(capture());
  }
  const itimerval off{};
  ASSERT_EQ(setitimer(ITIMER_REAL, &off, nullptr), 0);
  EXPECT_EQ(sites.size(), 1u);
  observer_.record(handler_site, handler_truth);
}

// Fibers; not with sanitizers, which require an annotation of each switch.

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

class Fiber {
 public:
  explicit Fiber(CallSite (*f)()) {
    // The stack ends where the mapping ends: an unwinding or a verification that reads above it ends the
    // test.
    const std::size_t guard = page_size();
    memory_ = static_cast<char*>(
        mmap(nullptr, kBytes + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(mprotect(memory_ + kBytes, guard, PROT_NONE), 0);
    body_ = f;
    getcontext(&context_);
    context_.uc_stack.ss_sp = memory_;
    context_.uc_stack.ss_size = kBytes;
    context_.uc_link = &back_;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() { munmap(memory_, kBytes + page_size()); }

  /// Runs until the next yield; false when the body is through.
  bool resume() {
    Fiber* const outer = current_;
    current_ = this;
    swapcontext(&back_, &context_);
    current_ = outer;
    return !done_;
  }
  static void yield() { swapcontext(&current_->context_, &current_->back_); }

 private:
  static constexpr std::size_t kBytes = 256 * 1024;

  static void enter(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
    self->body_();
    self->done_ = true;
  }

  static inline Fiber* current_ = nullptr;
  char* memory_;
  ucontext_t context_;
  ucontext_t back_;
  CallSite (*body_)();
  bool done_ = false;
};

WITHOUT_FRAME_POINTER CallSite fiber_a() {
  CallSite site = nested_1(omitted_1);
  Fiber::yield();
  site ^= nested_3(kept_1);
  Fiber::yield();
  return opaque(site ^ with_alloca(100, kept_2));
}
WITH_FRAME_POINTER CallSite fiber_b() {
  CallSite site = nested_1(omitted_1);
  Fiber::yield();
  site ^= nested_3(kept_1);
  Fiber::yield();
  return opaque(site ^ with_alloca(400, kept_2));
}

TEST_F(CallSiteTest, FibersOnStacksThatComeAndGo) {
  for (int round = 0; round < 50; ++round) {
    // New stacks come to lie where those of the last round were, with other fibers on them.
    std::vector<std::unique_ptr<Fiber>> fibers;
    for (int i = 0; i < 6; ++i)
      fibers.push_back(std::make_unique<Fiber>((i + round) % 3 == 0 ? fiber_a : fiber_b));
    for (int step = 0; step < 3; ++step) {
      for (auto& fiber : fibers) fiber->resume();
      if (step == 1 && round % 2 == 0) fibers.erase(fibers.begin() + 2);  // abandoned in the middle
    }
  }
  EXPECT_EQ(observer_.distinct(), 6u);
}

#endif

// Random call trees.

struct Tree {
  std::mt19937 random{12345};
  int captures = 0;
  static constexpr int kCaptures = 120'000;

  std::size_t below(std::size_t n) { return random() % n; }
};

using Node = void (*)(Tree&, int);
void grow(Tree& tree, int depth);

WITHOUT_FRAME_POINTER void plain_node(Tree& tree, int depth) {
  grow(tree, depth);
  opaque(depth);
}
WITH_FRAME_POINTER void framed_node(Tree& tree, int depth) {
  grow(tree, depth);
  opaque(depth);
}
WITHOUT_FRAME_POINTER void alloca_node(Tree& tree, int depth) {
  opaque(static_cast<char*>(alloca(1 + 16 * tree.below(6))));
  grow(tree, depth);
  opaque(depth);
}
WITHOUT_FRAME_POINTER void spilling_node(Tree& tree, int depth) {
  // Enough live values across the call for every callee-saved register, rbp among them.
  const auto a = tree.below(9), b = tree.below(9), c = tree.below(9), d = tree.below(9), e = tree.below(9);
  grow(tree, depth);
  opaque(a + b);
  opaque(c + d + e);
  opaque(a ^ b ^ c ^ d ^ e ^ static_cast<std::size_t>(depth));
}
[[gnu::noinline]] void realigned_node_with_stacked(Tree& tree, int depth, int, int, int, int, int stacked,
                                                   int) {
  alignas(64) char wide[64];
  std::memset(wide, stacked, sizeof wide);
  opaque(+wide);
  opaque(static_cast<char*>(alloca(1 + 16 * tree.below(4))));
  grow(tree, depth);
  opaque(+wide);
}
WITHOUT_FRAME_POINTER void realigned_node(Tree& tree, int depth) {
  realigned_node_with_stacked(tree, depth, 1, 2, 3, 4, 5, 6);
  opaque(depth);
}
WITHOUT_FRAME_POINTER void catching_node(Tree& tree, int depth) {
  try {
    grow(tree, depth);
    if (tree.below(4) == 0) throw depth;
  } catch (int) {
    opaque(transfer());
  }
  opaque(depth);
}

// Inlined nowhere, so that all nodes are called from the same two places: stacks differ by the frames in
// between.
[[gnu::noinline]] void grow(Tree& tree, int depth) {
  static constexpr Node kNodes[] = {plain_node,    framed_node,    alloca_node,
                                    spilling_node, realigned_node, catching_node};
  const std::size_t children = 1 + tree.below(2);
  for (std::size_t i = 0; i < children && tree.captures < Tree::kCaptures; ++i) {
    if (depth == 0 || tree.below(5) == 0) {
      ++tree.captures;
      opaque(transfer());
    } else {
      kNodes[tree.below(std::size(kNodes))](tree, depth - 1);
    }
  }
}

TEST_F(CallSiteTest, RandomCallTrees) {
  Tree tree;
  while (tree.captures < Tree::kCaptures) {
    grow(tree, static_cast<int>(tree.below(7)));
    if (tree.below(5000) == 0) invalidate_call_sites();
  }
  EXPECT_GT(observer_.distinct(), 1000u);
  // The test is about hits as much as about unwinding.
  if (kCallSiteTemplates) {
    EXPECT_LT(observer_.cache().unwinds(), Tree::kCaptures * 9u / 10);
  }
  RecordProperty("distinct", static_cast<int>(observer_.distinct()));
  RecordProperty("unwinds", static_cast<int>(observer_.cache().unwinds()));
}

TEST_F(CallSiteTest, FullTableCostsOnlyNames) {
  Tree tree;
  while (observer_.distinct() <= kMaxNamedCallSites) {
    grow(tree, 12);
    tree.captures = 0;
  }
  EXPECT_GT(observer_.unnamed(), 0u);
  EXPECT_GT(unnamed_call_sites(), 0u);
}

}  // namespace
}  // namespace pinion
