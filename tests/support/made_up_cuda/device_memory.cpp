#include "support/made_up_cuda/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace pinion::made_up_cuda {

namespace {
constexpr std::size_t kGrain = 512;
}

DeviceMemory::DeviceMemory() {
  file_ = ::memfd_create("made-up-gpu", MFD_CLOEXEC);
  void* view = MAP_FAILED;
  if (file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(kBacked)) == 0)
    view = ::mmap(nullptr, kBacked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  void* const fake = ::mmap(nullptr, kBacked, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (view == MAP_FAILED || fake == MAP_FAILED) {
    std::fputs("made-up CUDA: no address space for the device's memory\n", stderr);
    std::abort();
  }
  view_ = static_cast<char*>(view);
  fake_ = Range::of(fake, kBacked);
}

DevicePointer DeviceMemory::allocate(std::size_t bytes, std::uint64_t context) {
  const std::size_t rounded = (bytes + kGrain - 1) / kGrain * kGrain;
  if (bytes == 0 || rounded > free_bytes()) return 0;
  Address begin = fake_.begin;
  for (const auto& [base, allocation] : allocations_) {
    if (base - begin >= rounded) break;
    begin = (allocation.end + kGrain - 1) / kGrain * kGrain;
  }
  if (begin + rounded > fake_.end) return 0;
  allocations_[begin] = {begin + bytes, context};
  allocated_ += bytes;
  return begin;
}

bool DeviceMemory::free(DevicePointer base) {
  const auto found = allocations_.find(base);
  if (found == allocations_.end()) return false;
  const Range gone{base, found->second.end};
  allocated_ -= gone.bytes();
  const Range pages{page_ceil(gone.begin), page_floor(gone.end)};
  if (!pages.empty())
    ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(position(pages.begin)),
                static_cast<off_t>(pages.bytes()));
  allocations_.erase(found);
  return true;
}

void DeviceMemory::free_all_of(std::uint64_t context) {
  for (auto next = allocations_.begin(); next != allocations_.end();) {
    const auto current = next++;
    if (current->second.context == context) free(current->first);
  }
}

DeviceMemory::Allocations::const_iterator DeviceMemory::find(Address address) const {
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) return allocations_.end();
  --found;
  return address < found->second.end ? found : allocations_.end();
}

std::optional<Range> DeviceMemory::allocation(DevicePointer address) const {
  const auto found = find(address);
  if (found == allocations_.end()) return std::nullopt;
  return Range{found->first, found->second.end};
}

std::uint64_t DeviceMemory::context_of(DevicePointer address) const {
  const auto found = find(address);
  return found == allocations_.end() ? 0 : found->second.context;
}

bool DeviceMemory::holds(Range range) const {
  const auto found = allocation(range.begin);
  return found && found->contains(range);
}

std::size_t DeviceMemory::free_bytes() const { return room_ > allocated_ ? room_ - allocated_ : 0; }

void DeviceMemory::set_free_bytes(std::size_t bytes) { room_ = allocated_ + bytes; }

}  // namespace pinion::made_up_cuda
