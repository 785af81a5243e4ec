// The size of a message, the first check of every call. The sizes of MPI's predefined types are fetched from
// MPI once: they are constant, and so is the meaning of their handles. Any thread that may
// call MPI.
//
// The table's types are set when the MPI is recognised, before any wrapper runs, then only read; a size is
// zero until MPI has been asked.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "intercept/mpi/library.h"
#include "intercept/mpi/session.h"

namespace pinion::mpi::PINION_MPI_ABI {

class TypeSizes {
 public:
  /// Of a type that MPI has been asked about; else zero.
  struct Size {
    std::uint32_t bytes = 0;
    std::uint32_t dense = 0;  ///< 1: an element begins at its address, and nothing lies between two
  };
  struct Known {
    Datatype type{};
    std::atomic<Size> size{};
  };

  /// Prepares a type that the table has room for.
  void expect(Datatype type) {
    Known& known = place_of(type);
    if (known.type == Datatype{}) known.type = type;
  }
  Size find(Datatype type) const {
    const Known& known = places_[index_of(type)];
    return known.type == type ? known.size.load(std::memory_order_relaxed) : Size{};
  }
  /// Whether it is one of the table's, so that MPI may be asked.
  bool expects(Datatype type) const { return places_[index_of(type)].type == type; }
  void learn(Datatype type, Size size) {
    Known& known = place_of(type);
    if (known.type == type) known.size.store(size, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kPlaces = 128;
  static std::size_t index_of(Datatype type) { return (key_of(type) >> Predefined::kTypeShift) % kPlaces; }
  Known& place_of(Datatype type) { return places_[index_of(type)]; }

  std::array<Known, kPlaces> places_;
};
inline constinit TypeSizes g_type_sizes;

/// Whether it is known, without a question to MPI, that so many elements are too few bytes to be looked at.
/// May be asked of arguments that mean nothing: nothing is called or followed.
template <class N>
[[gnu::always_inline]] inline bool is_small(N n, Datatype type) {
  const std::uint64_t count = static_cast<std::make_unsigned_t<N>>(n);
  const std::uint64_t least = g_least_bytes.load(std::memory_order_relaxed);
  const std::uint32_t size = g_type_sizes.find(type).bytes;
  // A count below the threshold times the size of a basic type fits the product's type.
  return size != 0 && count < least && count * size < least;
}

}  // namespace pinion::mpi::PINION_MPI_ABI
