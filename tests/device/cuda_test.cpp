// The device `cuda`: what it asks of the driver, in which context, and what becomes of the driver's errors.
// The driver is a table of functions that keep books.
#include "device/cuda/cuda.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "support/in_child.h"
#include "support/program_device.h"

namespace pinion::cuda {
namespace {

using test::kPage;
using test::Memory;

constexpr std::size_t kGiB = std::size_t{1} << 30;

/// The driver's state. One at a time, as its functions are plain ones.
class Books {
 public:
  Books() {
    now_ = this;
    t_contexts.clear();
    t_mode = kCaptureGlobal;
    driver_.context_current = [](Context* current) {
      *current = t_contexts.empty() ? nullptr : t_contexts.back();
      return kSuccess;
    };
    driver_.context_push = [](Context context) {
      if (now_->dead.contains(context)) return Result{709};
      t_contexts.push_back(context);
      return kSuccess;
    };
    driver_.context_pop = [](Context* popped) {
      if (t_contexts.empty()) return kInvalidContext;
      *popped = t_contexts.back();
      t_contexts.pop_back();
      return kSuccess;
    };
    driver_.context_create = [](Context* made, unsigned, Ordinal) {
      const std::lock_guard lock(now_->mutex);
      if (now_->create_error != kSuccess) return now_->create_error;
      ++now_->created;
      t_contexts.push_back(*made = now_->own);
      return kSuccess;
    };
    driver_.context_device = [](Ordinal* device) {
      *device = now_->device;
      return t_contexts.empty() ? kInvalidContext : kSuccess;
    };
    driver_.memory_info = [](std::size_t* free, std::size_t* total) {
      if (t_contexts.empty()) return kInvalidContext;
      *free = now_->free;
      *total = 80 * kGiB;
      return kSuccess;
    };
    driver_.host_register = [](void* base, std::size_t bytes, unsigned flags) {
      return now_->add(Range::of(base, bytes), flags);
    };
    driver_.host_unregister = [](void* base) { return now_->remove(reinterpret_cast<Address>(base)); };
    driver_.exchange_capture_mode = [](int* mode) {
      std::swap(*mode, t_mode);
      return kSuccess;
    };
  }
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  const Driver& driver() const { return driver_; }
  static std::size_t contexts_of_thread() { return t_contexts.size(); }
  static int mode_of_thread() { return t_mode; }

  Context program = reinterpret_cast<Context>(0x1000);
  Context own = reinterpret_cast<Context>(0x2000);
  std::map<Context, bool> dead;
  Ordinal device = 0;  ///< of the program's context
  std::size_t free = 60 * kGiB;
  int created = 0;
  int calls = 0;  ///< register and unregister
  Result create_error = kSuccess, register_error = kSuccess, unregister_error = kSuccess;
  std::map<Address, Range> live;
  std::mutex mutex;

 private:
  Result add(Range range, unsigned flags) {
    const std::lock_guard lock(mutex);
    look();
    EXPECT_EQ(flags, kRegisterPortable);
    if (register_error != kSuccess) return register_error;
    for (const auto& [begin, other] : live)
      if (other.overlaps(range)) return kAlreadyRegistered;
    live.emplace(range.begin, range);
    return kSuccess;
  }
  Result remove(Address base) {
    const std::lock_guard lock(mutex);
    look();
    if (unregister_error != kSuccess) return unregister_error;
    return live.erase(base) == 1 ? kSuccess : kNotRegistered;
  }
  void look() {
    ++calls;
    EXPECT_EQ(t_mode, kCaptureRelaxed);
    ASSERT_FALSE(t_contexts.empty());
    EXPECT_EQ(t_contexts.back(), own);
  }

  static Books* now_;
  static thread_local std::vector<Context> t_contexts;
  static thread_local int t_mode;
  Driver driver_;
};

Books* Books::now_ = nullptr;
thread_local std::vector<Context> Books::t_contexts;
thread_local int Books::t_mode = kCaptureGlobal;

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(look(books_, context_)); }
  void TearDown() override {
    EXPECT_EQ(Books::contexts_of_thread(), 0u);
    EXPECT_EQ(Books::mode_of_thread(), kCaptureGlobal);
  }
  /// The context looks at the GPU on a thread of the program.
  static bool look(const Books& books, OwnContext& context) {
    Context popped = nullptr;
    EXPECT_EQ(books.driver().context_push(books.program), kSuccess);
    const bool seen = context.look();
    EXPECT_EQ(books.driver().context_pop(&popped), kSuccess);
    return seen;
  }
  Registration add(Range range, Access access = Access::read) {
    return device_->register_range(range, access, Actor::helper);
  }
  int refusal(Range range, Access access = Access::read) { return add(range, access).error.code; }
  int drop(const Registration& registration) {
    return device_->deregister(registration.key, Actor::helper).code;
  }
  Range part(std::size_t begin, std::size_t end) const {
    return {reinterpret_cast<Address>(memory_.page(0)) + begin,
            reinterpret_cast<Address>(memory_.page(0)) + end};
  }

