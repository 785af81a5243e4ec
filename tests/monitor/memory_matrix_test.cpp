// Every way in which memory goes, in every state that its registration can be in: transfers must use the
// memory mapped at the address afterwards. Proved by contents, on a device that uses the pages pinned at
// registration (support/transfer_device.h), with the engine's own hooks. Gates hold operations at their
// points. On a kernel's RDMA stack, too: tests/softroce.
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "monitor/libc_hooks.h"
#include "registry/blocking.h"
#include "support/apart.h"
#include "support/eventually.h"
#include "support/gate.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

constexpr std::size_t kPages = 64;
std::size_t bytes_of(std::size_t pages) { return pages * page_size(); }
void* pointer(Address a) { return reinterpret_cast<void*>(a); }

constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

Range map(std::size_t bytes, int flags = kAnonymous, void* at = nullptr) {
  if (!at) return map_apart(bytes, flags);
  void* const start = ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return start == MAP_FAILED ? Range{} : Range::of(start, bytes);
}
/// Fresh memory where there is none.
void map_again(Range range) {
  ASSERT_EQ(map(range.bytes(), kAnonymous | MAP_FIXED_NOREPLACE, pointer(range.begin)), range)
      << "something is there still";
}

// ---- the ways memory goes ----

class Event {
 public:
  virtual ~Event() = default;
  /// Memory that the event will take; empty, with `why_not`, where this process cannot have such memory.
  virtual Range prepare() = 0;
  virtual void fire() = 0;
  /// After fire(): memory of this process at the same place, if there is none.
  virtual void renew() {}

  /// The part that fire() leaves as it was.
  virtual Range untouched() const { return {}; }
  /// The place to which fire() takes the contents.
  virtual Range moved_to() const { return {}; }
  /// Neighbours that are registered too; fire() takes them as well, or not.
  virtual std::vector<Range> taken_too() const { return {}; }
  virtual std::vector<Range> neighbours() const { return {}; }

  const char* why_not = "";

 protected:
  Range memory_;
};

class Anonymous : public Event {
 public:
  Range prepare() override { return memory_ = map(bytes_of(kPages)); }
};

class UnmapWhole : public Anonymous {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0); }
  void renew() override { map_again(memory_); }
};

class UnmapBySyscall : public UnmapWhole {
 public:
  void fire() override { ASSERT_EQ(::syscall(SYS_munmap, memory_.begin, memory_.bytes()), 0); }
};

class UnmapPart : public Anonymous {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(part().begin), part().bytes()), 0); }
  void renew() override { map_again(part()); }
  Range untouched() const override { return {memory_.begin, part().begin}; }

 private:
  Range part() const { return {memory_.begin + bytes_of(kPages / 2), memory_.end - bytes_of(kPages / 4)}; }
};

/// The memory lies between two others that are registered as well.
class Between : public Event {
 public:
  Range prepare() override {
    all_ = map(3 * bytes_of(kPages));
    return memory_ = {all_.begin + bytes_of(kPages), all_.end - bytes_of(kPages)};
  }

 protected:
  std::vector<Range> others() const { return {{all_.begin, memory_.begin}, {memory_.end, all_.end}}; }
  Range all_;
};

class UnmapSeveral : public Between {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(all_.begin), all_.bytes()), 0); }
  void renew() override { map_again(all_); }
  std::vector<Range> taken_too() const override { return others(); }
};

class UnmapOneOfSeveral : public Between {
 public:
  void fire() override { ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0); }
  void renew() override { map_again(memory_); }
  std::vector<Range> neighbours() const override { return others(); }
};

class MapOver : public Anonymous {
 public:
  void fire() override {
    ASSERT_EQ(map(memory_.bytes(), kAnonymous | MAP_FIXED, pointer(memory_.begin)), memory_);
  }
};

class RemapGrowInPlace : public Event {
 public:
  Range prepare() override {
    const Range all = map(2 * bytes_of(kPages));
    return memory_ = {all.begin, all.begin + bytes_of(kPages)};
  }
  void fire() override {
    ASSERT_EQ(::munmap(pointer(memory_.end), bytes_of(kPages)), 0);  // room, kept until now
    ASSERT_EQ(::mremap(pointer(memory_.begin), memory_.bytes(), 2 * memory_.bytes(), 0),
              pointer(memory_.begin));
  }
  Range untouched() const override { return memory_; }
};

