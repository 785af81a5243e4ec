// Steps of the arena in any order, against a model.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fixture.h"
#include "monitor/memory_events.h"
#include "support/deterministic_scheduler.h"
#include "support/eventually.h"
#include "support/fake_device.h"
#include "support/in_child.h"
#include "support/sanitizers.h"

namespace pinion::arena_test {
namespace {

// ---- a model ----

/// Numbers the changes of memory that end a registration, by chunk of the arena.
class ChangeCount final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    if (change.kind != ChangeKind::other) return Answer::proceed;
    const Range arena = process_arena().range();
    const Range common{std::max(arena.begin, change.range.begin), std::min(arena.end, change.range.end)};
    const std::uint64_t now = last_.fetch_add(1) + 1;
    for (Address at = common.begin; at < common.end; at += kChunk) changed_[index(at)].store(now);
    return Answer::proceed;
  }
  std::uint64_t now() const { return last_.load(); }
  /// The latest in the range.
  std::uint64_t of(Range range) const {
    std::uint64_t latest = 0;
    for (Address at = range.begin; at < range.end; at += kChunk)
      latest = std::max(latest, changed_[index(at)].load());
    return std::max(latest, changed_[index(range.end - 1)].load());
  }

 private:
  static std::size_t index(Address at) { return (at - process_arena().range().begin) / kChunk; }

  std::atomic<std::uint64_t> last_{0};
  std::array<std::atomic<std::uint64_t>, kArenaBytes / kChunk> changed_{};
};
ChangeCount g_changes;

/// Steps in any order, of one thread. A served request finds its memory registered since the last change
/// of it; blocks keep their contents.
class ArenaModelTest : public ArenaTest, public testing::WithParamInterface<unsigned> {
 protected:
  static constexpr std::uint64_t kLimit = 150 * kMiB;

  void begin() {
    start(GetParam() % 2 == 0 ? 0 : kLimit);
    // A thread's first allocation maps memory, which a shortage would refuse to the helper.
    ASSERT_TRUE(test::eventually(helper_sleeps));
    ASSERT_FALSE(memory_events::add(g_changes));
    device_ = &borrow_device();
    device_->refuse = [this](Range pages, Access) {
      const std::lock_guard lock(mutex_);
      registered_at_[pages.begin] = g_changes.now();
      return refuses_ ? ENOMEM : 0;
    };
  }
  void TearDown() override {
    memory_events::remove(g_changes);
    ArenaTest::TearDown();
  }

  void step() {
    const unsigned choice = random_() % 1000;
    if (choice < 250 || blocks_.empty()) {
      allocate();
    } else if (choice < 460) {
      free_one();
    } else if (choice < 740) {
      lease_part();
    } else if (choice < 960) {
      if (!leases_.empty()) release_one();
    } else if (choice < 975) {
      change(true);
    } else if (choice < 983) {
      change(false);
    } else if (choice < 985) {
      take_away();
    } else if (choice < 990) {
      process_heap().relieve();
    } else if (choice < 993) {
      Engine::running()->retirement().close(domain_);
    } else if (choice < 996) {
      Engine::running()->retirement().end_closed();
    } else if (choice < 998) {
      // A refused segment is not tried again for a second, which is longer than this takes.
      refuses_ = !refuses_ && Engine::running()->arena().figures().served > 0;
    } else {
      test::in_child([this] {
        for (const auto& [at, block] : blocks_) check(at, block);
        const char* const own = take(64 << 10, true);
        EXPECT_TRUE(own == nullptr || is_filled(own, 64 << 10, 0));
      });
    }
    while (blocks_.size() > 60) free_one();
    while (leases_.size() > 40) release_one();
  }
  void end() {
    while (!leases_.empty()) release_one();
    while (!blocks_.empty()) free_one();
    check_file();
    // Memory whose rights the kernel would not give back was set aside.
    EXPECT_TRUE(process_heap().unmap(process_arena().range()));
    process_heap().relieve();
    Engine::running()->retirement().close(domain_);
    EXPECT_TRUE(test::eventually([] { return registered() == 0 && process_arena().figures().segments == 0; }))
        << registered() << " bytes in " << process_arena().figures().segments << " segments";
    EXPECT_EQ(device_->live(), 0u);
    if (GetParam() % 2 != 0) {
      EXPECT_LE(device_->peak(), kLimit);
    }
    EXPECT_GT(Engine::running()->arena().figures().served, 0u);
  }