  Memory memory_{16};
  Books books_;
  HostRanges ranges_;
  OwnContext context_{books_.driver(), 0};
  std::unique_ptr<cuda::CudaDevice> device_ = make_cuda_device(books_.driver(), ranges_, context_);
};

TEST_F(CudaDevice, RegistersTheBytesOfTheRangeInAContextOfItsOwn) {
  const Registration first = add(part(100, 8100));
  ASSERT_FALSE(first.error) << first.error.message;
  EXPECT_EQ(first.granted, Access::all);
  const Registration second = add(part(8100, 12000));
  ASSERT_FALSE(second.error) << "in the first one's page: " << second.error.message;
  EXPECT_EQ(books_.created, 1);
  ASSERT_EQ(books_.live.size(), 2u);
  EXPECT_EQ(books_.live.begin()->second, part(100, 8100));
  EXPECT_EQ(ranges_.registration_of(part(8100, 0).begin), part(8100, 12000));
  EXPECT_EQ(drop(first), 0);
  EXPECT_FALSE(ranges_.touches_registration(part(100, 8100)));
  EXPECT_EQ(drop(second), 0);
  EXPECT_TRUE(books_.live.empty());
}

TEST_F(CudaDevice, StatesThatItsRangesAreOfBytes) {
  EXPECT_TRUE(device_->capabilities().byte_ranges);
  EXPECT_TRUE(device_->capabilities().slow_to_fork);
  EXPECT_TRUE(device_->capabilities().locks_at_fork);
  EXPECT_FALSE(device_->capabilities().remote);
}

TEST_F(CudaDevice, AsksTheDriverOnlyForMemoryThatNoCallIsUsing) {
  const Range whole = part(0, 8192);
  const Block used = part(8000, 8001);
  ASSERT_TRUE(ranges_.close({&used, 1}));
  EXPECT_EQ(refusal(whole), EBUSY);
  EXPECT_EQ(books_.calls, 0);
  ranges_.open({&used, 1});
  const Registration made = add(whole);
  ASSERT_FALSE(made.error) << made.error.message;
  EXPECT_EQ(refusal(part(8191, 9000)), EBUSY) << "no two overlap";
  EXPECT_EQ(drop(made), 0);
}

TEST_F(CudaDevice, MakesUntouchedMemoryPresentFirst) {
  ASSERT_FALSE(add(part(10, 3 * kPage + 1)).error);
  unsigned char present[4];
  ASSERT_EQ(::mincore(memory_.page(0), 4 * kPage, present), 0);
  for (const unsigned char page : present) EXPECT_EQ(page & 1, 1);
}

TEST_F(CudaDevice, RefusesMemoryThatCannotBeWritten) {
  ASSERT_EQ(::mprotect(memory_.page(3), kPage, PROT_READ), 0);
  EXPECT_EQ(refusal(part(0, 4 * kPage)), EFAULT);
  EXPECT_EQ(refusal(part(3 * kPage, 3 * kPage + 1)), EFAULT);
  ASSERT_EQ(::munmap(memory_.page(15), kPage), 0);
  EXPECT_EQ(refusal(part(14 * kPage, 16 * kPage)), EFAULT) << "unmapped in part";
  EXPECT_EQ(books_.calls, 0);
  EXPECT_EQ(refusal(part(0, 3 * kPage)), 0);
}

TEST_F(CudaDevice, StatesTheDriversRefusals) {
  const std::map<Result, int> codes{
      {kInvalidValue, EFAULT}, {kOutOfMemory, ENOMEM}, {kAlreadyRegistered, EBUSY}, {kNotPermitted, EAGAIN}};
  for (const auto& [result, code] : codes) {
    books_.register_error = result;
    EXPECT_EQ(refusal(part(0, 100)), code) << result;
    EXPECT_FALSE(ranges_.touches_registration(part(0, 100))) << "and leaves nothing behind";
  }
  EXPECT_FALSE(device_->broken());
}

TEST_F(CudaDevice, KeepsARegistrationThatTheDriverRefusesToUndo) {
  const Registration made = add(part(0, 100));
  books_.unregister_error = kNotPermitted;
  EXPECT_NE(drop(made), 0);
  EXPECT_TRUE(ranges_.touches_registration(part(0, 100)));
  books_.unregister_error = kSuccess;
  EXPECT_EQ(drop(made), 0);
  EXPECT_FALSE(ranges_.touches_registration(part(0, 100)));
  EXPECT_TRUE(books_.live.empty());
}

