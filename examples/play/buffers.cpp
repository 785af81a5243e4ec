#include "buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace play {

namespace {

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

Buffers::Buffers(Steps& steps, bool touched, bool heap) : patterns_(steps.arrays), heap_(heap) {
  for (const Range& array : patterns_) {
    const std::size_t bytes = pinion::page_ceil(array.bytes());
    void* memory = heap ? std::aligned_alloc(pinion::page_size(), bytes)
                        : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == nullptr || memory == MAP_FAILED) throw std::bad_alloc();
    if (touched) std::memset(memory, 0, bytes);
    const auto begin = reinterpret_cast<Address>(memory);
    mapped_.push_back({begin, begin + bytes});
  }
  for (auto* part : {&steps.before, &steps.turn, &steps.after}) {
    for (Step& step : *part) {
      step.memory = real(step.memory);
      step.received = real(step.received);
    }
  }
}

Buffers::~Buffers() {
  for (const Range& mapped : mapped_) {
    if (heap_)
      std::free(pointer(mapped.begin));
    else
      unmap(mapped);
  }
}

void Buffers::unmap(Range range) { ::munmap(pointer(range.begin), range.bytes()); }

/// A builder's arrays ascend.
Range Buffers::real(Range range) const {
  if (range.bytes() == 0) return {};
  const auto after = std::upper_bound(patterns_.begin(), patterns_.end(), range.begin,
                                      [](Address at, const Range& array) { return at < array.begin; });
  const auto of = static_cast<std::size_t>(after - patterns_.begin()) - 1;
  const Address begin = mapped_[of].begin + (range.begin - patterns_[of].begin);
  return {begin, begin + range.bytes()};
}

}  // namespace play