class RemapShrink : public Anonymous {
 public:
  void fire() override {
    ASSERT_EQ(::mremap(pointer(memory_.begin), memory_.bytes(), untouched().bytes(), 0),
              pointer(memory_.begin));
  }
  void renew() override { map_again({untouched().end, memory_.end}); }
  Range untouched() const override { return {memory_.begin, memory_.begin + bytes_of(kPages / 2)}; }
};

class RemapMove : public Event {
 public:
  Range prepare() override {
    // With more of the mapping behind it, it cannot grow where it is.
    const Range all = map(2 * bytes_of(kPages));
    return memory_ = {all.begin, all.begin + bytes_of(kPages)};
  }
  void fire() override {
    to_ = Range::of(::mremap(pointer(memory_.begin), memory_.bytes(), 2 * memory_.bytes(), MREMAP_MAYMOVE),
                    memory_.bytes());
    ASSERT_NE(pointer(to_.begin), MAP_FAILED);
  }
  void renew() override { map_again(memory_); }
  Range moved_to() const override { return to_; }

 private:
  Range to_;
};

class RemapOnto : public Anonymous {
 public:
  void fire() override {
    const Range from = map(memory_.bytes());
    fill(from, 77);
    ASSERT_EQ(::mremap(pointer(from.begin), from.bytes(), memory_.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                       pointer(memory_.begin)),
              pointer(memory_.begin));
  }
};

class RemapDontUnmap : public Anonymous {
 public:
  void fire() override {
    to_ = Range::of(::mremap(pointer(memory_.begin), memory_.bytes(), memory_.bytes(),
                             MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr),
                    memory_.bytes());
    ASSERT_NE(pointer(to_.begin), MAP_FAILED);
  }
  Range moved_to() const override { return to_; }

 private:
  Range to_;
};

template <int advice>
class Advise : public Anonymous {
 public:
  void fire() override { ASSERT_EQ(::madvise(pointer(memory_.begin), memory_.bytes(), advice), 0); }
};

class AdviseRemove : public Advise<MADV_REMOVE> {
 public:
  Range prepare() override { return memory_ = map(bytes_of(kPages), MAP_SHARED | MAP_ANONYMOUS); }
};

constexpr std::size_t kMappedBlock = std::size_t{24} << 20;

/// Makes malloc map blocks of kMappedBlock and take others from a heap that has room enough for a test and
/// keeps it.
void settle_malloc() {
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_MMAP_THRESHOLD, 16 << 20);
  void* const volatile room = ::malloc(8 << 20);  // volatile: the pair would be optimised away
  ::free(room);
}

/// The break shrinks below the memory. malloc has no use for the break meanwhile.
class SbrkShrink : public Event {
 public:
  Range prepare() override {
    why_not = "the heap cannot grow";
    settle_malloc();
    const auto start = reinterpret_cast<Address>(::sbrk(static_cast<std::intptr_t>(bytes_of(kPages + 1))));
    if (start == ~Address{0}) return {};
    return memory_ = {page_ceil(start), page_ceil(start) + bytes_of(kPages)};
  }
  void fire() override {
    ASSERT_NE(::sbrk(-static_cast<std::intptr_t>(bytes_of(kPages))), pointer(~Address{0}));
  }
  void renew() override {
    ASSERT_NE(::sbrk(static_cast<std::intptr_t>(bytes_of(kPages))), pointer(~Address{0}));
  }
};

class BrkShrink : public SbrkShrink {
 public:
  void fire() override { ASSERT_EQ(::brk(pointer(memory_.begin)), 0); }
  void renew() override { ASSERT_EQ(::brk(pointer(memory_.end)), 0); }
};

/// A System V segment that vanishes with its last attachment.
class Segment {
 public:
  explicit Segment(std::size_t bytes) : id_(::shmget(IPC_PRIVATE, bytes, 0600)) {}
  ~Segment() {
    if (id_ >= 0) ::shmctl(id_, IPC_RMID, nullptr);
  }
  void* attach(void* at, int flags) const { return ::shmat(id_, at, flags); }

 private:
  int id_;
};

class DetachSegment : public Event {
 public:
  Range prepare() override {
    why_not = "no System V shared memory here";
    void* const start = segment_.attach(nullptr, 0);
    return memory_ = start == MAP_FAILED ? Range{} : Range::of(start, bytes_of(kPages));
  }
  void fire() override { ASSERT_EQ(::shmdt(pointer(memory_.begin)), 0); }
  void renew() override { map_again(memory_); }

 private:
  Segment segment_{bytes_of(kPages)};
};

