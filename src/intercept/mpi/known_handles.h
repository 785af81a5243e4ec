// Handles that are known to be good: MPI may be asked about them. A question about any other would run the
// program's error handler, or end the program, before its own call does.
//
// A handle is known once a call of the program has succeeded with it, or made it, until it is freed. A full
// table forgets handles, and learns them again. Any thread; takes no locks; handles are numbers (key_of() in
// abi.h). Never from hooks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinion::mpi {

class KnownHandles {
 public:
  using Key = std::uintptr_t;

  static KnownHandles& communicators();
  static KnownHandles& datatypes();
  static KnownHandles& windows();

  bool contains(Key handle) const {
    for (std::size_t i = 0; i < kProbes; ++i)
      if (place(handle, i).load(std::memory_order_relaxed) == handle) return handle != 0;
    return false;
  }
  void add(Key handle) {
    if (contains(handle)) return;
    for (std::size_t i = 0; i < kProbes; ++i) {
      Key empty = 0;
      if (place(handle, i).compare_exchange_strong(empty, handle, std::memory_order_relaxed)) return;
    }
    place(handle, 0).store(handle, std::memory_order_relaxed);
  }
  void remove(Key handle) {
    for (std::size_t i = 0; i < kProbes; ++i) {
      Key known = handle;
      place(handle, i).compare_exchange_strong(known, 0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::size_t kBits = 10, kProbes = 8;
  static std::size_t index_of(Key handle, std::size_t probe) {
    return ((handle * 0x9E3779B97F4A7C15ull >> (64 - kBits)) + probe) % (std::size_t{1} << kBits);
  }
  const std::atomic<Key>& place(Key handle, std::size_t probe) const {
    return places_[index_of(handle, probe)];
  }
  std::atomic<Key>& place(Key handle, std::size_t probe) { return places_[index_of(handle, probe)]; }

  std::array<std::atomic<Key>, std::size_t{1} << kBits> places_{};
};

/// The questions of one call to MPI, about its own handles. A call that meets an unknown handle names its
/// buffers once more after its success, which proves its handles good. Lives in the wrapper's frame.
class HandleQuestions {
 public:
  /// False while questions about the handle are unsafe.
  bool may_ask(KnownHandles& known, KnownHandles::Key handle) {
    if (called_) {
      known.add(handle);
      return true;
    }
    if (known.contains(handle)) return true;
    refused_ = true;
    return false;
  }
  /// True once may_ask() has returned false.
  bool refused() const { return refused_; }
  /// The call has succeeded: all its handles are good.
  void called() { called_ = true; }

 private:
  bool refused_ = false;
  bool called_ = false;
};

}  // namespace pinion::mpi
