// Registered memory in chunks, for data that is copied on its way. One lease holds all of it, so the pool
// counts as registered. Its shares keep both directions moving: a chunk that receives waits for no peer, so
// peers that wait for chunks of this process get them.
// Guarded by its owner: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "pinion/pinion.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

/// The work that a chunk is taken for, with a share of the pool for each.
enum class ChunkUse : unsigned char {
  early,      ///< sends a message that the peer has not accepted: a quarter of the pool at most
  sending,    ///< sends an accepted one: half of the pool at most, early chunks included
  receiving,  ///< the other half
};

struct Chunk {
  char* memory = nullptr;
  ChunkUse use = ChunkUse::early;
};

class BouncePool {
 public:
  static constexpr unsigned kLeastChunks = 4;

  BouncePool() = default;
  BouncePool(const BouncePool&) = delete;
  BouncePool& operator=(const BouncePool&) = delete;
  ~BouncePool() { close(); }

  /// Registers `chunks` (kLeastChunks at least) of `chunk_bytes` each.
  Error open(pinion_domain* domain, unsigned chunks, std::size_t chunk_bytes);
  /// Chunks that are out must be idle by now.
  void close();

  /// False: the share of that use is taken; a chunk of it comes back.
  bool take(ChunkUse use, Chunk& chunk);
  void give_back(Chunk& chunk);

  std::size_t chunk_bytes() const { return chunk_bytes_; }
  std::size_t chunks() const { return chunks_; }
  std::size_t free_chunks() const { return free_.size(); }
  void* descriptor() const { return keys_.descriptor; }
  /// A chunk as peers name it.
  RemoteMemory remote(const char* memory) const;

 private:
  std::size_t& in_use(ChunkUse use) { return in_use_[static_cast<unsigned>(use)]; }

  char* memory_ = nullptr;
  std::size_t chunk_bytes_ = 0;
  std::size_t chunks_ = 0;
  pinion_lease lease_ = PINION_LEASE_INIT;
  pinion_keys keys_{};
  std::vector<char*> free_;
  std::array<std::size_t, 3> in_use_{};
};

}  // namespace pinion::transfer