class AttachOver : public Event {
 public:
  Range prepare() override {
    const Range all = map(bytes_of(kPages) + SHMLBA);
    const Address aligned = (all.begin + SHMLBA - 1) / SHMLBA * SHMLBA;
    return memory_ = {aligned, aligned + bytes_of(kPages)};
  }
  void fire() override {
    ASSERT_EQ(segment_.attach(pointer(memory_.begin), SHM_REMAP), pointer(memory_.begin));
  }

 private:
  Segment segment_{bytes_of(kPages)};
};

// ---- ... within libc ----

/// The whole pages inside a block of malloc's.
Range inside(void* block, std::size_t bytes) {
  return {page_ceil(reinterpret_cast<Address>(block)), page_floor(reinterpret_cast<Address>(block) + bytes)};
}

class FreeLarge : public Event {
 public:
  Range prepare() override {
    settle_malloc();
    block_ = ::malloc(kMappedBlock);
    return memory_ = inside(block_, bytes_of(kPages));
  }
  void fire() override { ::free(block_); }
  void renew() override { map_again(memory_); }

 private:
  void* block_ = nullptr;
};

class ReallocMove : public Event {
 public:
  Range prepare() override {
    settle_malloc();
    block_ = ::malloc(kMappedBlock);
    // In the way of the block's growing where it is.
    const Address end = page_ceil(reinterpret_cast<Address>(block_) + kMappedBlock);
    map(page_size(), kAnonymous | MAP_FIXED_NOREPLACE, pointer(end));
    return memory_ = inside(block_, bytes_of(kPages));
  }
  void fire() override {
    const std::size_t offset = memory_.begin - reinterpret_cast<Address>(block_);
    block_ = ::realloc(block_, 2 * kMappedBlock);
    to_ = {reinterpret_cast<Address>(block_) + offset,
           reinterpret_cast<Address>(block_) + offset + memory_.bytes()};
    ASSERT_FALSE(to_.overlaps(memory_));
  }
  void renew() override { map_again(memory_); }
  Range moved_to() const override { return to_; }

 private:
  void* block_ = nullptr;
  Range to_;
};

class MallocTrim : public Event {
 public:
  Range prepare() override {
    settle_malloc();
    // Neighbours that stay, so that the freed block merges with none and malloc gives it again.
    before_ = ::malloc(bytes_of(kPages));
    block_ = ::malloc(bytes_of(kPages));
    behind_ = ::malloc(bytes_of(kPages));
    // The chunk's own words, in its first and last page, stay.
    memory_ = inside(block_, bytes_of(kPages));
    return memory_ = {memory_.begin + page_size(), memory_.end - page_size()};
  }
  void fire() override {
    ::free(block_);
    ASSERT_EQ(::malloc_trim(0), 1);
  }
  void renew() override { ASSERT_EQ(::malloc(bytes_of(kPages)), block_); }

 private:
  void* before_ = nullptr;
  void* block_ = nullptr;
  void* behind_ = nullptr;
};

/// A thread that leaves its stack alone, except for the buffer that the test puts there.
class StackOwner {
 public:
  StackOwner() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{8} << 20);
    end_.arm();
    const auto body = [](void* self) -> void* {
      static_cast<StackOwner*>(self)->run();
      return nullptr;
    };
    EXPECT_EQ(pthread_create(&thread_, &attributes, body, this), 0);
    pthread_attr_destroy(&attributes);
    EXPECT_TRUE(end_.wait_reached()) << "the thread has not begun";
  }
  ~StackOwner() {
    end_.open();
    pthread_join(thread_, nullptr);
  }
  /// Far below its frames.
  Range memory() const { return memory_; }

 private:
  void run() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* lowest = nullptr;
    std::size_t size = 0;
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    const Address begin = page_ceil(reinterpret_cast<Address>(lowest) + size / 4);
    memory_ = {begin, begin + bytes_of(kPages)};
    end_.pass();
  }

  pthread_t thread_;
  Range memory_;
  Gate end_;
};

class ThreadExit : public Event {
 public:
  Range prepare() override {
    owner_ = std::make_unique<StackOwner>();
    return memory_ = owner_->memory();
  }
  void fire() override { owner_.reset(); }
  void renew() override {
    // libc gives the stack to the next thread.
    owner_ = std::make_unique<StackOwner>();
    ASSERT_EQ(owner_->memory(), memory_);
  }

 private:
  std::unique_ptr<StackOwner> owner_;
};

struct EventKind {
  const char* name;
  std::unique_ptr<Event> (*make)();
  bool of_malloc = false;
  bool loses_pages = true;
};

