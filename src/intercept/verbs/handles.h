// The handles that the program gets for registrations that Pinion answers. They are recognised by their
// address alone: memory behind a foreign handle is never read.
//
// Owns the memory of all handles, in chunks that are never unmapped. find() takes no lock, and holds in a
// forked child too; take() and put() share a short mutex. Any thread; not from hooks.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <new>

#include "base/mutex.h"
#include "lease/lease.h"

namespace pinion::verbs {

/// The object behind a handle: a lease; or, where nothing was leased, a registration of the library's.
struct Backing {
  Transfer transfer;
  ibv_mr* real = nullptr;
  int access = 0;  ///< as asked for
  int domain = 0;
  Range range{};                ///< as asked for
  bool has_peers = false;       ///< the key is one for peers, and shared
  std::uint64_t own_bytes = 0;  ///< of `real`, as counted against the limits
};

struct Handle {
  ibv_mr mr;  ///< the program's view, and so the first
  Backing backing;
  /// The device of the registration that the program holds by this handle; null: it holds none. The thread
  /// that takes it away owns the handle's backing.
  std::atomic<ibv_context*> held{nullptr};
  Handle* next_free = nullptr;
};

class Handles {
 public:
  /// The process's. Usable before constructors of this library have run.
  static Handles& instance();

  /// Null where the system has no memory for it.
  Handle* take();
  void put(Handle* handle);
  /// The handle, ours and in use or not; null where it is none of ours.
  Handle* find(const ibv_mr* mr) const;
  /// Takes away from the program the handles that it holds of this device, and calls `f(Handle&)` for each.
  template <class F>
  void take_away(ibv_context* context, F&& f) {
    for_each([&](Handle& handle) {
      ibv_context* expected = context;
      if (handle.held.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel)) f(handle);
    });
  }

  /// Calls `f(const Backing&)` with a copy of the backing of each handle that the program holds. One that
  /// another thread gives up meanwhile is left out, or is a moment old.
  template <class F>
  void for_each_held(F&& f) {
    for_each([&](Handle& handle) {
      const ibv_context* const held = handle.held.load(std::memory_order_acquire);
      if (held == nullptr) return;
      const Backing backing = handle.backing;
      if (handle.held.load(std::memory_order_acquire) == held) f(backing);
    });
  }

 private:
  template <class F>
  void for_each(F&& f) {
    for (const auto& place : chunks_) {
      const Address chunk = place.load(std::memory_order_acquire);
      for (std::size_t i = 0; chunk != 0 && i < kInChunk; ++i) f(handle_at(chunk, i));
    }
  }

  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;  ///< and where a chunk begins
  static constexpr std::size_t kInChunk = kChunkBytes / sizeof(Handle);
  static constexpr std::size_t kPlaces = 8192;  ///< for chunks; half of them are used at most

  static Handle& handle_at(Address chunk, std::size_t i) {
    return *std::launder(reinterpret_cast<Handle*>(chunk + i * sizeof(Handle)));
  }
  static std::size_t place_of(Address chunk) { return (chunk / kChunkBytes * 0x9E3779B97F4A7C15ull) >> 51; }
  bool grow() REQUIRES(mutex_);

  std::array<std::atomic<Address>, kPlaces> chunks_{};  ///< hashed by address; entries only ever come
  Mutex mutex_;
  std::size_t chunk_count_ GUARDED_BY(mutex_) = 0;
  Handle* free_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace pinion::verbs
