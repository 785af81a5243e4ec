// The program closes or overwrites the descriptors that Pinion keeps, and Pinion goes on: the pin device's
// rings, the log, the userfaultfd. The program's own files and rings stay as they are.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/kernel/memlock.h"
#include "device/kernel/pin.h"
#include "monitor/userfault.h"
#include "runlog/writer.h"
#include "support/eventually.h"
#include "support/in_child.h"
#include "support/runlog_files.h"

namespace pinion {
namespace {

using test::eventually;
using test::in_child;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Open descriptors whose link begins with `kind`.
std::vector<int> descriptors_of(const std::string& kind) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with(kind))
      found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}
std::vector<int> rings() { return descriptors_of("anon_inode:[io_uring]"); }

struct Memory {
  explicit Memory(std::size_t size) : bytes(size) {
    start =
        static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (start == MAP_FAILED) throw std::bad_alloc();
    madvise(start, bytes, MADV_NOHUGEPAGE);
    std::memset(start, 1, bytes);
  }
  ~Memory() { munmap(start, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Range part(std::size_t i, std::size_t size) const { return Range::of(start + i * size, size); }
  std::size_t bytes;
  char* start;
};

/// Files of the program, one at each of `numbers`.
class Strangers {
 public:
  explicit Strangers(const std::vector<int>& numbers) {
    for (const int number : numbers) {
      const int file = memfd_create("stranger", MFD_CLOEXEC);
      if (file != number) {
        dup2(file, number);
        close(file);
      }
      struct stat status {};
      fstat(number, &status);
      files_.push_back({number, status.st_ino});
    }
  }
  ~Strangers() {
    for (const File& file : files_) close(file.number);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;
  void expect_untouched() const {
    for (const File& file : files_) {
      struct stat status {};
      ASSERT_EQ(fstat(file.number, &status), 0) << "descriptor " << file.number << " was closed";
      EXPECT_EQ(status.st_ino, file.inode) << "descriptor " << file.number << " was replaced";
      EXPECT_EQ(status.st_size, 0) << "descriptor " << file.number << " was written to";
    }
  }

 private:
  struct File {
    int number;
    ino_t inode;
  };
  std::vector<File> files_;
};

bool pinned_becomes(std::size_t bytes) {
  return eventually([&] { return memlock().pinned == bytes; });
}

/// A pin device with three registrations of 1 MiB, in both rings.
class PinDescriptors : public testing::Test {
 protected:
  void SetUp() override {
    if (!pin_support().io_uring) GTEST_SKIP() << pin_support().io_uring_refused;
    before_ = memlock().pinned;
    device_ = make_pin_device();
    for (std::size_t i = 0; i < 3; ++i) register_part(i, i == 1 ? Actor::helper : Actor::application);
    ours_ = rings();
    ASSERT_EQ(ours_.size(), 2u);
  }

  void register_part(std::size_t i, Actor actor) {
    const Registration made = device_->register_range(memory_.part(i, kMiB), Access::all, actor);
    ASSERT_FALSE(made.error) << made.error.message;
    keys_.push_back(made.key);
  }
  std::size_t pinned() const { return memlock().pinned - before_; }

  /// All that the device does, after its descriptors have been lost: also with its earlier registrations.
  void use_and_stop() {
    EXPECT_EQ(pinned(), 3 * kMiB) << "a lost descriptor unpins nothing";
    register_part(3, Actor::application);
    register_part(4, Actor::helper);
    EXPECT_TRUE(pinned_becomes(before_ + 5 * kMiB)) << pinned();
    EXPECT_FALSE(device_->deregister(keys_[0], Actor::application));
    EXPECT_FALSE(device_->deregister(keys_[1], Actor::application));
    EXPECT_TRUE(pinned_becomes(before_ + 3 * kMiB)) << pinned();
    device_.reset();
    EXPECT_TRUE(pinned_becomes(before_)) << pinned();
    EXPECT_TRUE(rings().empty());
  }

  Memory memory_{8 * kMiB};
  std::size_t before_ = 0;
  std::unique_ptr<Device> device_;
  std::vector<int> ours_;
  std::vector<RegistrationKey> keys_;
};

TEST_F(PinDescriptors, LieAboveThoseOfPrograms) {
  for (const int ring : ours_) EXPECT_GT(ring, 63);
}

TEST_F(PinDescriptors, ClosedByCloseRange) {
  ASSERT_EQ(syscall(SYS_close_range, 3u, ~0u, 0u), 0);
  use_and_stop();
}

TEST_F(PinDescriptors, ClosedOneByOneAndTakenByFiles) {
  for (int number = 3; number < 4096; ++number) close(number);
  const Strangers strangers(ours_);
  use_and_stop();
  strangers.expect_untouched();
}

TEST_F(PinDescriptors, OverwrittenByDup2) {
  const Strangers strangers(ours_);
  EXPECT_FALSE(device_->deregister(keys_[2], Actor::helper));
  EXPECT_TRUE(pinned_becomes(before_ + 2 * kMiB)) << pinned();
  device_.reset();
  EXPECT_TRUE(pinned_becomes(before_)) << pinned();
  strangers.expect_untouched();
}

TEST_F(PinDescriptors, ForkedChildLeavesTheProgramsFiles) {
  in_child([&] {
    syscall(SYS_close_range, 3u, ~0u, 0u);
    const Strangers strangers(ours_);
    device_->abandon_after_fork();
    strangers.expect_untouched();
    register_part(3, Actor::application);
    EXPECT_TRUE(pinned_becomes(kMiB)) << memlock().pinned;
    device_.reset();
    strangers.expect_untouched();
  });
  EXPECT_EQ(pinned(), 3 * kMiB) << "the child's doing is the child's";
}

TEST_F(PinDescriptors, TheProgramsOwnRingKeepsItsBuffers) {
  constexpr unsigned kBuffers = 16;
  const std::size_t page = page_size();
  for (const int number : ours_) {
    io_uring ring;
    ASSERT_EQ(io_uring_queue_init(8, &ring, 0), 0);
    Memory buffers(kBuffers * page);
    std::vector<iovec> table;
    for (unsigned i = 0; i < kBuffers; ++i) {
      std::memset(buffers.start + i * page, static_cast<int>('a' + i), page);
      table.push_back({buffers.start + i * page, page});
    }
    ASSERT_EQ(io_uring_register_buffers(&ring, table.data(), kBuffers), 0);
    ASSERT_EQ(dup2(ring.ring_fd, number), number);

    const Registration made = device_->register_range(memory_.part(5, kMiB), Access::all, Actor::application);
    ASSERT_FALSE(made.error) << made.error.message;
    const Registration ahead = device_->register_range(memory_.part(6, kMiB), Access::all, Actor::helper);
    ASSERT_FALSE(ahead.error) << ahead.error.message;
    EXPECT_FALSE(device_->deregister(ahead.key, Actor::helper));
    EXPECT_FALSE(device_->deregister(made.key, Actor::application));

    const int file = memfd_create("far end", MFD_CLOEXEC);
    unsigned right = 0;
    for (unsigned i = 0; i < kBuffers; ++i) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring);
      io_uring_prep_write_fixed(entry, file, buffers.start + i * page, static_cast<unsigned>(page), i * page,
                                static_cast<int>(i));
      io_uring_submit_and_wait(&ring, 1);
      io_uring_cqe* done = nullptr;
      ASSERT_EQ(io_uring_wait_cqe(&ring, &done), 0);
      std::string written(page, '\0');
      if (done->res == static_cast<int>(page) &&
          pread(file, written.data(), page, static_cast<off_t>(i * page)) == static_cast<ssize_t>(page))
        right += written == std::string(page, static_cast<char>('a' + i));
      io_uring_cqe_seen(&ring, done);
    }
    EXPECT_EQ(right, kBuffers);
    close(file);
    io_uring_queue_exit(&ring);
    close(number);
  }
}

TEST(LogDescriptor, OverwrittenByTheProgram) {
  TemporaryDirectory dir;
  runlog::LogWriter writer;
  runlog::RunInfo info;
  const Error opened = writer.open(dir.path(), info, 16 * kMiB);
  ASSERT_FALSE(opened) << opened.message;
  const std::string path = writer.path();
  const std::vector<int> ours = descriptors_of(dir.path());
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_GT(ours[0], 63);
  constexpr int kEvents = 40'000;
  {
    const Strangers strangers(ours);
    for (int i = 0; i < kEvents; ++i) writer.append(runlog::lease(1000 + i, 1010 + i, 0x10000, 4096, 77));
    strangers.expect_untouched();
    runlog::Series series;
    series.start(0);
    series.advance(100'000);
    writer.finish({}, series, 100'000, 0);
    strangers.expect_untouched();
  }
  runlog::Log log;
  const Error error = runlog::read_log(path, log);
  ASSERT_FALSE(error) << error.message;
  EXPECT_EQ(log.events.size(), static_cast<std::size_t>(kEvents));
}

// ---- the userfaultfd ----

long ask_for_userfaultfd() {
  const long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  uffdio_api api{};
  api.api = UFFD_API;
  if (fd >= 0) ioctl(static_cast<int>(fd), UFFDIO_API, &api);
  return fd;
}
bool can_register(long fd, const Memory& memory) {
  uffdio_register request{};
  request.range = {reinterpret_cast<std::uintptr_t>(memory.start), memory.bytes};
  request.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ioctl(static_cast<int>(fd), UFFDIO_REGISTER, &request) == 0;
}

TEST(UserfaultDescriptor, OverwrittenByTheProgramsOwn) {
  if (const Error refused = userfaultfd_refused()) GTEST_SKIP() << refused.message;
  in_child([] {
    const HookCallbacks nowhere{[](const MemoryChange&) { return Answer::proceed; }, [](Range) {}};
    ASSERT_FALSE(start_userfaultfd(nowhere));
    Memory watched(kMiB), later(kMiB);
    ASSERT_FALSE(watch_by_userfaultfd(watched.part(0, kMiB)));
    const std::vector<int> ours = descriptors_of("anon_inode:[userfaultfd]");
    ASSERT_EQ(ours.size(), 1u);
    const long theirs = ask_for_userfaultfd();
    ASSERT_EQ(dup2(static_cast<int>(theirs), ours[0]), ours[0]);
    EXPECT_TRUE(watch_by_userfaultfd(later.part(0, kMiB))) << "nothing says that it is watched";
    const long another = ask_for_userfaultfd();
    EXPECT_TRUE(can_register(another, later)) << "Pinion has registered it with the program's userfaultfd";
    ASSERT_FALSE(can_register(theirs, watched)) << "the reader watches it still";
    stop_userfaultfd();
    EXPECT_EQ(descriptors_of("anon_inode:[userfaultfd]").size(), 3u) << "all are the program's";
  });
}

}  // namespace
}  // namespace pinion