template <class E>
std::unique_ptr<Event> make() {
  return std::make_unique<E>();
}

const EventKind kEvents[] = {
    {"UnmapWhole", make<UnmapWhole>},
    {"UnmapPart", make<UnmapPart>},
    {"UnmapSeveral", make<UnmapSeveral>},
    {"UnmapOneOfSeveral", make<UnmapOneOfSeveral>},
    {"UnmapBySyscall", make<UnmapBySyscall>},
    {"MapOver", make<MapOver>},
    {"RemapGrowInPlace", make<RemapGrowInPlace>, false, false},
    {"RemapShrink", make<RemapShrink>},
    {"RemapMove", make<RemapMove>},
    {"RemapOnto", make<RemapOnto>},
    {"RemapDontUnmap", make<RemapDontUnmap>},
    {"AdviseDontNeed", make<Advise<MADV_DONTNEED>>},
    {"AdviseFree", make<Advise<MADV_FREE>>, false, false},  // not while they are pinned
    {"AdviseRemove", make<AdviseRemove>},
    {"SbrkShrink", make<SbrkShrink>},
    {"BrkShrink", make<BrkShrink>},
    {"AttachOver", make<AttachOver>},
    {"DetachSegment", make<DetachSegment>},
    {"FreeLarge", make<FreeLarge>, true},
    {"ReallocMove", make<ReallocMove>, true},
    {"MallocTrim", make<MallocTrim>, true},
    {"ThreadExit", make<ThreadExit>},
};

#define NEEDS_TRANSFERS() \
  if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEEDS_MALLOC_OF_LIBC(event) \
  if (event.of_malloc) GTEST_SKIP() << "the sanitizer's allocator keeps what is freed"
#else
#define NEEDS_MALLOC_OF_LIBC(event)
#endif

constexpr std::uint64_t kOld = 1, kNew = 2;

// ---- the instrument: the effect of a registration that outlives its memory ----

class StaleRegistration : public ::testing::TestWithParam<EventKind> {};

TEST_P(StaleRegistration, IsSeenInTheContents) {
  NEEDS_TRANSFERS();
  NEEDS_MALLOC_OF_LIBC(GetParam());
  EngineDevice device;
  Wire wire(bytes_of(4 * kPages));
  const auto event = GetParam().make();
  const Range memory = event->prepare();
  if (memory.empty()) GTEST_SKIP() << event->why_not;
  fill(memory, kOld);
  const Registration stale = device.register_range(memory, Access::all, Actor::application);
  if (stale.error) GTEST_SKIP() << "this kernel does not pin such memory: " << stale.error.message;
  event->fire();
  event->renew();
  fill(memory, kNew);

  ASSERT_EQ(device.send(stale.key, memory, wire, 0), 0);
  EXPECT_NE(holds(wire.as<std::uint64_t>(), memory, kNew), GetParam().loses_pages);
  fill_wire(wire, memory, ~kNew);
  ASSERT_EQ(device.receive(stale.key, memory, wire, 0), 0);
  EXPECT_NE(holds(memory, ~kNew), GetParam().loses_pages);
  EXPECT_FALSE(device.deregister(stale.key, Actor::application));
}