 private:
  static bool helper_sleeps() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name, stat;
      std::getline(std::ifstream(task.path() / "comm"), name);
      std::getline(std::ifstream(task.path() / "stat"), stat);
      if (name == "pinion-helper") return stat.find(") S ") != std::string::npos;
    }
    return false;
  }
  struct Block {
    std::size_t bytes;
    std::vector<char> pages;  ///< the first byte of each
    bool mapped = false;      ///< by mmap
  };
  struct Lease {
    Transfer transfer;
    Range range;
    RegistrationKey key;
  };

  static char* at_page(char* at, std::size_t page) { return at + page * page_size(); }
  static void check(char* at, const Block& block) {
    for (std::size_t i = 0; i < block.pages.size(); ++i) ASSERT_EQ(*at_page(at, i), block.pages[i]);
  }
  std::map<char*, Block>::iterator some_block() {
    const auto from = blocks_.lower_bound(
        reinterpret_cast<char*>(process_arena().range().begin + random_() % process_arena().range().bytes()));
    return from != blocks_.end() ? from : blocks_.begin();
  }

  void allocate() {
    const std::size_t bytes = (32 << 10) + random_() % (random_() % 20 == 0 ? 20 * kMiB : 500 << 10);
    const bool mapped = random_() % 4 == 0, zeroed = mapped || random_() % 8 == 0;
    char* const at = take_perhaps_short(bytes, mapped, zeroed);
    if (at == nullptr) {
      if (!blocks_.empty()) free_one();
      return;
    }
    if (zeroed) {
      ASSERT_TRUE(is_filled(at, bytes, 0));
    }
    Block block{bytes, std::vector<char>(bytes / page_size()), mapped};
    for (std::size_t i = 0; i < block.pages.size(); ++i)
      *at_page(at, i) = block.pages[i] = static_cast<char>(random_());
    blocks_[at] = std::move(block);
  }
  char* take_perhaps_short(std::size_t bytes, bool mapped, bool zeroed) {
    const auto take_now = [&] {
      return mapped ? static_cast<char*>(process_heap().map(bytes)) : take(bytes, zeroed);
    };
    if (kSanitized || random_() % 4 != 0) return take_now();  // sanitizers need memory of their own
    const Shortage shortage(random_() % 2 == 0 ? RLIMIT_AS : RLIMIT_DATA);
    return take_now();
  }
  void free_one() {
    const auto found = some_block();
    check(found->first, found->second);
    end(found->first, found->second);
    blocks_.erase(found);
  }
  void end(char* at, const Block& block) {
    if (!block.mapped) return process_heap().free(at);
    const Range whole{reinterpret_cast<Address>(at), page_ceil(reinterpret_cast<Address>(at) + block.bytes)};
    const Address middle = whole.begin + random_() % (whole.bytes() / page_size()) * page_size();
    if (middle != whole.begin) {
      ASSERT_TRUE(process_heap().unmap({middle, whole.end}));
    }
    ASSERT_TRUE(process_heap().unmap(whole));
  }
  void lease_part() {
    const auto [at, block] = *some_block();
    const std::size_t from = random_() % block.bytes, bytes = 1 + random_() % (block.bytes - from);
    Lease lease{{}, Range::of(at + from, bytes), {}};
    const bool served = this->lease(at + from, bytes, lease.transfer);
    if (!served && !acquire(at + from, bytes, lease.transfer)) return;
    const Region& region = *lease.transfer.region();
    lease.key = region.key;
    ASSERT_TRUE(device_->serves(lease.key, lease.range, Access::write));
    const std::lock_guard lock(mutex_);
    ASSERT_GE(registered_at_[region.range().begin], served ? g_changes.of(lease.range) : 0) << "stale";
    leases_.push_back(lease);
  }
  void release_one() {
    std::swap(leases_[random_() % leases_.size()], leases_.back());
    Lease& lease = leases_.back();
    ASSERT_TRUE(device_->serves(lease.key, lease.range, Access::write)) << "gone under a lease";
    if (lease.transfer.counted_at != 0) {
      const volatile char* const memory = reinterpret_cast<char*>(lease.range.begin);
      static_cast<void>(memory[0] + memory[lease.range.bytes() - 1]);  // mapped, though its block may be free
    }
    lease_path().release(*this_thread(), lease.transfer);
    leases_.pop_back();
  }
  /// Some pages of a block read as zeros from now on: dropped, or replaced by others.
  void change(bool drop) {
    auto& [at, block] = *some_block();
    const std::size_t from = random_() % block.pages.size();
    const std::size_t pages = 1 + random_() % (block.pages.size() - from);
    char* const begin = at_page(at, from);
    if (drop)
      ASSERT_EQ(advise(begin, pages * page_size(), MADV_DONTNEED), 0);
    else
      ASSERT_EQ(::mmap(begin, pages * page_size(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                begin);
    std::fill_n(block.pages.begin() + static_cast<std::ptrdiff_t>(from), pages, char{0});
    check(at, block);
  }

  /// Memory of a block that the program then frees: unmapped, without rights, moved, or a file's.
  void take_away() {
    const auto [at, block] = *some_block();
    const Range whole = Range::of(at, block.bytes);
    if (std::any_of(leases_.begin(), leases_.end(), [&](const Lease& l) { return l.range.overlaps(whole); }))
      return;  // release_one() reads their memory
    const std::size_t from = random_() % block.pages.size();
    const std::size_t bytes = (1 + random_() % (block.pages.size() - from)) * page_size();
    char* const begin = at_page(at, from);
    const unsigned way = random_() % 6;
    const bool hides = way < 3;
    if (way == 5) {
      ASSERT_EQ(advise(begin, bytes, MADV_WIPEONFORK), 0);
      test::in_child([&] { EXPECT_EQ(*begin, 0); });
    } else if (way == 4) {
      move_away(begin, bytes, block.pages[from]);
    } else if (way == 3) {
      map_file(begin, bytes);
    } else if (way > 0) {
      ASSERT_EQ(::munmap(begin, bytes), 0);
    } else {
      ASSERT_EQ(::mprotect(begin, bytes, PROT_NONE), 0);
    }
    ASSERT_NE(is_readable(begin), hides);
    ASSERT_TRUE(from == 0 || *at_page(at, from - 1) == block.pages[from - 1]);
    if (hides && random_() % 2 == 0) test::in_child([&] { EXPECT_FALSE(is_readable(begin)); });
    end(at, block);
    blocks_.erase(at);
  }
  void move_away(char* begin, std::size_t bytes, char first) {
    char* const moved =
        static_cast<char*>(::mremap(begin, bytes, bytes + random_() % 2 * page_size(), MREMAP_MAYMOVE));
    if (moved == MAP_FAILED) {  // of a mapping that the program laid there before
      ASSERT_EQ(errno, ENOMEM);
      ASSERT_FALSE(process_arena().changes().is_whole(Range::of(begin, bytes)));
      return;
    }
    if (moved == begin) return;
    ASSERT_FALSE(process_arena().range().contains(Range::of(moved, 1)));
    ASSERT_EQ(*moved, first);
    ASSERT_EQ(::munmap(moved, bytes), 0);
  }
  void check_file() {
    if (file_ < 0) return;
    EXPECT_TRUE(file_is_filled(file_, page_size(), 3));
    ::close(file_);
  }
  void map_file(char* begin, std::size_t bytes) {
    check_file();
    file_ = map_shared_over(begin, page_size(), 3);
    if (random_() % 2 == 0) {
      ASSERT_EQ(::munmap(begin, bytes), 0);
      ASSERT_EQ(::mprotect(begin, bytes, PROT_READ), 0);
    }
  }

  std::mt19937 random_{GetParam()};
  int file_ = -1;  ///< lay over a block that is freed
  test::FakeDevice* device_ = nullptr;
  std::map<char*, Block> blocks_;
  std::vector<Lease> leases_;
  std::atomic<bool> refuses_{false};
  std::mutex mutex_;
  std::map<Address, std::uint64_t> registered_at_;  ///< the changes before, by begin; guarded by the mutex
};

TEST_P(ArenaModelTest, HoldsInAnyOrderOfSteps) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const int steps = static_cast<int>((kSanitized ? 1000 : 4000) * test::test_scale());
  for (int i = 0; i < steps && !HasFailure(); ++i) step();
  end();
}
INSTANTIATE_TEST_SUITE_P(Seeds, ArenaModelTest, testing::Values(1u, 2u));

}  // namespace
}  // namespace pinion::arena_test
