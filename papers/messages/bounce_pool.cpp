#include "papers/messages/bounce_pool.h"

#include <sys/mman.h>

#include <cerrno>

#include "transfer/endpoint/remote_memory.h"

namespace pinion::transfer {

Error BouncePool::open(pinion_domain* domain, unsigned chunks, std::size_t chunk_bytes) {
  const std::size_t bytes = chunks * chunk_bytes;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error::make(ENOMEM, "no memory for %zu bytes of bounce buffers", bytes);
  memory_ = static_cast<char*>(memory);
  chunk_bytes_ = chunk_bytes;
  chunks_ = chunks;
  int code = pinion_acquire(domain, memory, bytes, PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_READ, &lease_);
  if (code == 0) {
    keys_.size = sizeof keys_;
    code = pinion_lease_keys(&lease_, &keys_);
  }
  if (code != 0) {
    const Error error =
        Error::make(code, "%zu bytes of bounce buffers cannot be registered: %s", bytes, pinion_last_error());
    close();
    return error;
  }
  for (std::size_t i = chunks; i-- > 0;) free_.push_back(memory_ + i * chunk_bytes);
  return {};
}

void BouncePool::close() {
  if (!memory_) return;
  // Refused where open() failed.
  static_cast<void>(pinion_release(&lease_));
  ::munmap(memory_, chunks_ * chunk_bytes_);
  memory_ = nullptr;
  free_.clear();
}

bool BouncePool::take(ChunkUse use, Chunk& chunk) {
  const std::size_t sending = in_use(ChunkUse::early) + in_use(ChunkUse::sending);
  const bool allowed = use == ChunkUse::receiving ? in_use(use) < chunks_ - chunks_ / 2
                       : use == ChunkUse::sending ? sending < chunks_ / 2
                                                  : in_use(use) < chunks_ / 4 && sending < chunks_ / 2;
  if (!allowed || free_.empty()) return false;
  chunk = {free_.back(), use};
  free_.pop_back();
  ++in_use(use);
  return true;
}

void BouncePool::give_back(Chunk& chunk) {
  free_.push_back(chunk.memory);
  --in_use(chunk.use);
  chunk.memory = nullptr;
}

RemoteMemory BouncePool::remote(const char* memory) const { return remote_memory(keys_, memory); }

}  // namespace pinion::transfer