INSTANTIATE_TEST_SUITE_P(All, StaleRegistration, ::testing::ValuesIn(kEvents),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- the states a registration can be in ----

enum class State {
  idle,               ///< registered, no lease
  leased,             ///< and the lease lasts beyond the event
  registering,        ///< a thread has called the device, which has not pinned the pages yet
  registered,         ///< the device has pinned the pages, the call has not returned
  registering_ahead,  ///< the same in the helper's call
  retiring,           ///< the device has been told to unpin the pages, and has not
  queued,             ///< let go, and waiting to be registered ahead by the helper
};
const char* const kStates[] = {"Idle",     "Leased", "Registering", "Registered", "RegisteringAhead",
                               "Retiring", "Queued"};

struct Cell {
  EventKind event;
  State state;
};

RetentionKind retention_for(State state) {
  switch (state) {
    case State::registering_ahead:
    case State::queued:
      return RetentionKind::helper;
    case State::retiring:
      return RetentionKind::on_demand;
    default:
      return RetentionKind::leave_pinned;
  }
}

/// Memory, and an engine whose device calls for it can be held.
class HeldDevice : public ::testing::Test {
 protected:
  using Moment = TransferDevice::Moment;

  void start(RetentionKind retention) {
    engine_.reset();
    engine_ = std::make_unique<TransferEngine>(TransferEngine::options(retention));
    engine_->device().at = [this](Moment moment, Range pages, Actor actor) {
      if (moment == held_moment_ && actor == held_actor_ && pages.overlaps(memory_)) gate_.pass();
      if (moment == Moment::refused) ++refusals_;
    };
  }
  void TearDown() override { pass_gate(); }

  /// The next device call of this kind for `memory_` stops at the gate.
  void hold(Moment moment, Actor actor) {
    held_moment_ = moment;
    held_actor_ = actor;
    gate_.arm();
  }
  void pass_gate() {
    gate_.open();
    if (side_.joinable()) side_.join();
  }

  /// Teaches the helper that the memory is used once in `interval`, the latest time now.
  void teach_helper(Duration interval) {
    std::thread([&] { engine_->use_as_if_periodic(memory_, interval, 2); }).join();
  }
  /// Starts an engine whose helper has let the memory go, and will register it ahead in `until_use` at most.
  bool start_queued(Duration until_use) {
    start(RetentionKind::helper);
    teach_helper(until_use);
    return eventually([&] { return engine_->device().live(memory_) == 0; });
  }
  /// Starts an engine whose helper stops at this moment of registering the memory ahead. A helper that gets a
  /// processor only after the use is due keeps the memory instead: then once more, with more time.
  bool start_held_ahead(Moment moment) {
    for (Duration interval = 50 * kMillisecond; interval < 10 * kSecond; interval *= 4) {
      pass_gate();
      start(RetentionKind::helper);
      hold(moment, Actor::helper);
      teach_helper(interval);
      if (gate_.wait_reached(std::chrono::nanoseconds(5 * interval))) return true;
    }
    return false;
  }

  /// A moment at which this test is long over.
  static constexpr Duration kLongAfter = 600 * kSecond;

  Range memory_;
  Gate gate_;
  std::atomic<Moment> held_moment_{};
  std::atomic<Actor> held_actor_{};
  std::atomic<int> refusals_{0};
  std::thread side_;
  Wire wire_{bytes_of(4 * kPages)};
  std::unique_ptr<TransferEngine> engine_;  // last: its device's calls end before the members that they use
};

class MemoryMatrix : public HeldDevice, public ::testing::WithParamInterface<Cell> {
 protected:
  void SetUp() override {
    NEEDS_TRANSFERS();
    NEEDS_MALLOC_OF_LIBC(GetParam().event);
#if defined(__SANITIZE_THREAD__)
    if (GetParam().event.make == make<ThreadExit>)
      GTEST_SKIP() << "ThreadSanitizer takes leave of a thread before libc drops its stack";
#endif
  }
};

TEST_P(MemoryMatrix, TransfersSeeTheMemoryThatIsThere) {
  const State state = GetParam().state;
  const auto event = GetParam().event.make();
  memory_ = event->prepare();
  if (memory_.empty()) GTEST_SKIP() << event->why_not;
  fill(memory_, kOld);
  start(retention_for(state));
  const bool keeps = engine_->keeps();
  if (!keeps && state != State::leased && state != State::registering && state != State::registered &&
      state != State::retiring)
    GTEST_SKIP() << "nothing is kept here beyond its lease";

  // Whether such memory can be pinned at all. The engine is unaware of this registration.
  {
    EngineDevice probe;
    const Registration pinned = probe.register_range(memory_.to_pages(), Access::all, Actor::application);
    if (pinned.error) {
      EXPECT_EQ(pinned.error.code, EFAULT);
      GTEST_SKIP() << "this kernel does not pin such memory: " << pinned.error.message;
    }
    EXPECT_FALSE(probe.deregister(pinned.key, Actor::application));
  }

  // This brings the region into the state.
  TransferLease holder, late;
  switch (state) {
    case State::idle:
      engine_->acquire(memory_).release();
      ASSERT_EQ(engine_->device().live(memory_), 1u);
      break;
    case State::leased:
      holder = engine_->acquire(memory_);
      ASSERT_TRUE(holder);
      break;
    case State::registering:
    case State::registered:
      hold(state == State::registering ? Moment::registering : Moment::registered, Actor::application);
      side_ = std::thread([&] { late = engine_->acquire(memory_); });
      ASSERT_TRUE(gate_.wait_reached()) << "the acquire has not called the device";
      break;
    case State::registering_ahead:
      ASSERT_TRUE(start_held_ahead(Moment::registered)) << "the helper has not registered ahead";
      break;
    case State::retiring:
      hold(Moment::deregistering, Actor::application);
      side_ = std::thread([&] { engine_->acquire(memory_).release(); });
      ASSERT_TRUE(gate_.wait_reached()) << "the release has not called the device";
      break;
    case State::queued:
      ASSERT_TRUE(start_queued(kLongAfter)) << "the helper has not let the memory go";
      break;
  }
  EngineDevice& device = engine_->device();
  std::vector<Range> others = event->taken_too();
  const std::vector<Range> neighbours = event->neighbours();
  others.insert(others.end(), neighbours.begin(), neighbours.end());
  for (const Range& other : others) {
    fill(other, kOld);
    engine_->acquire(other).release();
  }

  // The event. The memory in its place is filled anew.
  const std::size_t registrations = device.registrations();
  event->fire();
  event->renew();  // at once, before another mapping of this process comes there
  if (HasFatalFailure()) return;
  if (const Range to = event->moved_to(); !to.empty()) {
    fill(to, 0);  // the old pages, at another place
    expect_transfers(*engine_, engine_->acquire(to), wire_, to, 0);
  }
  if (state == State::leased && !event->untouched().empty()) {
    const Range rest = event->untouched();
    ASSERT_TRUE(holds(rest, kOld));
    expect_transfers(*engine_, holder, wire_, rest, kOld);
  }
  fill(memory_, kNew);
  for (const Range& other : event->taken_too()) fill(other, kNew);

  // Out of it.
  pass_gate();
  const auto expect_right = [&](const TransferLease& lease) {
    // Memory of another kind may have come that this kernel does not pin: then the transfer is refused.
    if (!lease && lease.error().code == EFAULT) return;
    fill(memory_, kNew);
    expect_transfers(*engine_, lease, wire_, memory_, kNew);
  };
  if (state == State::registering || state == State::registered) expect_right(late);
  expect_right(engine_->acquire(memory_));
  if (state == State::leased) {
    holder.release();
    expect_right(engine_->acquire(memory_));
  }
  for (const Range& other : event->taken_too()) {
    fill(other, kNew);
    expect_transfers(*engine_, engine_->acquire(other), wire_, other, kNew);
  }
  if (keeps && (state == State::idle || state == State::leased)) {
    const std::size_t before = device.registrations();
    EXPECT_GE(before, registrations);
    for (const Range& other : neighbours) {
      EXPECT_EQ(device.live(other), 1u) << "a neighbour's registration went";
      expect_transfers(*engine_, engine_->acquire(other), wire_, other, kOld);
    }
    EXPECT_EQ(device.registrations(), before) << "a neighbour was registered again";
  }
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const EventKind& event : kEvents) {
    for (int state = 0; state < 7; ++state) cells.push_back({event, static_cast<State>(state)});
  }
  return cells;
}

