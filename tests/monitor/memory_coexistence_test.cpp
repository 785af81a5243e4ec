// Other libraries' memory hooks and Pinion's in one process: UCX's (ucm, in both of its ways to hook) and
// Open MPI's patcher, the real ones, loaded before Pinion's hooks and after, alone and together. Each case
// checks the contents of transfers (support/ring_device.h), and that the other libraries still receive each
// event.
//
// A process is patched once, so each case is a process of its own (a death test that is to exit with 0): a
// crash, an endless recursion or a deadlock when libraries are closed or at exit fails it as well.
//
// The others disturb each other without Pinion, too: UCX by relocation misses libc's internal calls, and Open
// MPI's patcher takes UCX's place where it comes later. So their events are counted first in a process
// without Pinion; with it they must receive as many.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "monitor/hook_self_test.h"
#include "monitor/libc_hooks.h"
#include "support/sanitizers.h"
#include "support/transfer_engine.h"

#if __has_include(<ucm/api/ucm.h>)
extern "C" {
#include <ucm/api/ucm.h>
}
#endif

namespace pinion::test {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

// ---- the others: loaded at run time, each counts the events that it receives of `watched` ----

struct {
  std::atomic<Address> begin{0}, end{0};
  void set(Range range) {
    begin.store(range.begin);
    end.store(range.end);
  }
  bool touched_by(const void* address, std::size_t bytes) const {
    return Range::of(address, bytes).overlaps({begin.load(), end.load()});
  }
} constinit watched;

std::atomic<int> ucx_heard{0}, open_mpi_heard{0};

template <class F>
F function(void* library, const char* name) {
  return reinterpret_cast<F>(::dlsym(library, name));
}

void* load(const char* name) { return ::dlopen(name, RTLD_NOW | RTLD_GLOBAL); }

#if __has_include(<ucm/api/ucm.h>)
void load_ucx(const char* mode) {
  ::setenv("UCX_MEM_MMAP_HOOK_MODE", mode, 1);
  ASSERT_NE(load("libucs.so.0"), nullptr);  // reads UCX's settings, and hands those for ucm on
  const auto set_handler =
      function<decltype(&ucm_set_event_handler)>(load("libucm.so.0"), "ucm_set_event_handler");
  ASSERT_NE(set_handler, nullptr);
  const auto hear = [](ucm_event_type_t, ucm_event_t* event, void*) {
    if (watched.touched_by(event->vm_unmapped.address, event->vm_unmapped.size)) ++ucx_heard;
  };
  ASSERT_EQ(set_handler(UCM_EVENT_VM_UNMAPPED, 1000, hear, nullptr), UCS_OK);
}
#else
void load_ucx(const char*) {}
#endif

bool has_open_mpi() { return ::access("/usr/bin/ompi_info", X_OK) == 0; }
void load_open_mpi() {
  ::setenv("OMPI_MCA_mpi_leave_pinned", "1", 1);
  ::setenv("OMPI_MCA_pml", "ob1", 1);
  ::setenv("OMPI_MCA_btl", "self,vader", 1);
  // UCX by relocation replaces malloc as well, and takes blocks from before for its own: it aborts when hwloc
  // closes the libraries of its plugins, also where Pinion's hooks have been taken away.
  ::setenv("HWLOC_PLUGINS_PATH", "/nowhere", 1);
  // Without a daemon of its own, whose start may fail or hang beside other jobs.
  ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
  // Such singletons share a folder, which each removes as it ends.
  ::setenv("OMPI_MCA_orte_create_session_dirs", "0", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  void* const mpi = load("libmpi.so.40");
  ASSERT_NE(mpi, nullptr) << ::dlerror();
  ASSERT_EQ(function<int (*)(int*, char***)>(mpi, "MPI_Init")(nullptr, nullptr), 0);
  void* portable = load("libopen-pal.so.80");  // of Open MPI 5
  if (portable == nullptr) portable = load("libopen-pal.so.40");
  ASSERT_NE(portable, nullptr) << ::dlerror();
  using Callback = void (*)(void*, std::size_t, void*, bool);
  const Callback hear = [](void* address, std::size_t bytes, void*, bool) {
    if (watched.touched_by(address, bytes)) ++open_mpi_heard;
  };
  // Parts of Open MPI that have a registration cache do this: the patcher comes with the framework "memory".
  const auto open_framework = function<int (*)(void*, int)>(portable, "mca_base_framework_open");
  ASSERT_EQ(open_framework(::dlsym(portable, "opal_memory_base_framework"), 0), 0);
  ASSERT_NE(function<int (*)()>(portable, "opal_mem_hooks_support_level")(), 0);
  ASSERT_EQ(function<int (*)(Callback, void*)>(portable, "opal_mem_hooks_register_release")(hear, nullptr),
            0);
}
void leave_open_mpi() { function<int (*)()>(load("libmpi.so.40"), "MPI_Finalize")(); }

// ---- cases ----

struct Case {
  const char* ucx = nullptr;  ///< its way to hook
  bool open_mpi = false;
  enum class Moment { before, after } moment = Moment::before;  ///< of Pinion's hooks
};

void load(const Case& c) {
  if (c.ucx) load_ucx(c.ucx);
  if (c.open_mpi) load_open_mpi();
}

/// The ways for memory to go that are tried.
enum Way { kUnmap, kDrop, kFree, kWays };

/// Notes which libraries learn of each change.
struct Hearing {
  bool ucx[kWays] = {}, open_mpi[kWays] = {};
};

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

Range map(Address wish = 0) {
  return Range::of(::mmap(pointer(wish), kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                   kBytes);
}

Range whole_pages_in(void* block) {
  const Range all = Range::of(block, kBytes);
  return {page_ceil(all.begin), page_floor(all.end)};
}

/// Lets memory go, and notes the libraries that received the event.
template <class Event>
void let_go(Way way, Range memory, Hearing& hearing, Event&& event) {
  watched.set(memory);
  const int ucx = ucx_heard, open_mpi = open_mpi_heard;
  event();
  watched.set({});
  hearing.ucx[way] = ucx_heard > ucx;
  hearing.open_mpi[way] = open_mpi_heard > open_mpi;
}

/// Each way for memory to go, over and over at the same place. `transfer(memory, stamp)` comes before each.
template <class Transfer>
Hearing use_memory(Transfer&& transfer) {
  Hearing hearing;
  const Range memory = map();
  for (std::uint64_t round = 10; round < 20; ++round) {
    transfer(memory, round);
    let_go(kUnmap, memory, hearing, [&] { ::munmap(pointer(memory.begin), kBytes); });
    EXPECT_EQ(map(memory.begin), memory);
    transfer(memory, ~round);
    let_go(kDrop, memory, hearing, [&] { ::madvise(pointer(memory.begin), kBytes, MADV_DONTNEED); });
  }
  void* before = nullptr;
  int same_place = 0;
  for (std::uint64_t round = 20; round < 30; ++round) {
    void* const block = std::malloc(kBytes);
    same_place += block == before;
    before = block;
    const Range inside = whole_pages_in(block);
    transfer(inside, round);
    let_go(kFree, inside, hearing, [&] { std::free(block); });
  }
  EXPECT_GE(same_place, 8);
  return hearing;
}

/// The others' events without Pinion: in a child, as a process is patched once.
Hearing hearing_alone(const Case& c) {
  void* const shared =
      ::mmap(nullptr, sizeof(Hearing), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    load(c);
    *static_cast<Hearing*>(shared) = use_memory([](Range, std::uint64_t) {});
    if (c.open_mpi) leave_open_mpi();
    ::_exit(::testing::Test::HasFailure());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the other libraries do not get along by themselves";
  return *static_cast<Hearing*>(shared);
}

class Coexistence {
 public:
  explicit Coexistence(const Case& c) : case_(c) {}

  void run() {
    ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
    const Hearing alone = hearing_alone(case_);
    if (case_.moment == Case::Moment::before) load(case_);
    {
      TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
      ring_ = &ring;
      if (case_.moment == Case::Moment::after) load_between_acquire_and_hit();
      const Hearing together =
          use_memory([this](Range memory, std::uint64_t stamp) { transfer(memory, stamp); });
      int heard_alone = 0;
      for (int way = 0; way < kWays; ++way) {
        EXPECT_GE(together.ucx[way], alone.ucx[way]) << "UCX is deaf to way " << way;
        EXPECT_GE(together.open_mpi[way], alone.open_mpi[way]) << "Open MPI is deaf to way " << way;
        heard_alone += alone.ucx[way] + alone.open_mpi[way];
      }
      EXPECT_GT(heard_alone, 0) << "the others hear nothing: they do not hook";
      const HookReport events = test_memory_events();
      EXPECT_TRUE(events.complete) << events.error.message;
      expect_hits();
    }
    if (case_.open_mpi) leave_open_mpi();
  }

 private:
  void transfer(Range memory, std::uint64_t stamp) {
    fill(memory, stamp);
    expect_transfers(*ring_, ring_->acquire(memory), wire_, memory, stamp);
  }

  /// Memory is registered and idle; the others come; it goes, and other memory is at its place.
  void load_between_acquire_and_hit() {
    const Range mapped = map();
    void* const block = std::malloc(kBytes);
    const Range inside = whole_pages_in(block);
    transfer(mapped, 1);
    transfer(inside, 1);
    load(case_);
    ::munmap(pointer(mapped.begin), kBytes);
    ASSERT_EQ(map(mapped.begin), mapped);
    transfer(mapped, 2);
    std::free(block);
    void* const again = std::malloc(kBytes);
    if (again == block) transfer(inside, 3);
    std::free(again);
    ::munmap(pointer(mapped.begin), kBytes);
  }

  /// Untouched memory stays registered: sight has come back.
  void expect_hits() {
    const Range memory = map();
    ring_->acquire(memory).release();
    const auto before = ring_->counters().hits;
    ring_->acquire(memory).release();
    EXPECT_EQ(ring_->counters().hits, before + 1);
  }

  const Case case_;
  Wire wire_{kBytes};
  TransferEngine* ring_ = nullptr;
};

[[noreturn]] void run_and_exit(const Case& c) {
  Coexistence(c).run();
  const ::testing::TestResult& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  // All that is shown of this process is its standard error.
  for (int i = 0; i < result.total_part_count(); ++i) {
    const ::testing::TestPartResult& part = result.GetTestPartResult(i);
    std::fprintf(stderr, "line %d: %s\n", part.line_number(), part.message());
  }
  std::exit(result.Failed() ? 1 : 0);
}

/// UCX 1.18 by relocation takes blocks from before for its own, and aborts as it is loaded into a process of
/// Debian 13.
bool ucx_aborts_alone(const char* mode) {
  const pid_t child = ::fork();
  if (child == 0) {
    load_ucx(mode);
    ::_exit(0);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

class HooksBeside : public ::testing::TestWithParam<Case> {};

TEST_P(HooksBeside, EveryoneSeesEveryEvent) {
  const Case& c = GetParam();
  if (kSanitized) GTEST_SKIP() << "sanitizers patch libc themselves";
  if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  if (c.open_mpi && !has_open_mpi()) GTEST_SKIP() << "Open MPI is not installed";
  if (c.ucx && ::access("/usr/include/ucm/api/ucm.h", R_OK) != 0) GTEST_SKIP() << "UCX is not installed";
  if (c.ucx && ucx_aborts_alone(c.ucx)) GTEST_SKIP() << "UCX by this way aborts without Pinion too";
  EXPECT_EXIT(run_and_exit(c), ::testing::ExitedWithCode(0), "");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto moment : {Case::Moment::before, Case::Moment::after}) {
    for (const char* mode : {"bistro", "reloc"}) all.push_back({mode, false, moment});
    all.push_back({nullptr, true, moment});
    for (const char* mode : {"bistro", "reloc"}) all.push_back({mode, true, moment});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, HooksBeside, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.moment == Case::Moment::before ? "before" : "after";
  if (info.param.ucx) name += std::string("_ucx_") + info.param.ucx;
  if (info.param.open_mpi) name += "_open_mpi";
  return name;
});

}  // namespace
}  // namespace pinion::test