TEST_F(CudaDevice, ForgetsARegistrationThatTheProgramHasUndone) {
  const Registration made = add(part(0, 100));
  books_.live.clear();
  EXPECT_EQ(drop(made), 0);
  EXPECT_EQ(refusal(part(50, 150)), 0);
}

TEST_F(CudaDevice, LeavesTheDriverAloneAfterAnErrorThatStays) {
  for (const Result sticky : {kIllegalAddress, kLaunchFailed, kDeinitialized}) {
    const Books books;
    OwnContext context(books.driver(), 0);
    ASSERT_TRUE(look(books, context));
    const auto device = make_cuda_device(books.driver(), ranges_, context);
    const Registration first = device->register_range(part(0, 100), Access::read, Actor::helper);
    const Registration second = device->register_range(part(100, 200), Access::read, Actor::helper);
    ASSERT_FALSE(first.error || second.error);
    const_cast<Books&>(books).unregister_error = sticky;
    EXPECT_EQ(device->deregister(first.key, Actor::helper).code, 0);
    EXPECT_TRUE(device->broken());
    EXPECT_TRUE(ranges_.touches_registration(part(0, 100))) << "the driver may have both still";
    EXPECT_TRUE(ranges_.touches_registration(part(100, 200)));
    const int calls = books.calls;
    EXPECT_EQ(device->deregister(second.key, Actor::helper).code, 0);
    EXPECT_EQ(device->register_range(part(0, 100), Access::read, Actor::helper).error.code, ENODEV);
    EXPECT_EQ(books.calls, calls);
    for (const Range range : {part(0, 100), part(100, 200)}) ranges_.end_registration(range);
  }
}

TEST_F(CudaDevice, RegistersNothingWhereTheGpuHasNoMemoryToSpare) {
  books_.free = 8 * kGiB - 1;
  ASSERT_TRUE(look(books_, context_));
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(part(0, 100)), ENODEV);
  books_.free = 60 * kGiB;
  ASSERT_TRUE(look(books_, context_));
  EXPECT_EQ(refusal(part(0, 100)), ENODEV) << "and does not ask again";
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("8.0 GiB are free, 8 are needed"), std::string::npos) << message;
  EXPECT_EQ(message.find("CUDA registers no"), message.rfind("CUDA registers no"))
      << "said once: " << message;
  EXPECT_EQ(books_.created + books_.calls, 0);
}

TEST_F(CudaDevice, RegistersNothingWithoutAContext) {
  testing::internal::CaptureStderr();
  books_.create_error = kOutOfMemory;
  EXPECT_EQ(refusal(part(0, 100)), ENODEV);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no second context"), std::string::npos);
}

TEST_F(CudaDevice, MakesItsContextAfterTheProgramsFirstOneHasEnded) {
  books_.dead[books_.program] = true;  // its handle leads nowhere
  EXPECT_EQ(refusal(part(0, 100)), 0);
  EXPECT_EQ(books_.created, 1);
}

TEST_F(CudaDevice, MakesItsContextOnlyAfterALookAtItsOwnGpu) {
  OwnContext context(books_.driver(), 0);
  const auto device = make_cuda_device(books_.driver(), ranges_, context);
  const auto refusal = [&] {
    return device->register_range(part(0, 100), Access::read, Actor::helper).error.code;
  };
  EXPECT_EQ(refusal(), ENODEV) << "of the helper's, before any copy";
  books_.device = 1;
  EXPECT_FALSE(look(books_, context));
  EXPECT_EQ(refusal(), ENODEV);
  books_.device = 0;
  EXPECT_TRUE(look(books_, context));
  EXPECT_EQ(refusal(), 0);
}

TEST_F(CudaDevice, AResetOfTheProgramsContextLeavesRegistrations) {
  const Registration made = add(part(0, 100));
  books_.dead[books_.program] = true;
  EXPECT_EQ(refusal(part(100, 200)), 0);
  EXPECT_EQ(drop(made), 0);
  EXPECT_FALSE(device_->broken());
}

TEST_F(CudaDevice, TheEndOfItsOwnContextEndsItsRegistrations) {
  const Registration made = add(part(0, 100));
  books_.dead[books_.own] = true;
  EXPECT_EQ(drop(made), 0);
  EXPECT_TRUE(device_->broken());
}

TEST_F(CudaDevice, AForkedChildLeavesTheDriverAlone) {
  const Registration made = add(part(0, 100));
  test::in_child([&] {
    device_->abandon_after_fork();
    const int calls = books_.calls;
    EXPECT_EQ(drop(made), 0);
    EXPECT_EQ(refusal(part(0, 100)), ENODEV);
    EXPECT_EQ(books_.calls, calls);
    EXPECT_FALSE(ranges_.touches_registration(part(0, 100)));
  });
  EXPECT_EQ(drop(made), 0);
}

}  // namespace
}  // namespace pinion::cuda