INSTANTIATE_TEST_SUITE_P(All, MemoryMatrix, ::testing::ValuesIn(all_cells()), [](const auto& info) {
  return std::string(info.param.event.name) + "_" + kStates[static_cast<int>(info.param.state)];
});

// ---- memory that goes between the helper's decision and its call ----

class GoneMeanwhile : public HeldDevice {};

TEST_F(GoneMeanwhile, IsNoFailure) {
  NEEDS_TRANSFERS();
  memory_ = map(bytes_of(kPages));
  fill(memory_, kOld);
  start(RetentionKind::helper);
  if (!engine_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  ASSERT_TRUE(start_held_ahead(Moment::registering)) << "the helper has not registered ahead";
  const Range other = map(bytes_of(1));
  engine_->acquire(other).release();
  ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0);
  pass_gate();
  // The helper lets the other memory go when it is done with the refused call.
  ASSERT_TRUE(eventually([&] { return refusals_ > 0; })) << "the helper's call did not end";
  ASSERT_TRUE(eventually([&] { return engine_->device().live(other) == 0; })) << "the helper did not go on";
  EXPECT_EQ(engine_->counters().registration_failures, 0u);
}

// ---- when events cannot be seen any more ----

class UnseenEvents : public HeldDevice {
 protected:
  void SetUp() override {
    NEEDS_TRANSFERS();
    memory_ = map(bytes_of(kPages));
    other_ = map(page_size());
    fill(memory_, kOld);
  }
  /// The hooks are gone for good, and the engine learns of it when it registers other memory.
  void lose_events() {
    uninstall_libc_hooks();
    engine_->acquire(other_).release();
    ASSERT_EQ(engine_->device().live(other_), 0u) << "the engine still believes in its hooks";
  }
  void expect_new_memory() {
    ASSERT_EQ(map(memory_.bytes(), kAnonymous | MAP_FIXED, pointer(memory_.begin)), memory_);
    fill(memory_, kNew);
    expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
  }
  Range other_;
};

