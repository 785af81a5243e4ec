#include "transfer/endpoint/wire_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>

namespace pinion::transfer {

namespace {
constexpr std::size_t kBlockBytes = WirePool::kBytes * WirePool::kBlock;
}

WirePool::~WirePool() {
  for (const Block& block : blocks_) ::munmap(block.memory, kBlockBytes);
}

void WirePool::release() {
  const MutexLock lock(mutex_);
  if (domain_ == nullptr) return;
  for (Block& block : blocks_) pinion_release(&block.lease);
}

Error WirePool::grow() {
  void* const memory =
      ::mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error::make(ENOMEM, "no memory for buffers of messages");
  Block block;
  block.memory = static_cast<std::byte*>(memory);
  struct pinion_keys keys {};
  keys.size = sizeof keys;
  if (domain_ != nullptr) {
    int code = pinion_acquire(domain_, memory, kBlockBytes, PINION_ACCESS_WRITE, &block.lease);
    const bool leased = code == 0;
    if (leased) code = pinion_lease_keys(&block.lease, &keys);
    if (code != 0) {
      const Error error = Error::make(code, "buffers of messages: %s", pinion_last_error());
      if (leased) pinion_release(&block.lease);
      ::munmap(memory, kBlockBytes);
      return error;
    }
  }
  const MutexLock lock(mutex_);
  try {
    free_.reserve(buffers_.size() + kBlock);
    blocks_.push_back(block);
    for (std::size_t i = 0; i < kBlock; ++i)
      free_.push_back(&buffers_.emplace_back(WireBuffer{block.memory + i * kBytes, keys.descriptor}));
  } catch (const std::bad_alloc&) {
    // Buffers that are made already stay, with their block.
    if (!blocks_.empty() && blocks_.back().memory == block.memory) return {};
    if (domain_ != nullptr) pinion_release(&block.lease);
    ::munmap(memory, kBlockBytes);
    return Error::make(ENOMEM, "no memory for buffers of messages");
  }
  return {};
}

WireBuffer* WirePool::take() {
  const MutexLock lock(mutex_);
  if (free_.empty()) return nullptr;
  WireBuffer* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void WirePool::give(WireBuffer* buffer) {
  const MutexLock lock(mutex_);
  free_.push_back(buffer);
}

std::size_t WirePool::made() const {
  const MutexLock lock(mutex_);
  return buffers_.size();
}

}  // namespace pinion::transfer
