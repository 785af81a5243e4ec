#include "device/cuda/cuda.h"

#include <atomic>
#include <new>

#include "base/units.h"
#include "device/handle_table.h"
#include "device/kernel/fault_in.h"
#include "device/kernel/writable_memory.h"

namespace pinion::cuda {

namespace {

/// One registration of 512 GiB fails with drivers from r580 on.
constexpr std::size_t kMostRegionBytes = std::size_t{256} << 30;

Error refusal(Range range, Result result) {
  const int code = result == kInvalidValue        ? EFAULT
                   : result == kOutOfMemory       ? ENOMEM
                   : result == kAlreadyRegistered ? EBUSY
                   : result == kNotPermitted      ? EAGAIN
                                                  : EIO;
  return Error::make(code, "CUDA refuses to register %s at %#zx: error %d",
                     format_size(range.bytes()).c_str(), range.begin, result);
}

class Registrations final : public CudaDevice {
 public:
  Registrations(const Driver& driver, HostRanges& ranges, OwnContext& context)
      : driver_(driver), ranges_(ranges), context_(context), table_(std::make_unique<HandleTable<Range>>()) {}

  const char* name() const override { return "cuda"; }
  std::string description() const override {
    return "registers host memory with the CUDA driver, in a context of its own";
  }
  DeviceCapabilities capabilities() const override {
    DeviceCapabilities capabilities;
    capabilities.slow_to_fork = true;
    capabilities.locks_at_fork = true;
    capabilities.byte_ranges = true;
    capabilities.cheap_to_keep = true;
    capabilities.caps.max_region_bytes = kMostRegionBytes;
    return capabilities;
  }

  Registration register_range(Range range, Access, Actor) override {
    if (broken_) return {Error::make(ENODEV, "CUDA is lost to this process"), {}, {}};
    if (stopped_) return {Error::make(ENODEV, "GPU copies are staged only"), {}, {}};
    if (Error error = check_writable_memory(range)) return {error, {}, {}};
    if (Error error = fault_in(range.to_pages(), true)) return {error, {}, {}};
    if (Error error = context_.make()) return {error, {}, {}};
    if (!ranges_.begin_registration(range)) return {in_use(range), {}, {}};
    const Result result = context_.run([&] {
      return driver_.host_register(reinterpret_cast<void*>(range.begin), range.bytes(), kRegisterPortable);
    });
    if (result != kSuccess) {
      ranges_.end_registration(range);
      note(result);
      return {refusal(range, result), {}, {}};
    }
    RegistrationKey key;
    key.handle = table_->add(range);
    key.remote_base = range.begin;
    return {{}, key, Access::all};
  }

  Error deregister(const RegistrationKey& key, Actor) override {
    const auto range = table_->take(key.handle);
    // After the end the driver goes on to treat the memory as registered, and so does the front.
    if (!range || broken_ || ended_) return {};
    const Result result =
        context_.run([&] { return driver_.host_unregister(reinterpret_cast<void*>(range->begin)); });
    note(result);
    if (broken_) return {};
    // The program, or the end of a context, may have unregistered it, and registered other memory around.
    if (result == kSuccess || result == kNotRegistered || result == kInvalidValue) {
      ranges_.end_registration(*range);
      return {};
    }
    table_->restore(key.handle, *range);
    return Error::make(EBUSY, "CUDA refuses to unregister %#zx: error %d", range->begin, result);
  }

  void abandon_after_fork() override {
    ranges_.abandon_after_fork();
    context_.abandon_after_fork();
    // Leaked on purpose: a thread that is missing here may have been in the middle of it.
    const std::uint64_t first = table_->next_after_fork();
    new (table_.get()) HandleTable<Range>(first);
    broken_ = true;
  }

  bool broken() const override { return broken_; }
  void stop_registering() override { stopped_ = true; }
  void end() override { stopped_ = ended_ = true; }
  void let_go_after_end(Range range) override {
    if (broken_) return;
    while (const auto found = ranges_.first_registration(range)) {
      const Result result =
          context_.run([&] { return driver_.host_unregister(reinterpret_cast<void*>(found->begin)); });
      note(result);
      if (broken_) return;
      ranges_.end_registration(*found);
    }
  }

 private:
  static Error in_use(Range range) {
    return Error::make(EBUSY, "%s at %#zx are in use by a copy of the program's, or registered in part",
                       format_size(range.bytes()).c_str(), range.begin);
  }
  void note(Result result) {
    if (is_sticky(result)) broken_ = true;
  }

  const Driver& driver_;
  HostRanges& ranges_;
  OwnContext& context_;
  std::unique_ptr<HandleTable<Range>> table_;
  std::atomic<bool> stopped_{false}, ended_{false};
  std::atomic<bool> broken_{false};  ///< in a forked child, too
};

}  // namespace

std::unique_ptr<CudaDevice> make_cuda_device(const Driver& driver, HostRanges& ranges, OwnContext& context) {
  return std::make_unique<Registrations>(driver, ranges, context);
}

}  // namespace pinion::cuda