TEST_F(UnseenEvents, NothingIdleIsBelieved) {
  start(RetentionKind::leave_pinned);
  engine_->acquire(memory_).release();
  lose_events();
  expect_new_memory();
}

TEST_F(UnseenEvents, NothingIsRegisteredAhead) {
  start(RetentionKind::helper);
  if (!engine_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  constexpr Duration kUntilUse = 200 * kMillisecond;
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(start_queued(kUntilUse)) << "the helper has not let the memory go";
  lose_events();
  // The use that the helper expected is then over. A helper that was late leaves out the registration ahead.
  std::this_thread::sleep_until(begun + std::chrono::nanoseconds(2 * kUntilUse));
  expect_new_memory();
}

TEST_F(UnseenEvents, WhatIsBeingRegisteredAheadIsNotKept) {
  start(RetentionKind::helper);
  if (!engine_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  ASSERT_TRUE(start_held_ahead(Moment::registered)) << "the helper has not registered ahead";
  lose_events();
  pass_gate();
  expect_new_memory();
}

// ---- events that are stopped halfway ----

enum class Pause {
  begun,  ///< the bracket is open, the system call has not been made
  called  ///< it has been made, the bracket is open still
};

/// Chooses where an event stops, at which point of its device call a registration stops, and which of the two
/// goes on first.
struct Crossing {
  Pause pause;
  TransferDevice::Moment moment;
  bool registration_first;
};

/// Hooks that report to the engine as its own do, and stop at gates in between.
class PausedEvent : public ::testing::Test {
 protected:
  void SetUp() override {
    NEEDS_TRANSFERS();
    install_libc_hooks(
        {begin, end});  // the engine finds other callbacks in place, and checks that events arrive
    engine_ = std::make_unique<TransferEngine>(TransferEngine::options(RetentionKind::leave_pinned));
    const Range all = map(3 * bytes_of(kPages));
    before_ = {all.begin, all.begin + bytes_of(kPages)};
    memory_ = {before_.end, before_.end + bytes_of(kPages)};
    fill(all, kOld);
    watched_begin_ = memory_.begin;
  }
  void TearDown() override {
    watched_begin_ = 0;
    for (Gate& gate : event_gates_) gate.open();
    device_gate_.open();
    for (std::thread* thread : {&event_, &registration_}) {
      if (thread->joinable()) thread->join();
    }
    engine_.reset();
    uninstall_libc_hooks();
  }

  static Gate& gate(Pause pause) { return event_gates_[static_cast<int>(pause)]; }
  static Answer begin(const MemoryChange& change) {
    const Answer answer = memory_events::begin(change);
    if (change.range.begin == watched_begin_) gate(Pause::begun).pass();
    return answer;
  }
  static void end(Range range) {
    if (range.begin == watched_begin_) gate(Pause::called).pass();
    memory_events::end(range);
  }

  /// Maps other memory over `memory_`, as far as the pause.
  void start_event(Pause pause) {
    gate(pause).arm();
    event_ = std::thread([this] { map(memory_.bytes(), kAnonymous | MAP_FIXED, pointer(memory_.begin)); });
    ASSERT_TRUE(gate(pause).wait_reached()) << "the event has not begun";
  }
  void finish_event(Pause pause) {
    gate(pause).open();
    event_.join();
    fill(memory_, kNew);
  }
  void expect_refused(const TransferLease& lease) {
    EXPECT_FALSE(lease);
    EXPECT_EQ(lease.error().code, EAGAIN) << lease.error().message;
  }

  inline static Gate event_gates_[2];
  inline static std::atomic<Address> watched_begin_{0};
  Gate device_gate_;
  std::thread event_, registration_;
  Range before_, memory_;
  Wire wire_{bytes_of(kPages)};
  std::unique_ptr<TransferEngine> engine_;
};

class PausedEventAt : public PausedEvent, public ::testing::WithParamInterface<Pause> {};

TEST_P(PausedEventAt, RefusesItsMemoryAndNoOther) {
  engine_->acquire(before_).release();
  engine_->acquire(memory_).release();
  start_event(GetParam());
  expect_refused(engine_->acquire(memory_));
  const Range inner{memory_.begin + page_size(), memory_.begin + 2 * page_size()};
  expect_refused(engine_->acquire(inner));
  expect_transfers(*engine_, engine_->acquire(before_), wire_, before_, kOld);
  finish_event(GetParam());
  expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
}

TEST_P(PausedEventAt, LeavesALeaseAlone) {
  TransferLease holder = engine_->acquire(memory_);
  start_event(GetParam());
  expect_refused(engine_->acquire(memory_));
  if (GetParam() == Pause::begun) expect_transfers(*engine_, holder, wire_, memory_, kOld);
  holder.release();
  expect_refused(engine_->acquire(memory_));
  finish_event(GetParam());
  expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
}

INSTANTIATE_TEST_SUITE_P(All, PausedEventAt, ::testing::Values(Pause::begun, Pause::called),
                         [](const auto& info) {
                           return info.param == Pause::begun ? "BeforeTheCall" : "AfterTheCall";
                         });

class CrossingEvent : public PausedEvent, public ::testing::WithParamInterface<Crossing> {};

TEST_P(CrossingEvent, RegistersWhatIsThereOrNothing) {
  const auto [pause, moment, registration_first] = GetParam();
  engine_->device().at = [this](TransferDevice::Moment now, Range pages, Actor) {
    if (now == GetParam().moment && pages.overlaps(memory_)) device_gate_.pass();
  };
  device_gate_.arm();
  TransferLease lease;
  registration_ = std::thread([&] { lease = engine_->acquire(memory_); });
  ASSERT_TRUE(device_gate_.wait_reached()) << "the acquire has not called the device";
  start_event(pause);
  if (registration_first) {
    device_gate_.open();
    registration_.join();
    expect_refused(lease);
    EXPECT_EQ(engine_->device().live(memory_), 0u);
    finish_event(pause);
  } else {
    finish_event(pause);
    device_gate_.open();
    registration_.join();
    expect_transfers(*engine_, lease, wire_, memory_, kNew);
    fill(memory_, kNew);
  }
  expect_transfers(*engine_, engine_->acquire(memory_), wire_, memory_, kNew);
}

INSTANTIATE_TEST_SUITE_P(
    All, CrossingEvent, ::testing::ValuesIn([] {
      std::vector<Crossing> all;
      for (const Pause pause : {Pause::begun, Pause::called})
        for (const auto moment : {TransferDevice::Moment::registering, TransferDevice::Moment::registered})
          for (const bool first : {false, true}) all.push_back({pause, moment, first});
      return all;
    }()),
    [](const auto& info) {
      return std::string(info.param.pause == Pause::begun ? "BeforeTheCall" : "AfterTheCall") +
             (info.param.moment == TransferDevice::Moment::registering ? "_Registering" : "_Registered") +
             (info.param.registration_first ? "_GoesOnFirst" : "_GoesOnLast");
    });

// ---- an event between the registration's look for brackets and its entry into the index ----

/// The domain reads its ticks between the two.
class StoppingClock final : public Clock {
 public:
  std::function<void()> then;
  Time now() override { return real_.now(); }
  Ticks ticks() override {
    if (const auto once = std::exchange(then, nullptr)) once();
    return real_.ticks();
  }

 private:
  RealClock real_;
};

TEST(UnindexedRegistration, FindsTheEventThatDidNotFindIt) {
  NEEDS_TRANSFERS();
  EngineDevice device;
  Budget budget{Limits{}};
  Brackets brackets;
  StoppingClock clock;
  Domain domain(device, budget, brackets, clock, nullptr);
  const Range memory = map(bytes_of(kPages));
  fill(memory, kOld);

  clock.then = [&] {
    brackets.open(memory);
    domain.doom(memory);
  };
  Acquisition crossed(domain, {.pages = memory});
  ASSERT_EQ(run_blocking(crossed, Actor::application), AcquireStep::refused);
  EXPECT_EQ(crossed.result().error.code, EAGAIN);
  EXPECT_EQ(device.live(), 0u);
  map(memory.bytes(), kAnonymous | MAP_FIXED, pointer(memory.begin));
  brackets.close(memory);

  fill(memory, kNew);
  Acquisition again(domain, {.pages = memory});
  ASSERT_EQ(run_blocking(again, Actor::application), AcquireStep::leased);
  Wire wire(memory.bytes());
  ASSERT_EQ(device.send(again.result().region->key, memory, wire, 0), 0);
  EXPECT_TRUE(holds(wire.as<std::uint64_t>(), memory, kNew));
  domain.release(again.result().region);
  retire_all(domain, Actor::application, [](auto&&...) {});
}

}  // namespace
}  // namespace pinion::test
